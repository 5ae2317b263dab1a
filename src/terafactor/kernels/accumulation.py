"""Moving features in and out of the working arrays, and the update of the statistics.

Matrices over features have the logical shape (k, p). Their memory order follows their use: fits that see masked
features only keep each feature contiguous (order "F"), so that visiting s features touches s short runs of memory,
whatever p; fits whose statistics take in every feature at each step keep each atom contiguous (order "C").

Kernels that work on a tile take whole arrays and the borders ``start`` and ``stop``: a slice made by the caller would
hide from the compiler that rows are contiguous, and cost the SIMD code.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._blas import (
    add_transposed_product,
    product_transposed,
    square,
    transposed_product,
    transposed_square,
)
from terafactor.kernels._dots import FEW, inner_products
from terafactor.kernels._jit import jit
from terafactor.kernels._prefetch import prefetch_rows
from terafactor.kernels._rows import blend_rows
from terafactor.kernels._transpose import SIDE, transpose_square

PANEL = 1024
"""Features of which a matrix is made at once, in the caches, before it is put where it belongs; divides ``TILE``."""

GROUP = 32
"""Features that are blended before they are gathered, while they are at hand."""

AHEAD = 32
"""Features between the one at work and the one asked for from memory."""


@jit
def row_starts(row, width, at):
    """Return where entry ``at`` of eight rows from ``row`` on lies in a flattened matrix (n, width)."""
    at += row * width
    return (
        at, at + width, at + 2 * width, at + 3 * width, at + 4 * width, at + 5 * width, at + 6 * width, at + 7 * width,
    )  # fmt: skip


@jit
def feature_starts(columns, first, width, at):
    """Return where entry ``at`` of the eight ``columns`` from ``first`` on lies in a flattened matrix (p, width)."""
    return (
        at + width * columns[first], at + width * columns[first + 1], at + width * columns[first + 2],
        at + width * columns[first + 3], at + width * columns[first + 4], at + width * columns[first + 5],
        at + width * columns[first + 6], at + width * columns[first + 7],
    )  # fmt: skip


@jit
def gather_features(matrix, columns, start, stop, out):
    """``out[:, start:stop] = matrix[columns[start:stop]].T``. matrix (p, k): transposed; out (k, s).

    By squares turned in registers, so that both sides use whole ones; squares that would not fit overlap those before.
    """
    n_components, n_observed = out.shape
    if n_components < SIDE or stop - start < SIDE:
        for i in range(start, stop):
            for j in range(n_components):
                out[j, i] = matrix[columns[i], j]
        return
    for at in range(start, stop, SIDE):
        i = min(at, stop - SIDE)
        prefetch_rows(matrix, columns, i + AHEAD, i + AHEAD + SIDE)
        for component in range(0, n_components, SIDE):
            j = min(component, n_components - SIDE)
            transpose_square(
                matrix, feature_starts(columns, i, n_components, j), out, row_starts(j, n_observed, i)
            )  # fmt: skip


@jit
def scatter_features(values, columns, start, stop, matrix):
    """``matrix[columns[start:stop]] = values[:, start:stop].T``, as :func:`gather_features`. matrix (p, k) out."""
    n_components, n_observed = values.shape
    if n_components < SIDE or stop - start < SIDE:
        for i in range(start, stop):
            for j in range(n_components):
                matrix[columns[i], j] = values[j, i]
        return
    for at in range(start, stop, SIDE):
        i = min(at, stop - SIDE)
        prefetch_rows(matrix, columns, i + AHEAD, i + AHEAD + SIDE)
        for component in range(0, n_components, SIDE):
            j = min(component, n_components - SIDE)
            transpose_square(
                values, row_starts(j, n_observed, i), matrix, feature_starts(columns, i, n_components, j)
            )  # fmt: skip


@jit
def gather_values(matrix, rows, columns, start, stop, out):
    """``out[:, start:stop] = matrix[rows][:, columns[start:stop]]``. matrix (n, p), out (b, s).

    Four rows at a time: more of memory is under way at once, and a column is looked up once for four.
    """
    i = 0
    while i + 3 < len(rows):
        row0, row1, row2, row3 = matrix[rows[i]], matrix[rows[i + 1]], matrix[rows[i + 2]], matrix[rows[i + 3]]
        out0, out1, out2, out3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for j in range(start, stop):
            column = columns[j]
            out0[j], out1[j], out2[j], out3[j] = row0[column], row1[column], row2[column], row3[column]
        i += 4
    while i < len(rows):
        row, values = matrix[rows[i]], out[i]
        for j in range(start, stop):
            values[j] = row[columns[j]]
        i += 1


@jit
def scatter_columns(values, columns, start, stop, matrix):
    """``matrix[:, columns[start:stop]] = values[:, start:stop]``, as :func:`gather_values`. matrix (k, p) out."""
    i = 0
    while i + 3 < len(matrix):
        row0, row1, row2, row3 = values[i], values[i + 1], values[i + 2], values[i + 3]
        out0, out1, out2, out3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(start, stop):
            column = columns[j]
            out0[column], out1[column], out2[column], out3[column] = row0[j], row1[j], row2[j], row3[j]
        i += 4
    while i < len(matrix):
        row, out = values[i], matrix[i]
        for j in range(start, stop):
            out[columns[j]] = row[j]
        i += 1


@jit
def correlate_tiles(gemm, syrk, values, atoms, first, last, grams, correlations):
    """Put ``atoms @ atoms.T`` and ``values @ atoms.T`` of some tiles of features in the last two.

    gemm, syrk: addresses of BLAS; values (b, s), atoms (k, s); first, last: which tiles; grams (tiles, k, k) and
    correlations (tiles, b, k) out. Without rows, or with ``grams`` empty, that part is left out.
    """
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, atoms.shape[1])
        if len(grams):
            gram_of(syrk, atoms, start, stop, grams[tile])
        if len(values):
            product_transposed(
                gemm, len(values), len(atoms), stop - start, values, start, values.shape[1],
                atoms, start, atoms.shape[1], correlations[tile], 0, len(atoms),
            )  # fmt: skip


@jit
def gram_of(syrk, atoms, start, stop, out):
    """``out = atoms @ atoms.T`` from feature start to stop. atoms (k, s), out (k, k)."""
    n_components, n_observed = atoms.shape
    if n_components <= FEW:
        inner_products(atoms, start, stop, out)
        return
    square(syrk, n_components, stop - start, atoms, start, n_observed, out, 0, n_components)
    for j in range(n_components):
        for i in range(j):
            out[i, j] = out[j, i]


@jit
def add_parts(parts):
    """Return the sum over the first axis of ``parts`` (n, a, b), in float64 and one after the other."""
    total = np.zeros(parts.shape[1:])
    for part in parts:
        for i in range(total.shape[0]):
            for j in range(total.shape[1]):
                total[i, j] += part[i, j]
    return total


@jit
def blend_product(gemm, codes, values, keep, start, stop, out):
    """``out = keep * out + codes.T @ values`` from feature start to stop. codes (b, k), values (b, s), out (k, s).

    gemm: address of BLAS. What ``out`` held does not matter where ``keep`` is zero.
    """
    n_rows, n_components = codes.shape
    n_observed = values.shape[1]
    for first in range(start, stop, TILE):
        add_transposed_product(
            gemm, n_components, min(TILE, stop - first), n_rows, codes, 0, n_components, values, first, n_observed,
            keep, out, first, n_observed,
        )  # fmt: skip


@jit
def blend_sparse_product(codes, matrix, numbers, keep, take, start, stop, out):
    """``out = keep * out + take * (codes.T @ matrix[numbers])`` from feature start to stop, skipping zero codes.

    codes (b, k), matrix (n, s), numbers (b,), keep, take (s,), out (k, s) in/out.
    """
    n_rows, n_components = codes.shape
    rows, weights = np.empty(codes.size, np.int64), np.empty(codes.size, codes.dtype)  # of the nonzero codes, by atom
    ends = np.empty(n_components, np.int64)
    n_used = 0
    for j in range(n_components):
        for row in range(n_rows):
            if codes[row, j] != 0:
                rows[n_used], weights[n_used] = numbers[row], codes[row, j]
                n_used += 1
        ends[j] = n_used
    for first in range(start, stop, TILE):
        begin = 0
        for j in range(n_components):
            blend_rows(keep, take, matrix, rows, weights, begin, ends[j], first, min(first + TILE, stop), out, j)
            begin = ends[j]


@jit
def code_sums(syrk, codes, precise, gram, used):
    """Put ``codes.T @ codes`` in ``gram``, and in ``used`` where a column is not zero; return sums of |a| and of a^2.

    syrk: address of BLAS for float64; codes (b, k); precise (b, k), float64: scratch; gram (k, k) float64 and
    used (k,) out.
    """
    n_rows, n_components = codes.shape
    absolute, squares = 0.0, 0.0
    used[:] = False
    for i in range(n_rows):
        for j in range(n_components):
            precise[i, j] = codes[i, j]
            used[j] |= codes[i, j] != 0.0
    for i in range(n_rows):  # apart from what writes, or last bits depend on where arrays lie
        for j in range(n_components):
            absolute += abs(precise[i, j])
            squares += precise[i, j] * precise[i, j]
    transposed_square(syrk, n_components, n_rows, precise, 0, n_components, gram, 0, n_components)
    for j in range(n_components):
        for i in range(j):
            gram[i, j] = gram[j, i]
    return absolute, squares


@jit
def absorb_code_sums(sums, used, n_rows, share, code_gram, idle_rows):
    """Take the sums over a batch of ``n_rows`` into ``code_gram`` (k, k) and ``idle_rows`` (k,), both in/out.

    sums (k, k), used (k,): of :func:`code_sums`; share: weight of the mean over the batch.
    """
    keep, take = 1.0 - share, share / n_rows
    for i in range(len(code_gram)):
        for j in range(len(code_gram)):
            code_gram[i, j] = keep * code_gram[i, j] + take * sums[i, j]
        idle_rows[i] = 0 if used[i] else idle_rows[i] + n_rows


@jit
def batch_weights(feature_rows, columns, counts, gain, keep, take):
    """Count the rows of a batch, and put in ``keep`` and ``take`` what multiplies the past and its sums, per feature.

    feature_rows (s,): rows of the batch that observe each of the ``columns`` (s,), None when these are all features;
    counts (p,) in/out: rows that ever did; gain: weight of the step times its number. With
    ``w = min(1, gain * feature_rows / counts)``, these included, a feature becomes
    ``(1 - w) * past + w * sum / feature_rows``: with gain 1 the mean over all samples seen, as in the paper.
    """
    for i in range(len(feature_rows)):
        rows, column = feature_rows[i], i if columns is None else columns[i]
        counts[column] += rows
        weight = min(1.0, gain * rows / counts[column]) if rows > 0 else 0.0
        keep[i] = 1.0 - weight
        take[i] = weight / rows if rows > 0 else 0.0


@jit
def blend(matrix, sums, keep, take, start, stop):
    """``matrix = keep * matrix + take * sums`` from start to stop. matrix (k, p) in/out, sums (k, p), others (p,)."""
    old, new = keep[start:stop], take[start:stop]
    for j in range(matrix.shape[0]):
        entries, totals = matrix[j, start:stop], sums[j, start:stop]
        for i in range(len(entries)):
            entries[i] = old[i] * entries[i] + new[i] * totals[i]


@jit
def blend_features(matrix, columns, sums, keep, take, start, stop, first=0):
    """:func:`blend` at some features of a transposed matrix.

    matrix (p, k) in/out; columns, keep, take (s,); sums (n, k): of the columns from ``first`` on.
    """
    for i in range(start, stop):
        entries, totals = matrix[columns[i]], sums[i - first]
        old, new = keep[i], take[i]
        for j in range(len(entries)):
            entries[j] = old * entries[j] + new * totals[j]


@jit
def blend_product_at(gemm, codes, values, matrix, columns, keep, take, start, stop, out):
    """``matrix = keep * matrix + take * (values.T @ codes)`` at some features of it, and gather the result in ``out``.

    gemm: address of BLAS; codes (b, k), values (b, s); matrix (p, k) in/out: transposed; columns, keep, take (s,);
    out (k, s), from feature start to stop. Some features at a time, while they are at hand.
    """
    n_rows, n_components = codes.shape
    sums = np.empty((PANEL, n_components), values.dtype)
    for panel in range(start, stop, PANEL):
        end = min(panel + PANEL, stop)
        transposed_product(
            gemm, end - panel, n_components, n_rows, values, panel, values.shape[1], codes, 0, n_components,
            sums, 0, n_components,
        )  # fmt: skip
        for first in range(panel, end, GROUP):
            last = min(first + GROUP, end)
            blend_features(matrix, columns, sums, keep, take, first, last, panel)
            gather_features(matrix, columns, first, last, out)


@jit
def check_sparse_rows(starts, indices, n_columns):
    """Return the first place in ``indices`` that is outside the columns, -1 for none, and whether rows ascend strictly.

    starts (n + 1,): ascending, within ``indices``.
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
    """Put the stored entries of some rows of a sparse matrix in ``out`` (b, s), which holds the rest already.

    starts (n + 1,), indices, entries: compressed rows, indices ascending; columns (s,): ascending; everything: these
    are all the columns.
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
