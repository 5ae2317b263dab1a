"""The penalty on codes.

A penalty finds codes from inner products alone, at the level of k: it never sees features, masks or threads. A new one
is one class with the two methods of :class:`Penalty`, registered by :func:`~terafactor.problem.registry.register`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from terafactor._checks import check_flag
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.codes import elastic_net_codes, ridge_codes, signed_start
from terafactor.kernels.solve import solve_rows
from terafactor.problem.registry import register

logger = logging.getLogger(__name__)

MAX_PASSES = 1000
"""Bound on the passes of coordinate descent."""


class Penalty(Protocol):
    """Omega, the penalty on codes."""

    def value(self, codes: Array) -> Array:
        """Return Omega of each row of ``codes`` (b, k), in float64."""

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        """Return the codes (b, k), float64: ``argmin over a of 1/2 a G a' - a h' + strength * Omega(a)`` for each row.

        gram : (k, k), or (b, k, k) where each row observes features of its own; G, float64, positive definite to
        working precision. products : (b, k), h, float64, contiguous. strength : a number, or (b,) with a Gram matrix
        per row. tolerance : allowed violation of the optimality conditions, relative to the largest product of a row.
        """


@register
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
        absolute, squares = np.abs(values).sum(axis=1), np.einsum("ij,ij->i", values, values)
        return self.l1_ratio * absolute + 0.5 * (1 - self.l1_ratio) * squares

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        """Return the codes (b, k) that belong to inner products: see :meth:`Penalty.codes`."""
        strengths = np.full(len(products), strength, np.float64)
        l1, l2 = self.l1_ratio * strengths, (1 - self.l1_ratio) * strengths
        is_ridge = not (self.positive or l1.any())
        if is_ridge and gram.ndim == 2:
            return solve_rows(gram + l2[0] * np.eye(len(gram)), products)
        codes = np.zeros(products.shape)
        if is_ridge:
            ridge_codes(gram, products, l2, codes)
            return codes
        if gram.ndim == 2 and not self.positive and (start := signed_start(gram, products, l1[0], l2[0])) is not None:
            codes = start
        grams = gram if gram.ndim == 3 else gram[np.newaxis]
        unfinished = elastic_net_codes(grams, products, l1, l2, self.positive, tolerance, MAX_PASSES, codes)
        if unfinished:
            logger.info("%d of %d codes stopped after %d passes", unfinished, len(codes), MAX_PASSES)
        return codes


PENALTIES = {"l1": 1.0, "l2": 0.0}
"""Names of penalties and the share of l1 they stand for."""


def resolve_penalty(penalty: str | Penalty, *, positive: bool) -> Penalty:
    """Return the penalty that a user means: one of the names, or an object that is a :class:`Penalty`."""
    if isinstance(penalty, str) and penalty in PENALTIES:
        return ElasticNet(PENALTIES[penalty], positive)
    if isinstance(penalty, str) or not (hasattr(penalty, "codes") and hasattr(penalty, "value")):
        raise ParameterError(f"penalty must be 'l1', 'l2', ElasticNet(l1_ratio) or another Penalty, got {penalty!r}")
    if not positive:
        return penalty
    if not hasattr(penalty, "positive"):
        raise ParameterError(f"positive_code=True needs a penalty that can be positive, which {penalty!r} cannot")
    return replace(penalty, positive=True)  # type: ignore[type-var]
