"""The parts of :mod:`terafactor.solver.span` that touch features or stored entries.

Rows come compressed, as ``starts``, ``columns``, ``entries``, or the same by column, as ``starts``, ``rows``,
``entries``, with rows ascending. Matrices over features are transposed, (p, k), each feature contiguous.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._blas import add_product, product, transposed_product, transposed_square_upper
from terafactor.kernels._jit import jit


@jit
def add_weighted(indices, weights, first, last, vectors, total):
    """``total += weights[first:last] @ vectors[indices[first:last]]``, total (k,).

    Four vectors at a time: one load and store of the total for four products.
    """
    place = first
    while place + 3 < last:
        w0, w1, w2, w3 = weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
        v0, v1 = vectors[indices[place]], vectors[indices[place + 1]]
        v2, v3 = vectors[indices[place + 2]], vectors[indices[place + 3]]
        for j in range(len(total)):
            total[j] += w0 * v0[j] + w1 * v1[j] + w2 * v2[j] + w3 * v3[j]
        place += 4
    while place < last:
        w0, v0 = weights[place], vectors[indices[place]]
        for j in range(len(total)):
            total[j] += w0 * v0[j]
        place += 1


@jit
def multiply_rows(starts, columns, entries, features, first, last, at, out):
    """``out[first:last, at : at + k] = X[first:last] @ features`` for compressed rows X. features (p, k)."""
    width = features.shape[1]
    total = np.empty(width, features.dtype)
    for row in range(first, last):
        total[:] = 0
        add_weighted(columns, entries, starts[row], starts[row + 1], features, total)
        for j in range(width):
            out[row, at + j] = total[j]


@jit
def multiply_earlier_rows(starts, rows, entries, longest, first, last, at, out):
    """``out[i, at + j] += X[i] X[j]'`` for rows i from first to last and every j < i, and half of it for j = i.

    X is compressed by column; those of more than ``longest`` entries are left out. The cost is that of the pairs of
    entries that share a column, of which sparse rows have few.
    """
    half = entries.dtype.type(0.5)
    for column in range(len(starts) - 1):
        if starts[column + 1] - starts[column] > longest:
            continue
        for place in range(starts[column], starts[column + 1]):
            i, value = rows[place], entries[place]
            if i < first:
                continue
            if i >= last:
                break
            products = out[i]
            for other in range(starts[column], place):
                products[at + rows[other]] += value * entries[other]
            products[at + i] += half * value * value


@jit
def inner_products_of_features(gemm, syrk, dictionary, data_code, first, last, grams):
    """Put the upper triangle of ``[D; B] [D; B]'`` of some tiles in ``grams`` (tiles, 2k, 2k).

    dictionary, data_code (p, k).
    """
    n_features, k = dictionary.shape
    for tile in range(first, last):
        start = tile * TILE
        width, at, gram = min(TILE, n_features - start), start * k, grams[tile]
        transposed_square_upper(syrk, k, width, dictionary, at, k, gram, 0, 2 * k)
        transposed_product(gemm, k, k, width, dictionary, at, k, data_code, at, k, gram, k, 2 * k)
        transposed_square_upper(syrk, k, width, data_code, at, k, gram, 2 * k * k + k, 2 * k)


@jit
def sweep_in_span(gram, code_gram, floor, limit, moves, sizes):
    """Sweep over the atoms, each a combination of atoms and statistics, onto the l2 ball.

    gram (2k, 2k): inner products of [D; B]; code_gram (k, k); floor: ``c_jj`` up to which an atom stays; limit: bound
    of the squared norm; moves (k, 2k) out: new D = moves [D; B]; sizes (k,) in/out: squared norms of those moved.
    """
    k = len(code_gram)
    moves[:] = 0
    for j in range(k):
        moves[j, j] = 1.0
    for j in range(k):
        curvature = code_gram[j, j]
        if curvature <= floor:
            continue
        new = moves[j]
        new[j] = 0.0  # d_j - c_jj d_j / c_jj
        for i in range(j):
            share, moved = code_gram[j, i] / curvature, moves[i]
            for at in range(2 * k):
                new[at] -= share * moved[at]
        for i in range(j + 1, k):
            new[i] -= code_gram[j, i] / curvature
        new[k + j] += 1.0 / curvature
        size = 0.0
        for i in range(2 * k):
            part, others = 0.0, gram[i]
            for at in range(2 * k):
                part += others[at] * new[at]
            size += new[i] * part
        size = max(size, 0.0)
        if size > limit:
            scale = np.sqrt(limit / size)
            for at in range(2 * k):
                new[at] *= scale
            size = limit
        sizes[j] = size


@jit
def combine(
    gemm, starts, rows, entries, from_atoms, from_statistics, from_rows, keep, rows_kept, first, last,
    dictionary, data_code,
):  # fmt: skip
    """``D, B = D from_atoms + B from_statistics + X' from_rows, keep B + X' rows_kept`` on some tiles, in place.

    from_atoms, from_statistics (k, k); from_rows, rows_kept (m, k); dictionary, data_code (p, k) in/out.
    """
    n_features, k = dictionary.shape
    new = np.empty((TILE, k), dictionary.dtype)
    for tile in range(first, last):
        start = tile * TILE
        width = min(TILE, n_features - start)
        product(gemm, width, k, k, dictionary, start * k, k, from_atoms, 0, k, new, 0, k)
        add_product(gemm, width, k, k, data_code, start * k, k, from_statistics, 0, k, new, 0, k)
        for i in range(width):
            begin, end = starts[start + i], starts[start + i + 1]
            add_weighted(rows, entries, begin, end, from_rows, new[i])
            atoms, statistics = dictionary[start + i], data_code[start + i]
            for j in range(k):
                atoms[j] = new[i, j]
                statistics[j] *= keep
            add_weighted(rows, entries, begin, end, rows_kept, statistics)
