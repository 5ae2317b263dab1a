r"""Rows that each observe features of their own.

Row i sees the features S_i only: its Gram matrix is the sum over them of :math:`d_f d_f'`. Where few are missing it is
the Gram matrix of all features less that of the missing ones, where few are there it is their own; either way the cost
is that of the smaller set. Products need no care: a missing value set to zero adds nothing to them.
"""

import numpy as np

from terafactor.kernels.blas import add_upper_square
from terafactor.kernels.jit import jit
from terafactor.kernels.statistics import add_rounding

PANEL = 512
"""Features whose products are summed in the precision of the data; sums of panels are added in float64."""


@jit
def split_missing(values, observed, per_feature):
    """``observed = ~np.isnan(values); values[~observed] = 0; per_feature = observed.sum(axis=0)``.

    values (b, s) in/out; observed (b, s), per_feature (s,) out. Returns how many entries are missing.
    """
    n_rows, n_features = values.shape
    n_missing = 0
    for i in range(n_features):
        per_feature[i] = 0
    for row in range(n_rows):
        entries, seen = values[row], observed[row]
        for i in range(n_features):
            seen[i] = entries[i] == entries[i]
        n_observed = 0
        for i in range(n_features):
            n_observed += seen[i]
            per_feature[i] += seen[i]
        n_missing += n_features - n_observed
        if n_observed < n_features:
            for i in range(n_features):
                if not seen[i]:
                    entries[i] = 0
    return n_missing


@jit
def row_grams(syrk, features, observed, gram, precision, start, stop, grams):
    """``grams[i - start] = features[observed[i]].T @ features[observed[i]]`` for rows i from start to stop.

    syrk: address of BLAS; features (s, k): the atoms, transposed; observed (b, s); gram (k, k): that of all features,
    float64; precision: relative error of one operation; grams (n, k, k) out, float64, made definite as in
    :func:`~terafactor.kernels.statistics.add_grams`. A Gram matrix less most of itself would be little but rounding,
    so each row decides which of the two sums to make.
    """
    n_features, k = features.shape
    panel, part = np.empty((PANEL, k), features.dtype), np.empty((k, k), features.dtype)
    chosen = np.empty(n_features + 1, np.int64)
    for row in range(start, stop):
        seen, out = observed[row], grams[row - start]
        n_observed = 0
        for i in range(n_features):
            n_observed += seen[i]
        subtract = 2 * n_observed >= n_features
        n_chosen = 0
        for i in range(n_features):  # without a branch, which would be guessed wrong every other time
            chosen[n_chosen] = i
            n_chosen += seen[i] != subtract
        for a in range(k):
            for b in range(k):
                out[a, b] = gram[a, b] if subtract else 0.0
        for first in range(0, n_chosen, PANEL):
            last = min(first + PANEL, n_chosen)
            for place in range(first, last):
                source, target = features[chosen[place]], panel[place - first]
                for j in range(k):
                    target[j] = source[j]
            add_upper_square(syrk, panel[: last - first], 0.0, part)
            for a in range(k):
                for b in range(a, k):
                    out[a, b] += -part[a, b] if subtract else part[a, b]
        for a in range(k):
            for b in range(a):
                out[a, b] = out[b, a]
        if not subtract:
            add_rounding(out, precision)
