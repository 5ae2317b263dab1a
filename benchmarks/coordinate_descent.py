"""Coordinate descent for matrix completion (Yu et al. 2012, CCD++), the baseline of the paper's table 1.

Minimizes ``sum over ratings of (x - w h)^2 + penalty * (sum_u count_u |w_u|^2 + sum_i count_i |h_i|^2)``, one factor at
a time: all users, then all items. The residual is kept twice, by user and by item, so that every pass over it is
sequential; each copy takes in the other side's last change in the same pass that computes its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from terafactor._threads import Threads
from terafactor.kernels.jit import jit


@dataclass
class Side:
    """Users or items: their ratings, residuals and factors."""

    starts: np.ndarray
    """Where the ratings of each begin (n + 1,)."""

    others: np.ndarray
    """Index of the other side for each rating, int32."""

    residual: np.ndarray
    """Residual of each rating, float32."""

    factors: np.ndarray
    """(k, n), float32."""

    change: np.ndarray
    """Last change of a factor (n,)."""

    @classmethod
    def of(cls, matrix: csr_array, factors: np.ndarray) -> Side:
        """Return one side of a matrix that has it as rows."""
        starts, others = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        return cls(starts, others, matrix.data.astype(np.float32), factors, np.zeros(factors.shape[1], np.float32))


@jit
def update_factor(starts, others, residual, own, theirs, carried, pending, penalty, first, last, change):
    """Update one factor of rows first <= i < last: ``own_i = argmin sum (r_i + own_i theirs - x theirs)^2 + ...``.

    residual, own, change: in/out. ``carried_i * pending_j`` is subtracted first: the other side's last change.
    """
    for i in range(first, last):
        product, square = np.float32(0), np.float32(0)
        for e in range(starts[i], starts[i + 1]):
            residual[e] -= carried[i] * pending[others[e]]
            other = theirs[others[e]]
            product += residual[e] * other
            square += other * other
        weight = penalty * (starts[i + 1] - starts[i]) + square
        change[i] = (product + own[i] * square) / weight - own[i] if weight > 0 else np.float32(0)
        own[i] += change[i]
        for e in range(starts[i], starts[i + 1]):
            residual[e] -= change[i] * theirs[others[e]]


def coordinate_descent(
    matrix: csr_array,
    n_components: int,
    penalty: float,
    n_cycles: int,
    after_cycle: Callable[[np.ndarray, np.ndarray], bool | None],
    *,
    seed: int = 0,
    n_threads: int = 1,
) -> None:
    """Complete a sparse matrix of centered ratings.

    Parameters
    ----------
    matrix : csr_array of shape (n_users, n_items)
    n_components : int
    penalty : float
        Strength per rating, lambda of the paper's eq. (mmmf).
    n_cycles : int
        Passes over all factors.
    after_cycle : callable
        Called with the factors of users (k, n_users) and of items (k, n_items); returning True stops.
    seed, n_threads : int
    """
    random = np.random.default_rng(seed)
    n_users, n_items = matrix.shape
    users = Side.of(matrix, np.zeros((n_components, n_users), np.float32))
    items = Side.of(matrix.T.tocsr(), 0.1 * random.standard_normal((n_components, n_items), np.float32))
    carried = np.zeros(n_users, np.float32)
    with Threads(n_threads) as executor:
        for _ in range(n_cycles):
            for factor in range(n_components):
                _update(users, items, factor, carried, penalty, executor)
                _update(items, users, factor, items.factors[factor], penalty, executor)
                carried = users.factors[factor]
            if after_cycle(users.factors, items.factors):
                break


def _update(side: Side, other: Side, factor: int, carried: np.ndarray, penalty: float, executor: Threads) -> None:
    own, theirs, strength = side.factors[factor], other.factors[factor], np.float32(penalty)
    share = np.linspace(0, side.starts[-1], executor.n_threads + 1)
    borders = np.searchsorted(side.starts, share)
    borders[-1] = len(side.starts) - 1

    def part(rank: int, size: int) -> None:
        update_factor(
            side.starts, side.others, side.residual, own, theirs, carried, other.change, strength,
            borders[rank], borders[rank + 1], side.change,
        )  # fmt: skip

    executor.run_parallel(part, executor.n_threads)
