"""Moving features in and out of the working arrays, and the update of the statistics.

Matrices over features have the logical shape (k, p). Their memory order follows their use: masked fits keep each
feature contiguous (order "F"), so that visiting s features touches s short runs of memory, whatever p; fits that visit
every feature at each step keep each atom contiguous (order "C") and are updated in place.
"""

import numpy as np

from terafactor.kernels._jit import jit

BLOCK = 16
"""Features moved together, so that both sides of a transposition fill whole cache lines."""


@jit
def gather_features(matrix, columns, out):
    """``out[:] = matrix[:, columns]``. matrix (k, p), out (k, s)."""
    n_components = matrix.shape[0]
    for start in range(0, len(columns), BLOCK):
        stop = min(start + BLOCK, len(columns))
        for j in range(n_components):
            for i in range(start, stop):
                out[j, i] = matrix[j, columns[i]]


@jit
def scatter_features(values, columns, matrix):
    """``matrix[:, columns] = values``. values (k, s), matrix (k, p) out."""
    n_components = matrix.shape[0]
    for start in range(0, len(columns), BLOCK):
        stop = min(start + BLOCK, len(columns))
        for i in range(start, stop):
            for j in range(n_components):
                matrix[j, columns[i]] = values[j, i]


@jit
def gather_values(matrix, rows, columns, out):
    """``out[:] = matrix[rows][:, columns]``. matrix (n, p), out (b, s)."""
    for i in range(len(rows)):
        row = matrix[rows[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]


@jit
def blend(matrix, sums, feature_rows, counts, gain):
    """Move each feature of ``matrix`` towards its mean over the batch, in place.

    matrix (k, s) in/out; sums (k, s): sums over the rows of the batch that observe the feature; feature_rows (s,): how
    many these are; counts (s,): how many there were in all, these included; gain: weight of the step times its number.
    ``w = min(1, gain * feature_rows / counts); matrix = (1 - w) * matrix + w * sums / feature_rows``.
    With gain 1 the statistics are plain means over all samples seen, as in the paper.
    """
    dtype = matrix.dtype.type
    keep = np.empty(len(counts), matrix.dtype)
    take = np.empty(len(counts), matrix.dtype)
    for i in range(len(counts)):
        weight = min(1.0, gain * feature_rows[i] / counts[i]) if feature_rows[i] > 0 else 0.0
        keep[i] = dtype(1.0 - weight)
        take[i] = dtype(weight / feature_rows[i]) if feature_rows[i] > 0 else dtype(0)
    for j in range(matrix.shape[0]):
        for i in range(matrix.shape[1]):
            matrix[j, i] = keep[i] * matrix[j, i] + take[i] * sums[j, i]


@jit
def blend_by_feature(matrix, sums, feature_rows, counts, gain):
    """:func:`blend` for matrices in order "F", given transposed: (s, k) in order "C"."""
    dtype = matrix.dtype.type
    for i in range(matrix.shape[0]):
        if feature_rows[i] == 0:
            continue
        weight = min(1.0, gain * feature_rows[i] / counts[i])
        keep, take = dtype(1.0 - weight), dtype(weight / feature_rows[i])
        entries, totals = matrix[i], sums[i]
        for j in range(len(entries)):
            entries[j] = keep * entries[j] + take * totals[j]
