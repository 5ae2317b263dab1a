"""The elastic net: lasso, ridge, and mixtures of both."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from terafactor._checks import check_flag
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.codes import elastic_net_codes, ridge_codes, signed_start
from terafactor.kernels.solve import solve_rows
from terafactor.problem.penalties.penalty import AUTO_ALPHA_SHARE, Penalty
from terafactor.problem.registry import PENALTIES, register

logger = logging.getLogger(__name__)

MAX_PASSES = 1000
"""Most passes of coordinate descent."""

RIDGE_SHARE = 0.1
"""``alpha="auto"`` of ridge codes, relative to the squared norm of an atom: it shrinks codes by a tenth."""


@register
@dataclass(frozen=True)
class ElasticNet(Penalty):
    r"""Omega(a) = l1_ratio * |a|_1 + (1 - l1_ratio) / 2 * |a|_2^2.

    The lasso penalty is ``ElasticNet(1)`` or "l1", the ridge penalty ``ElasticNet(0)`` or "l2".

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import ElasticNet
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

    @property
    def is_sparse(self) -> bool:
        return self.l1_ratio > 0

    def value(self, codes: Array) -> Array:
        values = codes.astype(np.float64, copy=False)
        absolute, squares = np.abs(values).sum(axis=1), np.einsum("ij,ij->i", values, values)
        return self.l1_ratio * absolute + 0.5 * (1 - self.l1_ratio) * squares

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
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

    def violation(self, gram: Array, products: Array, strength: Any, codes: Array) -> Array:
        strengths = np.reshape(strength, (-1, 1))
        l1, l2 = self.l1_ratio * strengths, (1 - self.l1_ratio) * strengths
        slope = products - np.einsum("...i,...ij->...j", codes, gram) - l2 * codes
        active = np.abs(slope - l1 * np.sign(codes))
        inactive = np.maximum((slope if self.positive else np.abs(slope)) - l1, 0.0)
        return np.where(codes != 0, active, inactive).max(axis=1)

    def zero_strength(self, products: Array) -> Array:
        if self.l1_ratio == 0:
            return np.full(len(products), np.inf)
        largest = (products if self.positive else np.abs(products)).max(axis=1)
        return np.maximum(largest, 0.0) / self.l1_ratio

    def auto_alpha(self, zero_strength: float, atom_energy: float) -> float:
        """Return the rule of the l1 norm or of the ridge, the weaker of the two for a mixture."""
        lasso = AUTO_ALPHA_SHARE * zero_strength if self.l1_ratio > 0 else np.inf
        ridge = RIDGE_SHARE * atom_energy / (1 - self.l1_ratio) if self.l1_ratio < 1 else np.inf
        return float(min(lasso, ridge))


PENALTIES |= {"l1": partial(ElasticNet, 1.0), "l2": partial(ElasticNet, 0.0)}
