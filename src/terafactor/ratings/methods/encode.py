"""Codes of users from their ratings, given the factors of items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.blas import address
from terafactor.kernels.ratings import code_users
from terafactor.ratings.methods.prior import Prior

SOLVE_COST = 60
"""Cost of solving one system with k = 30, relative to that of gathering one rating."""


def encode(
    starts: Indices, items: Array, values: Array, factors: Array, variances: Array, prior: Prior, noise: float,
    alpha: float | None, threads: Threads,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return codes (b, width) of users, their variances (b, width) and expected squared errors (b,).

    starts (b + 1,), items, values: standardized ratings by user; factors, variances (p, width) of items.
    """
    n_users, width, k = len(starts) - 1, factors.shape[1], len(prior.mean)
    codes, code_variances = np.empty((2, n_users, width), np.float32)
    errors = np.empty(n_users, np.float32)
    precision, linear, mean = prior_arrays(prior, noise, width)
    syrk, ridge = address("syrk", factors.dtype), np.float32(alpha or 0)

    def code(start: int, stop: int) -> None:
        code_users(
            syrk, factors, variances, starts, items, values, ridge, precision, linear, mean, np.float32(noise), k,
            start, stop, codes, code_variances, errors,
        )  # fmt: skip

    split_by_ratings(code, starts, threads)
    return codes, code_variances, errors


def prior_arrays(prior: Prior, noise: float, width: int) -> tuple[Array, Array, Array]:
    """Return noise * P (width, width), noise * P m and m (width,), padded float32 arrays for the kernels."""
    k = len(prior.mean)
    precision, linear, mean = (np.zeros(shape, np.float32) for shape in ((width, width), width, width))
    precision[:k, :k] = noise * prior.precision
    linear[:k] = noise * (prior.precision @ prior.mean)
    mean[:k] = prior.mean
    return precision, linear, mean


def split_by_ratings(function: Callable[[int, int], object], starts: Indices, threads: Threads) -> None:
    """Call ``function(start, stop)`` on consecutive rows, one part per thread, balanced by the cost of their ratings.

    starts (b + 1,): start of the ratings of each row. Each row also costs the solution of its system.
    """
    cost = starts + SOLVE_COST * np.arange(len(starts))
    n_rows = len(starts) - 1

    def part(rank: int, size: int) -> None:
        first, last = np.searchsorted(cost, [rank * cost[-1] / size, (rank + 1) * cost[-1] / size])
        function(int(first), n_rows if rank + 1 == size else int(last))

    threads.run_parallel(part, n_rows)
