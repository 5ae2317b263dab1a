"""Codes on the atoms that correlate most with a row: one selection, one least squares problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.problem.penalties.omp import OMP, pursue
from terafactor.problem.registry import register


@register
@dataclass(frozen=True)
class TopK(OMP):
    """Allow ``n_nonzero`` nonzero codes per row, on the atoms with the largest correlation with the row.

    Cheaper than :class:`OMP`, which selects again after each atom, and less accurate if atoms are correlated. alpha has
    no effect.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import TopK
    >>> TopK(2).codes(np.eye(3), np.array([[0.5, -2.0, 1.0]]), 0.0, 1e-6)
    array([[ 0., -2.,  1.]])
    """

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        codes, grams = np.zeros(products.shape), gram if gram.ndim == 3 else gram[np.newaxis]
        pursue(grams, products, min(int(self.n_nonzero), products.shape[1]), False, codes)
        return codes
