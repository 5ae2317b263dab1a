r"""Codes of rows that each observe features of their own.

Row i sees the features S_i only: its Gram matrix is the sum over them of :math:`d_f d_f'`. Where few are missing it is
the Gram matrix of all features less that of the missing ones, where few are there it is their own; either way the cost
is that of the smaller set. Correlations need no care: a missing value set to zero adds nothing to them.
"""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.kernels._bytes import find_unlike
from terafactor.kernels._dots import inner_products
from terafactor.kernels._jit import jit
from terafactor.kernels.coding import descend_row, least_ridge

PANEL = 512
"""Features whose products are summed in the precision of the data; sums of panels are added in float64."""

MANY = 1 / 16
"""Share of entries above which it is slower to look for them one by one than to treat all alike."""


@jit
def split_missing(values, observed, per_feature):
    """Set NaN to zero in ``values`` (b, s) and mark the rest in ``observed`` (b, s); return how many NaN there were.

    per_feature (s,) out: rows in which each feature has a value. Each row is treated as the one before it suggests.
    """
    n_rows, n_features = values.shape
    places, n_missing, many = np.empty(n_features, np.int64), 0, False
    per_feature[:] = n_rows
    for row in range(n_rows):
        entries, seen, first = values[row], observed[row], row * n_features
        for i in range(n_features):
            seen[i] = entries[i] == entries[i]
        found = 0
        if many:
            for i in range(n_features):
                missing = entries[i] != entries[i]
                per_feature[i] -= missing
                found += missing
                entries[i] = 0 if missing else entries[i]
        else:
            found = find_unlike(observed, first, first + n_features, True, places)
            for i in range(found):
                entries[places[i] - first] = 0
                per_feature[places[i] - first] -= 1
        many = found > MANY * n_features
        n_missing += found
    return n_missing


def exceptions(observed: Array) -> tuple[Array, Indices, Indices]:
    """Return whether most entries of each row of ``observed`` (b, s) are True, (b,), and where its others are.

    The list is that of all rows, one after the other, as places in the flattened matrix; the last array (b + 1,) says
    where in it each row begins. A Gram matrix less most of itself would be little but rounding, so each row decides.
    """
    n_rows, n_features = observed.shape
    n_observed = np.array([np.count_nonzero(row) for row in observed])  # along an axis it takes seven times as long
    few_missing = 2 * n_observed >= n_features
    starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.where(few_missing, n_features - n_observed, n_observed), out=starts[1:])
    if starts[-1] > MANY * observed.size:
        return few_missing, np.flatnonzero(observed != few_missing[:, np.newaxis]), starts
    places = np.empty(starts[-1], np.int64)
    list_exceptions(observed, few_missing, starts, places)
    return few_missing, places, starts


@jit
def list_exceptions(observed, usual, starts, places):
    """Put in ``places[starts[i] : starts[i + 1]]`` where row i of ``observed`` (b, s) is not ``usual[i]``."""
    n_rows, n_features = observed.shape
    for row in range(n_rows):
        find_unlike(observed, row * n_features, (row + 1) * n_features, usual[row], places[starts[row] :])


@jit
def row_gram(atoms, few_missing, places, first, everything, gram, panel, part):
    """Put the Gram matrix of the observed features of one row in ``gram`` (k, k), float64.

    atoms (k, s); few_missing, places: the row's part of what :func:`exceptions` tells, places in the flattened matrix;
    first: that of the row's first feature; everything (k, k): the Gram matrix of all features; panel (k, PANEL) and
    part (k, k): scratch in the precision of the atoms.
    """
    n_components = len(atoms)
    chosen = np.empty(PANEL, np.uint64)  # an index that may be negative costs a comparison
    sign = -1.0 if few_missing else 1.0
    for j in range(n_components):
        for i in range(n_components):
            gram[j, i] = everything[j, i] if few_missing else 0.0
    for start in range(0, len(places), PANEL):
        n_chosen = min(PANEL, len(places) - start)
        for i in range(n_chosen):
            chosen[i] = places[start + i] - first
        for j in range(n_components):
            source, target = atoms[j], panel[j]
            for i in range(n_chosen):
                target[i] = source[chosen[i]]
        inner_products(panel, 0, n_chosen, part)
        for j in range(n_components):
            for i in range(n_components):
                gram[j, i] += sign * part[j, i]


@jit
def solve_positive(system, right, least):
    """Solve ``system @ x = right`` in place, by Cholesky's method. system (k, k), overwritten; right (k,) in/out.

    least: a positive bound of the eigenvalues from below, and thus of squared pivots, which rounding may take under it.
    """
    n = len(right)
    for j in range(n):
        for i in range(j):
            total = system[j, i]
            for h in range(i):
                total -= system[j, h] * system[i, h]
            system[j, i] = total / system[i, i]
        pivot = system[j, j]
        for h in range(j):
            pivot -= system[j, h] * system[j, h]
        system[j, j] = np.sqrt(max(pivot, least))
    for j in range(n):
        for h in range(j):
            right[j] -= system[j, h] * right[h]
        right[j] /= system[j, j]
    for j in range(n - 1, -1, -1):
        for h in range(j + 1, n):
            right[j] -= system[h, j] * right[h]
        right[j] /= system[j, j]


@jit
def code_rows(
    atoms, few_missing, places, starts, everything, correlations, alpha, l1_ratio, n_features, positive,
    tolerance, max_passes, start, stop, codes, unfinished,
):  # fmt: skip
    """Code the rows from start to stop, each with its own Gram matrix and strength ``alpha * s_i / p``.

    atoms (k, s); few_missing, places, starts: what :func:`exceptions` tells of the rows;
    everything (k, k): Gram matrix of all features; correlations (b, k); n_features: p; codes (b, k) out, zero for a
    row without any value; unfinished (b,) out.
    """
    n_components, width = atoms.shape
    gram, gradient = np.empty((n_components, n_components)), np.empty(n_components)
    part = np.empty((n_components, n_components), atoms.dtype)
    panel = np.empty((n_components, PANEL), atoms.dtype)
    precision = float(np.finfo(atoms.dtype).eps)
    least_of_all = least_ridge(everything, precision)
    for row in range(start, stop):
        code = codes[row]
        code[:] = 0.0
        mine = places[starts[row] : starts[row + 1]]
        n_observed = width - len(mine) if few_missing[row] else len(mine)
        if n_observed == 0:
            continue
        row_gram(atoms, few_missing[row], mine, row * width, everything, gram, panel, part)
        strength = alpha * n_observed / n_features
        least = least_of_all if few_missing[row] else least_ridge(gram, precision)
        l1, l2 = strength * l1_ratio, max(strength * (1.0 - l1_ratio), least)
        if l2 == 0.0:  # no atom has an entry there
            continue
        if l1 == 0.0 and not positive:
            code[:] = correlations[row]
            for j in range(n_components):
                gram[j, j] += l2
            solve_positive(gram, code, l2)
        else:
            gradient[:] = correlations[row]
            unfinished[row] = descend_row(
                gram, correlations[row], l1, l2, positive, tolerance, max_passes, code, gradient
            )
