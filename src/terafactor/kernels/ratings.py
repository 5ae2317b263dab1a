r"""Codes of users, and statistics and factors of items.

The factors of an item are a vector d of length k, with a posterior variance v per entry. The code a of a user who
gave the ratings x_1, ..., x_n to items with factors d_1, ..., d_n minimizes

.. math:: \sum_i (x_i - a \cdot d_i)^2 + \sum_i a' \mathrm{diag}(v_i) a + n \alpha |a - m|^2 + \nu (a - m)' P (a - m)

where :math:`\nu` is the noise variance and m, P are the mean and the precision of the prior. Items are solved for in
the same way, from the codes of their users. Each row is one symmetric system: the Gram matrix of the gathered factors
with the ratings as an additional column, eliminated in place.

Rows have ``width`` entries, k + 1 rounded up to ``SIMD_WIDTH``, so that loops over a row fill whole registers.
"""

from __future__ import annotations

import numpy as np

from terafactor.kernels.blas import add_upper_square
from terafactor.kernels.jit import jit
from terafactor.kernels.solve import eliminate, read_solution

GATHER_ROWS = 256
"""Ratings gathered at once: with k = 30 they fill half of a first-level cache."""

SIMD_WIDTH = 8
"""float32 values per register: rows of factors are padded to a multiple of it."""


def row_width(n_components: int) -> int:
    """Return the length of a padded row: k factors, a rating and zeros."""
    return -(-(n_components + 1) // SIMD_WIDTH) * SIMD_WIDTH


@jit
def accumulate_gram(syrk, factors, variances, chosen, values, first, last, panel, system, variance_sum):
    """Compute ``system = [D, x]' [D, x]`` (upper triangle) and ``variance_sum`` over the ratings from first to last.

    factors, variances (m, width); chosen, values (n,): row of the factors and rating; panel (GATHER_ROWS, width):
    scratch; system (width, width) out, with the products of factors and ratings in the last column; variance_sum
    (width,) out.
    """
    width = factors.shape[1]
    rating = width - 1
    for j in range(width):
        variance_sum[j] = 0
    if first == last:
        for i in range(width):
            for j in range(width):
                system[i, j] = 0
    for start in range(first, last, GATHER_ROWS):
        n_rows = min(GATHER_ROWS, last - start)
        for place in range(n_rows):
            row = chosen[start + place]
            factor, variance, target = factors[row], variances[row], panel[place]
            for j in range(width):
                target[j] = factor[j]
                variance_sum[j] += variance[j]
            target[rating] = values[start + place]
        add_upper_square(syrk, panel[:n_rows], 0.0 if start == first else 1.0, system)


@jit
def add_prior(system, variance_sum, ridge, precision, linear, mean, n_components):
    """Add variances, ridge and prior to a system (upper triangle) and to its right-hand side (last column).

    precision (width, width) and linear (width,): noise * P and noise * P m; mean (width,): m.
    """
    last = system.shape[1] - 1
    for i in range(n_components):
        for j in range(i, n_components):
            system[i, j] += precision[i, j]
        system[i, i] += variance_sum[i] + ridge
        system[i, last] += linear[i] + ridge * mean[i]


@jit
def code_users(
    syrk, factors, variances, starts, items, values, alpha, precision, linear, mean, noise, n_components, start, stop,
    codes, code_variances, errors,
):  # fmt: skip
    """Compute the codes of the users from start to stop.

    factors, variances (p, width) of items; starts (b + 1,), items, values: ratings by user; alpha: ridge per rating;
    precision, linear, mean: see :func:`add_prior`; codes, code_variances (b, width) out, mean and zero without
    ratings; errors (b,) out: expected sum of squared errors over the ratings of each user.
    """
    width = factors.shape[1]
    system = np.empty((width, width), factors.dtype)
    panel, variance_sum = np.empty((GATHER_ROWS, width), factors.dtype), np.empty(width, factors.dtype)
    right = np.empty(width, factors.dtype)
    for user in range(start, stop):
        first, last = starts[user], starts[user + 1]
        code = codes[user]
        if first == last:
            for j in range(width):
                code[j] = mean[j]
                code_variances[user, j] = 0
            errors[user] = 0
            continue
        accumulate_gram(syrk, factors, variances, items, values, first, last, panel, system, variance_sum)
        for j in range(width):
            right[j] = system[j, width - 1]
        add_prior(system, variance_sum, alpha * system.dtype.type(last - first), precision, linear, mean, n_components)
        eliminate(system, n_components)
        read_solution(system, n_components, noise, code, code_variances[user])
        error = right[width - 1]
        for j in range(n_components):
            error -= code[j] * right[j] + (code[j] - mean[j]) * linear[j]
        errors[user] = max(error, system.dtype.type(0))


@jit
def update_items(
    syrk, codes, code_variances, starts, users, values, present, memory, totals, alpha, precision, linear, mean, noise,
    n_components, start, stop, statistics, weights, counts, factors, variances,
):  # fmt: skip
    """Add the codes of a batch to the statistics of its items from start to stop, and solve for these items.

    starts (q + 1,), users, values: ratings of the batch by item; present (q,): number of each item; memory: passes over
    the data in which statistics decay to 1 / e; totals (p,): ratings of each item in all; statistics (p, width, width)
    in/out: upper triangles of the decayed sums of [a, x]' [a, x] over users, variances of a included; weights (p,)
    in/out: decayed number of ratings in them; counts (p,) in/out: ratings seen, at most ``totals``; factors, variances
    (p, width) out.
    """
    width = codes.shape[1]
    system = np.empty((width, width), codes.dtype)
    panel, variance_sum = np.empty((GATHER_ROWS, width), codes.dtype), np.empty(width, codes.dtype)
    for place in range(start, stop):
        item, first, last = present[place], starts[place], starts[place + 1]
        accumulate_gram(syrk, codes, code_variances, users, values, first, last, panel, system, variance_sum)
        counts[item] = min(counts[item] + last - first, totals[item])
        decay = system.dtype.type(np.exp(-(last - first) / (memory * totals[item])))
        weights[item] = decay * weights[item] + (last - first)
        scale = system.dtype.type(counts[item] / weights[item])
        statistic = statistics[item]
        for i in range(width):
            system[i, i] += variance_sum[i]
            for j in range(i, width):
                statistic[i, j] = decay * statistic[i, j] + system[i, j]
                system[i, j] = scale * statistic[i, j]
        for j in range(width):
            variance_sum[j] = 0  # the statistics contain the variances
        add_prior(system, variance_sum, alpha * system.dtype.type(counts[item]), precision, linear, mean, n_components)
        eliminate(system, n_components)
        read_solution(system, n_components, noise, factors[item], variances[item])
