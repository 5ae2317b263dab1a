"""Codes with a given number of nonzero entries, by orthogonal matching pursuit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.jit import jit
from terafactor.problem.penalties.penalty import Penalty
from terafactor.problem.registry import register

DEPENDENT = 1e-10
"""Squared distance of an atom from the span of those selected, relative to its squared norm, below which it is not
selected."""


@register
@dataclass(frozen=True)
class OMP(Penalty):
    """Allow at most ``n_nonzero`` nonzero codes per row: Omega is 0 there, and infinite elsewhere.

    Orthogonal matching pursuit selects one atom at a time, the one with the largest correlation with the residual, and
    solves the least squares problem on the selected atoms. The problem is not convex: codes are a good approximation.
    alpha has no effect.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import OMP
    >>> OMP(1).codes(np.eye(3), np.array([[0.5, -2.0, 1.0]]), 0.0, 1e-6)
    array([[ 0., -2.,  0.]])
    """

    n_nonzero: int = 10
    """Nonzero codes per row, at most."""

    has_strength: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (is_number(self.n_nonzero) and int(self.n_nonzero) == self.n_nonzero and self.n_nonzero >= 1):
            raise ParameterError(f"n_nonzero must be an integer >= 1, got {self.n_nonzero!r}")

    def value(self, codes: Array) -> Array:
        return np.zeros(len(codes))

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        codes, grams = np.zeros(products.shape), gram if gram.ndim == 3 else gram[np.newaxis]
        pursue(grams, products, min(int(self.n_nonzero), products.shape[1]), True, codes)
        return codes

    def violation(self, gram: Array, products: Array, strength: Any, codes: Array) -> Array:
        """Return the largest correlation of the residual with a selected atom: 0 for a least squares solution.

        gram : (k, k) or (b, k, k). products, codes : (b, k). The result is (b,).
        """
        gradient = products - np.einsum("...i,...ij->...j", codes, gram)
        return np.where(codes != 0, np.abs(gradient), 0.0).max(axis=1)


@jit
def pursue(grams, products, n_nonzero, greedy, codes):
    """Select atoms and solve least squares on them: ``codes[i, S] = solve(G[S, S], products[i, S])``.

    grams (b, k, k) or (1, k, k) if all rows share one; products (b, k); codes (b, k) out, zero on entry. greedy: select
    by the correlation with the residual, updated after each atom; otherwise by that with the row itself. The Cholesky
    factor L of G[S, S] grows by one row per atom (Rubinstein, Zibulevsky and Elad, 2008).
    """
    n_rows, k = products.shape
    selected, correlation, solution = np.empty(n_nonzero, np.int64), np.empty(k), np.empty(n_nonzero)
    factor, forward, free = np.zeros((n_nonzero, n_nonzero)), np.empty(n_nonzero), np.empty(k, np.bool_)
    for row in range(n_rows):
        gram, wanted, n = grams[row if len(grams) > 1 else 0], products[row], 0
        for j in range(k):
            correlation[j], free[j] = wanted[j], gram[j, j] > 0.0
        while n < n_nonzero:
            best, largest = -1, 0.0
            for j in range(k):  # ties: the first
                if free[j] and correlation[j] ** 2 / gram[j, j] > largest:
                    best, largest = j, correlation[j] ** 2 / gram[j, j]
            if best < 0:
                break
            free[best] = False
            pivot = gram[best, best]
            for i in range(n):  # new row of L: solve L w = G[S, best]
                total = gram[best, selected[i]]
                for h in range(i):
                    total -= factor[i, h] * factor[n, h]
                factor[n, i] = total / factor[i, i]
                pivot -= factor[n, i] ** 2
            if pivot <= DEPENDENT * gram[best, best]:
                continue
            factor[n, n] = np.sqrt(pivot)
            total = wanted[best]
            for i in range(n):
                total -= factor[n, i] * forward[i]
            forward[n] = total / factor[n, n]  # L forward = products[S]
            selected[n] = best
            n += 1
            if greedy and n < n_nonzero:
                back_substitute(factor, forward, n, solution)
                update_correlation(gram, wanted, selected, solution, n, correlation)
        back_substitute(factor, forward, n, solution)
        for i in range(n):
            codes[row, selected[i]] = solution[i]


@jit
def back_substitute(factor, forward, n, solution):
    """``solution = np.linalg.solve(L.T, forward)``. factor (n, n): L, lower triangle; solution (n,) out."""
    for i in range(n - 1, -1, -1):
        total = forward[i]
        for h in range(i + 1, n):
            total -= factor[h, i] * solution[h]
        solution[i] = total / factor[i, i]


@jit
def update_correlation(gram, products, selected, solution, n, correlation):
    """``correlation = products - solution @ gram[selected]`` (k,) out."""
    for j in range(len(correlation)):
        correlation[j] = products[j]
    for i in range(n):
        atom, code = gram[selected[i]], solution[i]
        for j in range(len(correlation)):
            correlation[j] -= code * atom[j]
