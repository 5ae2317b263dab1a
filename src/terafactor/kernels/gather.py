"""Gather and scatter: copies between scattered features, rows or entries and contiguous arrays.

Matrices over features have the logical shape (k, p). Their memory order follows their use: fits with masked statistics
keep each feature contiguous (order "F"), so that s features are s short runs of memory, whatever p; fits whose
statistics use every feature at each step keep each atom contiguous (order "C").
"""

import numpy as np

from terafactor.kernels.jit import jit
from terafactor.kernels.transpose import SIDE, prefetch_rows, transpose_square

PREFETCH_DISTANCE = 32
"""Features between the one that is copied and the one that is prefetched."""


@jit
def row_addresses(matrix, row, column):
    """Return the addresses of ``matrix[row : row + 8, column]``, of a C-ordered matrix."""
    step, at = matrix.strides[0], matrix.ctypes.data + column * matrix.itemsize
    return (
        at + row * step, at + (row + 1) * step, at + (row + 2) * step, at + (row + 3) * step,
        at + (row + 4) * step, at + (row + 5) * step, at + (row + 6) * step, at + (row + 7) * step,
    )  # fmt: skip


@jit
def feature_addresses(matrix, columns, i, component):
    """Return the addresses of ``matrix[columns[i : i + 8], component]``, of a C-ordered matrix."""
    step, at = matrix.strides[0], matrix.ctypes.data + component * matrix.itemsize
    return (
        at + columns[i] * step, at + columns[i + 1] * step, at + columns[i + 2] * step, at + columns[i + 3] * step,
        at + columns[i + 4] * step, at + columns[i + 5] * step, at + columns[i + 6] * step, at + columns[i + 7] * step,
    )  # fmt: skip


@jit
def gather_features(matrix, columns, start, stop, out):
    """``out[:, start:stop] = matrix[columns[start:stop]].T``. matrix (p, k), out (k, s).

    Works in 8 x 8 blocks; a block that would exceed the end overlaps the one before.
    """
    n_components, zero = len(out), out.dtype.type(0)
    if n_components < SIDE or stop - start < SIDE:
        for i in range(start, stop):
            for j in range(n_components):
                out[j, i] = matrix[columns[i], j]
        return
    for first in range(start, stop, SIDE):
        i = min(first, stop - SIDE)
        prefetch_rows(matrix, columns, i + PREFETCH_DISTANCE, i + PREFETCH_DISTANCE + SIDE)
        for component in range(0, n_components, SIDE):
            j = min(component, n_components - SIDE)
            transpose_square(zero, feature_addresses(matrix, columns, i, j), row_addresses(out, j, i))


@jit
def scatter_features(values, columns, start, stop, matrix):
    """``matrix[columns[start:stop]] = values[:, start:stop].T``, as :func:`gather_features`. matrix (p, k) out."""
    n_components, zero = len(values), values.dtype.type(0)
    if n_components < SIDE or stop - start < SIDE:
        for i in range(start, stop):
            for j in range(n_components):
                matrix[columns[i], j] = values[j, i]
        return
    for first in range(start, stop, SIDE):
        i = min(first, stop - SIDE)
        prefetch_rows(matrix, columns, i + PREFETCH_DISTANCE, i + PREFETCH_DISTANCE + SIDE)
        for component in range(0, n_components, SIDE):
            j = min(component, n_components - SIDE)
            transpose_square(zero, row_addresses(values, j, i), feature_addresses(matrix, columns, i, j))


@jit
def gather_columns(matrix, rows, columns, start, stop, out):
    """``out[:, start:stop] = matrix[rows][:, columns[start:stop]]``. matrix (n, p), out (b, s).

    Four rows at a time, so that the processor loads from all four at once: half the time for distant rows.
    """
    whole = len(rows) - len(rows) % 4
    for i in range(0, whole, 4):
        row0, row1, row2, row3 = matrix[rows[i]], matrix[rows[i + 1]], matrix[rows[i + 2]], matrix[rows[i + 3]]
        out0, out1, out2, out3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for j in range(start, stop):
            column = columns[j]
            out0[j], out1[j], out2[j], out3[j] = row0[column], row1[column], row2[column], row3[column]
    for i in range(whole, len(rows)):
        source, target = matrix[rows[i]], out[i]
        for j in range(start, stop):
            target[j] = source[columns[j]]


@jit
def scatter_columns(values, columns, start, stop, matrix):
    """``matrix[:, columns[start:stop]] = values[:, start:stop]``. values (k, s), matrix (k, p) out."""
    for i in range(len(matrix)):
        source, target = values[i], matrix[i]
        for j in range(start, stop):
            target[columns[j]] = source[j]


@jit
def check_sparse_rows(starts, indices, n_columns):
    """Return the first position in ``indices`` of a column out of range (-1 if none), and whether rows ascend strictly.

    starts (n + 1,): ascending and within ``indices``.
    """
    ascending = True
    for row in range(len(starts) - 1):
        before = -1
        for place in range(starts[row], starts[row + 1]):
            column = indices[place]
            if column < 0 or column >= n_columns:
                return place, ascending
            ascending &= column > before
            before = column
    return -1, ascending


@jit
def fill_sparse_rows(starts, indices, entries, rows, columns, everything, out):
    """Write the stored entries of some rows of a CSR matrix to ``out`` (b, s), which the caller has filled.

    starts (n + 1,), indices, entries: compressed rows, indices ascending; columns (s,): ascending; everything: whether
    ``columns`` are all columns.
    """
    for i in range(len(rows)):
        target = out[i]
        for place in range(starts[rows[i]], starts[rows[i] + 1]):
            column = indices[place]
            if everything:
                target[column] = entries[place]
                continue
            position = np.searchsorted(columns, column)
            if position < len(columns) and columns[position] == column:
                target[position] = entries[place]
