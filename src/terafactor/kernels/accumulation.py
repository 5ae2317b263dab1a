"""Moving features in and out of the working arrays, and the update of the statistics.

Matrices over features have the logical shape (k, p). Their memory order follows their use: fits that see masked
features only keep each feature contiguous (order "F"), so that visiting s features touches s short runs of memory,
whatever p; fits whose statistics take in every feature at each step keep each atom contiguous (order "C").

Kernels that work on a tile take whole arrays and the borders ``start`` and ``stop``: a slice made by the caller would
hide from the compiler that rows are contiguous, and cost the SIMD code.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._blas import product_transposed, square, transposed_product
from terafactor.kernels._jit import jit
from terafactor.kernels._prefetch import prefetch_rows
from terafactor.kernels._transpose import SIDE, transpose_square

AHEAD = 16
"""Features between those at work and those asked for from memory."""


@jit
def feature_starts(columns, i, width, j):
    """Return where entry ``j`` of the features ``columns[i : i + 8]`` lies in a flattened matrix (p, width)."""
    return (
        columns[i] * width + j, columns[i + 1] * width + j, columns[i + 2] * width + j, columns[i + 3] * width + j,
        columns[i + 4] * width + j, columns[i + 5] * width + j, columns[i + 6] * width + j, columns[i + 7] * width + j,
    )  # fmt: skip


@jit
def atom_starts(j, width, i):
    """Return where entry ``i`` of the atoms ``j`` to ``j + 7`` lies in a flattened matrix (k, width)."""
    at = j * width + i
    return (
        at, at + width, at + 2 * width, at + 3 * width, at + 4 * width, at + 5 * width, at + 6 * width, at + 7 * width,
    )  # fmt: skip


@jit
def gather_features(matrix, columns, start, stop, out):
    """``out[:, start:stop] = matrix[columns[start:stop]].T``. matrix (p, k): transposed; out (k, s).

    By squares of eight features and eight atoms, so that both sides of the transposition use whole registers; where
    atoms do not fill the last square, it overlaps the one before.
    """
    (n_components, n_observed), i = out.shape, start
    while i + SIDE <= stop and n_components >= SIDE:
        prefetch_rows(matrix, columns, i + AHEAD, i + AHEAD + SIDE)
        for first in range(0, n_components, SIDE):
            j = min(first, n_components - SIDE)
            transpose_square(matrix, feature_starts(columns, i, n_components, j), out, atom_starts(j, n_observed, i))
        i += SIDE
    for rest in range(i, stop):
        out[:, rest] = matrix[columns[rest]]


@jit
def scatter_features(values, columns, start, stop, matrix):
    """``matrix[columns[start:stop]] = values[:, start:stop].T``. matrix (p, k) out; values (k, s)."""
    (n_components, n_observed), i = values.shape, start
    while i + SIDE <= stop and n_components >= SIDE:
        prefetch_rows(matrix, columns, i + AHEAD, i + AHEAD + SIDE)
        for first in range(0, n_components, SIDE):
            j = min(first, n_components - SIDE)
            transpose_square(values, atom_starts(j, n_observed, i), matrix, feature_starts(columns, i, n_components, j))
        i += SIDE
    for rest in range(i, stop):
        matrix[columns[rest]] = values[:, rest]


@jit
def gather_columns(matrix, columns, start, stop, out):
    """``out[:, start:stop] = matrix[:, columns[start:stop]]``. matrix (k, p); out (k, s)."""
    for j in range(len(matrix)):
        source, target = matrix[j], out[j]
        for i in range(start, stop):
            target[i] = source[columns[i]]


@jit
def scatter_columns(values, columns, start, stop, matrix):
    """``matrix[:, columns[start:stop]] = values[:, start:stop]``. matrix (k, p) out; values (k, s)."""
    for j in range(len(matrix)):
        source, target = values[j], matrix[j]
        for i in range(start, stop):
            target[columns[i]] = source[i]


@jit
def gather_values(matrix, rows, columns, start, stop, out):
    """``out[start:stop] = matrix[rows[start:stop]][:, columns]``. matrix (n, p), out (b, s)."""
    for i in range(start, stop):
        row = matrix[rows[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]


@jit
def correlate_tiles(gemm, syrk, values, atoms, first, last, grams, correlations):
    """Put ``atoms @ atoms.T`` and ``values @ atoms.T`` of some tiles of features in the last two.

    gemm, syrk: addresses of BLAS; values (b, s), atoms (k, s); first, last: which tiles; grams (tiles, k, k) and
    correlations (tiles, b, k) out. Without rows, or with ``grams`` empty, that part is left out.
    """
    n_components, n_observed = atoms.shape
    n_rows = len(values)
    for tile in range(first, last):
        start = tile * TILE
        width = min(TILE, n_observed - start)
        if len(grams):
            gram = grams[tile]
            square(syrk, n_components, width, atoms, start, n_observed, gram, 0, n_components)
            for j in range(n_components):
                for i in range(j):
                    gram[i, j] = gram[j, i]
        if n_rows:
            product_transposed(
                gemm, n_rows, n_components, width, values, start, n_observed, atoms, start, n_observed,
                correlations[tile], 0, n_components,
            )  # fmt: skip


@jit
def multiply_tiles(gemm, codes, values, first, last, out):
    """``out = codes.T @ values`` on some tiles of features. codes (b, k), values (b, s), out (k, s)."""
    n_rows, n_components = codes.shape
    n_observed = values.shape[1]
    for tile in range(first, last):
        start = tile * TILE
        transposed_product(
            gemm, n_components, min(TILE, n_observed - start), n_rows, codes, 0, n_components,
            values, start, n_observed, out, start, n_observed,
        )  # fmt: skip


@jit
def multiply_features(gemm, codes, values, first, last, out):
    """``out = values.T @ codes`` on some tiles of features. codes (b, k), values (b, s), out (s, k)."""
    n_rows, n_components = codes.shape
    n_observed = values.shape[1]
    for tile in range(first, last):
        start = tile * TILE
        transposed_product(
            gemm, min(TILE, n_observed - start), n_components, n_rows, values, start, n_observed,
            codes, 0, n_components, out, start * n_components, n_components,
        )  # fmt: skip


@jit
def multiply_sparse(codes, values, first, last, out):
    """:func:`multiply_tiles` skipping the zeros of the codes."""
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, values.shape[1])
        for j in range(codes.shape[1]):
            total = out[j, start:stop]
            total[:] = 0
            for row in range(len(codes)):
                code = codes[row, j]
                if code != 0:
                    entries = values[row, start:stop]
                    for i in range(len(total)):
                        total[i] += code * entries[i]


@jit
def batch_weights(feature_rows, counts, gain, keep, take):
    """Put in ``keep`` and ``take`` what multiplies the past and the sums of a batch, for each feature.

    feature_rows (s,): rows of the batch that observe the feature; counts (s,): rows that ever did, these included;
    gain: weight of the step times its number. With ``w = min(1, gain * feature_rows / counts)``, a feature becomes
    ``(1 - w) * past + w * sum / feature_rows``: with gain 1 the mean over all samples seen, as in the paper.
    """
    for i in range(len(counts)):
        rows = feature_rows[i]
        weight = min(1.0, gain * rows / counts[i]) if rows > 0 else 0.0
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
def blend_features(matrix, columns, sums, keep, take, start, stop):
    """:func:`blend` at some features of a transposed matrix. matrix (p, k) in/out, sums (s, k), others (s,)."""
    for i in range(start, stop):
        entries, totals = matrix[columns[i]], sums[i]
        old, new = keep[i], take[i]
        for j in range(len(entries)):
            entries[j] = old * entries[j] + new * totals[j]


@jit
def blend_and_gather(matrix, columns, sums, keep, take, start, stop, out):
    """:func:`blend_features`, then :func:`gather_features` while the features are still at hand."""
    for first in range(start, stop, SIDE):
        last = min(first + SIDE, stop)
        prefetch_rows(matrix, columns, first + AHEAD, first + AHEAD + SIDE)
        blend_features(matrix, columns, sums, keep, take, first, last)
        gather_features(matrix, columns, first, last, out)


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
