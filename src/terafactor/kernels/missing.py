r"""Rows with missing values: each observes its own set of features.

The Gram matrix of row i is the sum of :math:`d_f d_f'` over its observed features. Where most are observed, it is the
Gram matrix of all features minus that of the missing ones: the cost is that of the smaller set. Products need no care,
since missing values are set to zero.
"""

import numpy as np

from terafactor.kernels.blas import add_upper_square
from terafactor.kernels.jit import jit
from terafactor.kernels.statistics import add_rounding

GRAM_PANEL = 512
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
def row_grams(syrk, features, observed, gram, precision, grams):
    """``grams[i] = features[observed[i]].T @ features[observed[i]]``, regularized.

    syrk: address of BLAS; features (s, k): the atoms, transposed; observed (b, s); gram (k, k): that of all features,
    float64, regularized; precision: relative error of one operation; grams (b, k, k) out, float64. Each row subtracts
    or adds, whichever takes fewer features: what remains of a difference of nearly equal matrices is rounding error.
    """
    n_features, k = features.shape
    panel, part = np.empty((GRAM_PANEL, k), features.dtype), np.empty((k, k), features.dtype)
    chosen = np.empty(n_features + 1, np.int64)
    for row in range(len(observed)):
        seen, out = observed[row], grams[row]
        n_observed = 0
        for i in range(n_features):
            n_observed += seen[i]
        subtract = 2 * n_observed >= n_features
        n_chosen = 0
        for i in range(n_features):  # no branch: the processor would mispredict it
            chosen[n_chosen] = i
            n_chosen += seen[i] != subtract
        for a in range(k):
            for b in range(k):
                out[a, b] = gram[a, b] if subtract else 0.0
        for first in range(0, n_chosen, GRAM_PANEL):
            last = min(first + GRAM_PANEL, n_chosen)
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
