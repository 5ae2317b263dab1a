"""The penalty on codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._checks import check_flag
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError


@dataclass(frozen=True)
class ElasticNet:
    r"""Omega(a) = l1_ratio * |a|_1 + (1 - l1_ratio) / 2 * |a|_2^2.

    The lasso penalty is ``ElasticNet(1)``, the ridge penalty ``ElasticNet(0)``.

    Examples
    --------
    >>> ElasticNet(0.5).value(np.array([[3.0, -4.0]]))
    array([9.75])
    """

    l1_ratio: float = 1.0
    """Share of the l1 norm, between 0 (ridge) and 1 (lasso)."""

    positive: bool = False
    """Whether codes must be >= 0."""

    def __post_init__(self) -> None:
        if not (is_number(self.l1_ratio) and 0 <= self.l1_ratio <= 1):
            raise ParameterError(
                f"l1_ratio of the penalty must be between 0 and 1, got {self.l1_ratio!r} (0 is ridge, 1 is lasso)"
            )
        check_flag("positive of the penalty", self.positive)

    def value(self, codes: Array) -> Array:
        """Return the penalty of each row of ``codes`` (b, k), in float64."""
        values = codes.astype(np.float64, copy=False)
        return self.of_sums(np.abs(values).sum(axis=1), np.einsum("ij,ij->i", values, values))

    def of_sums(self, absolute: Any, squares: Any) -> Any:
        """Return the penalty of codes by the sums of their absolute values and of their squares."""
        return self.l1_ratio * absolute + 0.5 * (1 - self.l1_ratio) * squares


PENALTIES = {"l1": 1.0, "l2": 0.0}
"""Names of penalties and the share of l1 they stand for."""


def resolve_penalty(penalty: str | ElasticNet, *, positive: bool) -> ElasticNet:
    """Turn what a user gives as ``penalty`` into an :class:`ElasticNet`."""
    if isinstance(penalty, ElasticNet):
        return ElasticNet(penalty.l1_ratio, positive or penalty.positive)
    if not (isinstance(penalty, str) and penalty in PENALTIES):
        raise ParameterError(f"penalty must be 'l1', 'l2' or ElasticNet(l1_ratio), got {penalty!r}")
    return ElasticNet(PENALTIES[penalty], positive)
