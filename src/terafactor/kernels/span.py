"""The parts of :mod:`terafactor.solver.span` that touch features or stored entries.

Rows come compressed by column, as ``starts``, ``rows`` (ascending) and ``entries``. The first two are unsigned: an
index that may be negative costs a comparison, which in loops as short as these doubles the time. Matrices over features
are transposed, (p, k), each feature contiguous.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._blas import add_product, product, transposed_product, transposed_square_upper
from terafactor.kernels._jit import jit

ONE = np.uint64(1)

PANEL = 128
"""Features whose atoms and statistics are made at once, in the fastest caches; divides ``TILE``."""


@jit
def multiply_stored(starts, rows, entries, features, first, last, at, out):
    """``out[i, at : at + k] += X[i] @ features`` for rows i from first to last. features (p, k), read once in order."""
    width = features.shape[1]
    for column in range(np.uint64(len(features))):
        values = features[column]
        for place in range(starts[column], starts[column + ONE]):
            i, entry = rows[place], entries[place]
            if i < first:
                continue
            if i >= last:
                break
            target = out[i, at : at + width]
            for j in range(width):
                target[j] += entry * values[j]


@jit
def multiply_earlier_rows(starts, rows, entries, longest, first, last, out):
    """``out[i, j] += X[i] X[j]'`` for rows i from first to last and every j < i, and half of it for j = i.

    Columns of more than ``longest`` entries are left out. The cost is that of the pairs of entries that share a column,
    of which sparse rows have few.
    """
    half = entries.dtype.type(0.5)
    for column in range(np.uint64(len(starts) - 1)):
        begin, end = starts[column], starts[column + ONE]
        if end - begin > longest:
            continue
        for place in range(begin, end):
            i, entry = rows[place], entries[place]
            if i < first:
                continue
            if i >= last:
                break
            products = out[i]
            for other in range(begin, place):
                products[rows[other]] += entry * entries[other]
            products[i] += half * entry * entry


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
def sweep_in_span(gram, code_gram, floor, limit, moves, products, sizes):
    """Sweep over the atoms, each a combination of atoms and statistics, onto the l2 ball.

    gram (2k, 2k): inner products of [D; B]; code_gram (k, k); floor: ``c_jj`` up to which an atom stays; limit: bound
    of the squared norm; moves (k, 2k) out: new D = moves [D; B]; products (k, 2k) out: moves gram, inner products of
    new D with [D; B]; sizes (k,) in/out: squared norms of those moved.
    """
    k = len(code_gram)
    moves[:] = 0
    for j in range(k):
        moves[j, j] = 1.0
        products[j] = gram[j]
    for j in range(k):
        curvature = code_gram[j, j]
        if curvature <= floor:
            continue
        new, with_new = moves[j], products[j]
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
            total, others = 0.0, gram[i]
            for at in range(2 * k):
                total += others[at] * new[at]
            with_new[i] = total
            size += new[i] * total
        size = max(size, 0.0)
        if size > limit:
            scale = np.sqrt(limit / size)
            for at in range(2 * k):
                new[at] *= scale
                with_new[at] *= scale
            size = limit
        sizes[j] = size


@jit
def combine(
    gemm, starts, rows, entries, from_atoms, from_statistics, from_rows, keep, first, last, dictionary, data_code
):
    """``D, B = D from_atoms + B from_statistics, keep B``, and to both ``X' from_rows``, on some tiles, in place.

    from_atoms, from_statistics (k, k); from_rows (m, 2k), of D and of B; dictionary, data_code (p, k) in/out.
    """
    n_features, k = dictionary.shape
    new = np.empty((PANEL, 2 * k), dictionary.dtype)
    for start in range(first * TILE, min(last * TILE, n_features), PANEL):
        width = min(PANEL, n_features - start)
        product(gemm, width, k, k, dictionary, start * k, k, from_atoms, 0, k, new, 0, 2 * k)
        add_product(gemm, width, k, k, data_code, start * k, k, from_statistics, 0, k, new, 0, 2 * k)
        for i in range(width):
            total, atoms, statistics = new[i], dictionary[start + i], data_code[start + i]
            for j in range(k):
                total[k + j] = keep * statistics[j]
            add_weighted(rows, entries, starts[start + i], starts[start + i + 1], from_rows, total)
            for j in range(k):
                atoms[j] = total[j]
                statistics[j] = total[k + j]


@jit
def add_weighted(indices, weights, first, last, vectors, total):
    """``total += weights[first:last] @ vectors[indices[first:last]]``, total (k,).

    Four vectors at a time: one load and store of the total for four products.
    """
    place = first
    while place + np.uint64(3) < last:
        one, two, three = place + ONE, place + np.uint64(2), place + np.uint64(3)
        w0, w1, w2, w3 = weights[place], weights[one], weights[two], weights[three]
        v0, v1, v2, v3 = vectors[indices[place]], vectors[indices[one]], vectors[indices[two]], vectors[indices[three]]
        for j in range(len(total)):
            total[j] += w0 * v0[j] + w1 * v1[j] + w2 * v2[j] + w3 * v3[j]
        place += np.uint64(4)
    while place < last:
        w0, v0 = weights[place], vectors[indices[place]]
        for j in range(len(total)):
            total[j] += w0 * v0[j]
        place += ONE
