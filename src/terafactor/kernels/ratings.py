r"""Codes of users and statistics of items, for ratings.

A row of factors is a vector d of k numbers and the variance of each, by how much d is still uncertain. The code of a
user with ratings x_1, ... of the items d_1, ... minimises

.. math:: \sum_i (x_i - a \cdot d_i)^2 + \sum_i a' \mathrm{diag}(v_i) a + n \alpha |a|^2 + \nu (a - m)' P (a - m)

with :math:`\nu` the variance of the noise and m, P mean and precision of what codes look like before any rating is
known. Items are solved for in the same way, from the codes of their users. Both are one symmetric system per row: the
Gram matrix of gathered factors with the ratings as one more column, eliminated in place.

Rows are ``width`` numbers long, k + 1 rounded up to ``LANES``, so that every loop over a row fills whole registers.
"""

from __future__ import annotations

import numpy as np

from terafactor.kernels.blas import add_upper_square
from terafactor.kernels.jit import jit
from terafactor.kernels.solve import eliminate, read_solution

PANEL = 256
"""Ratings gathered at once: with k = 30 they fill half of a first-level cache."""

LANES = 8
"""Numbers that fill a register of float32: rows of factors are padded to a multiple."""


def row_width(n_components: int) -> int:
    """Return the length of a padded row that has room for k factors and a rating."""
    return -(-(n_components + 1) // LANES) * LANES


@jit
def collect(syrk, factors, variances, chosen, values, first, last, panel, system, spread):
    """Put the sum over ratings of [d, x]' [d, x] in the upper triangle of ``system``, that of variances in ``spread``.

    factors, variances (m, width); chosen, values (n,): row and rating of the n ratings, of which those from first to
    last count; panel (PANEL, width): scratch; system (width, width) out, with the products of
    factors and ratings in column k, spread (width,) out.
    """
    width = factors.shape[1]
    rating = width - 1
    for j in range(width):
        spread[j] = 0
    for start in range(first, last, PANEL):
        n_rows = min(PANEL, last - start)
        for place in range(n_rows):
            row = chosen[start + place]
            factor, variance, target = factors[row], variances[row], panel[place]
            for j in range(width):
                target[j] = factor[j]
                spread[j] += variance[j]
            target[rating] = values[start + place]
        add_upper_square(syrk, panel[:n_rows], 0.0 if start == first else 1.0, system)


@jit
def penalize(system, spread, ridge, precision, pull, mean, n_components):
    """Add to an upper triangle what does not come from ratings, and to its right-hand side (last column) the pull."""
    last = system.shape[1] - 1
    for i in range(n_components):
        for j in range(i, n_components):
            system[i, j] += precision[i, j]
        system[i, i] += spread[i] + ridge
        system[i, last] += pull[i] + ridge * mean[i]


@jit
def code_users(
    syrk, factors, variances, starts, items, values, alpha, precision, pull, mean, noise, n_components, start, stop,
    codes, code_variances, errors,
):  # fmt: skip
    """Code the users from start to stop.

    factors, variances (p, width) of items; starts (b + 1,), items, values: ratings by user; precision (width, width)
    and pull (width,): noise * P and noise * P m; mean (width,): m; codes, code_variances (b, width) out, the mean and
    zero for a user without ratings; errors (b,) out: expected sum of squared errors over the user's ratings.
    """
    width = factors.shape[1]
    system = np.empty((width, width), factors.dtype)
    panel, spread = np.empty((PANEL, width), factors.dtype), np.empty(width, factors.dtype)
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
        collect(syrk, factors, variances, items, values, first, last, panel, system, spread)
        for j in range(width):
            right[j] = system[j, width - 1]
        penalize(system, spread, alpha * system.dtype.type(last - first), precision, pull, mean, n_components)
        eliminate(system, n_components)
        read_solution(system, n_components, noise, code, code_variances[user])
        error = right[width - 1]
        for j in range(n_components):
            error -= code[j] * right[j] + (code[j] - mean[j]) * pull[j]
        errors[user] = max(error, system.dtype.type(0))


@jit
def absorb_items(
    syrk, codes, code_variances, starts, users, values, present, memory, totals, alpha, precision, pull, mean, noise,
    n_components, start, stop, statistics, weights, counts, factors, variances,
):  # fmt: skip
    """Take the codes of a batch into the statistics of its items from start to stop, and solve for these items.

    starts (q + 1,), users, values: ratings of the batch by item; present (q,): number of each item; memory: passes over
    the data after which statistics have decayed to 1 / e; totals (p,): how many ratings each item has in all;
    statistics (p, width, width) in/out: upper triangles of decayed sums over users of [a, x]' [a, x], variances of a
    included; weights (p,) in/out: decayed number of ratings in them; counts (p,)
    in/out: ratings seen, at most ``totals``; factors, variances (p, width) out.
    """
    width = codes.shape[1]
    system = np.empty((width, width), codes.dtype)
    panel, spread = np.empty((PANEL, width), codes.dtype), np.empty(width, codes.dtype)
    for place in range(start, stop):
        item, first, last = present[place], starts[place], starts[place + 1]
        collect(syrk, codes, code_variances, users, values, first, last, panel, system, spread)
        counts[item] = min(counts[item] + last - first, totals[item])
        decay = system.dtype.type(np.exp(-(last - first) / (memory * totals[item])))
        weights[item] = decay * weights[item] + (last - first)
        scale = system.dtype.type(counts[item] / weights[item])
        statistic = statistics[item]
        for i in range(width):
            system[i, i] += spread[i]
            for j in range(i, width):
                statistic[i, j] = decay * statistic[i, j] + system[i, j]
                system[i, j] = scale * statistic[i, j]
        for j in range(width):
            spread[j] = 0
        penalize(system, spread, alpha * system.dtype.type(counts[item]), precision, pull, mean, n_components)
        eliminate(system, n_components)
        read_solution(system, n_components, noise, factors[item], variances[item])
