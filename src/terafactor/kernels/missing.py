r"""Codes of rows that each observe features of their own.

Row i sees the features S_i only: its Gram matrix is the sum over them of :math:`d_f d_f'`. Where few are missing it is
the Gram matrix of all features less that of the missing ones, where few are there it is their own; either way the cost
is that of the smaller set. Correlations need no care: a missing value set to zero adds nothing to them.
"""

import numpy as np

from terafactor.kernels._blas import transposed_square
from terafactor.kernels._jit import jit
from terafactor.kernels.coding import descend_row

PANEL = 512
"""Features whose products are summed in the precision of the data; sums of panels are added in float64."""

JITTER = 1e-12
"""Added to the diagonal, relative to its mean, of a system without ridge that fewer features than atoms leave open."""


@jit
def split_missing(values, observed):
    """Set NaN to zero in ``values`` (b, s) and mark the rest in ``observed`` (b, s); return how many NaN there were."""
    n_missing = 0
    for row in range(len(values)):
        entries, seen = values[row], observed[row]
        for i in range(len(entries)):
            there = entries[i] == entries[i]
            seen[i] = there
            if not there:
                entries[i] = 0
                n_missing += 1
    return n_missing


@jit
def add_outer_products(syrk, features, chosen, sign, gram, panel, part):
    """``gram += sign * features[chosen].T @ features[chosen]``. features (s, k); gram (k, k) float64, in/out.

    syrk: address of BLAS; panel (PANEL, k) and part (k, k): scratch in the precision of the features.
    """
    n_components = features.shape[1]
    for start in range(0, len(chosen), PANEL):
        n_chosen = min(PANEL, len(chosen) - start)
        for i in range(n_chosen):
            panel[i] = features[chosen[start + i]]
        transposed_square(syrk, n_components, n_chosen, panel, 0, n_components, part, 0, n_components)
        for j in range(n_components):
            for i in range(j + 1):
                gram[j, i] += sign * part[j, i]


@jit
def row_gram(syrk, features, observed, everything, gram, panel, part, chosen):
    """Put the Gram matrix of the observed features of one row in ``gram`` (k, k); return how many these are.

    features (s, k); observed (s,); everything (k, k): the Gram matrix of all features; chosen (s,): scratch.
    """
    n_observed = 0
    for i in range(len(observed)):
        n_observed += observed[i]
    few_missing = 2 * n_observed >= len(observed)
    count = 0
    for i in range(len(observed)):
        if observed[i] != few_missing:
            chosen[count] = i
            count += 1
    gram[:] = everything if few_missing else np.zeros_like(everything)
    add_outer_products(syrk, features, chosen[:count], -1.0 if few_missing else 1.0, gram, panel, part)
    for j in range(len(gram)):
        for i in range(j):
            gram[i, j] = gram[j, i]
    return n_observed


@jit
def solve_positive(system, right):
    """Solve ``system @ x = right`` in place, by Cholesky's method. system (k, k), overwritten; right (k,) in/out."""
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
        system[j, j] = np.sqrt(max(pivot, 1e-300))
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
    syrk, features, observed, everything, correlations, alpha, l1_ratio, n_features, positive,
    tolerance, max_passes, start, stop, codes, unfinished,
):  # fmt: skip
    """Code the rows from start to stop, each with its own Gram matrix and strength ``alpha * s_i / p``.

    features (s, k): the atoms, transposed; observed (b, s); everything (k, k): Gram matrix of all features;
    correlations (b, k); n_features: p; codes (b, k) out, zero for a row without any value; unfinished (b,) out.
    """
    n_components = features.shape[1]
    gram, gradient = np.empty((n_components, n_components)), np.empty(n_components)
    panel, part = (
        np.empty((PANEL, n_components), features.dtype),
        np.empty((n_components, n_components), features.dtype),
    )
    chosen = np.empty(features.shape[0], np.int64)
    for row in range(start, stop):
        code = codes[row]
        code[:] = 0.0
        n_observed = row_gram(syrk, features, observed[row], everything, gram, panel, part, chosen)
        if n_observed == 0:
            continue
        strength = alpha * n_observed / n_features
        l1, l2 = strength * l1_ratio, strength * (1.0 - l1_ratio)
        if l1 == 0.0 and not positive:
            code[:] = correlations[row]
            ridge = max(l2, JITTER * np.trace(gram) / n_components)
            for j in range(n_components):
                gram[j, j] += ridge
            solve_positive(gram, code)
        else:
            unfinished[row] = descend_row(
                gram, correlations[row], l1, l2, positive, tolerance, max_passes, code, gradient
            )
