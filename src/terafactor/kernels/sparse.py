"""Kernels of :mod:`terafactor.solver.learners.sparse`.

Rows are compressed by column (CSC): ``starts``, ``rows`` (ascending) and ``entries``. The first two are unsigned, since
an index that may be negative costs a comparison, which doubles the time of loops this short. Matrices over features are
transposed, (p, k), each feature contiguous.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.atoms import GROUP, finish_candidate, least_curvature, start_candidates, sweep_weights
from terafactor.kernels.blas import add_product, add_upper_square
from terafactor.kernels.jit import jit

ONE = np.uint64(1)

PANEL = 1024
"""Features combined at a time, so that they stay in the cache; divides ``TILE``."""


@jit
def stored_between(starts, rows, column, first, last):
    """Return the range of places in ``entries`` of a column's entries in rows from first to last."""
    begin, end = starts[column], starts[column + 1]
    while begin < end and rows[begin] < first:
        begin += ONE
    while begin < end and rows[end - ONE] >= last:
        end -= ONE
    return begin, end


@jit
def multiply_stored(starts, rows, entries, matrix, first, last, out):
    """``out += X @ matrix`` for rows from first to last. matrix (p, k), read once in order; out (m, k) in/out."""
    for feature in range(len(matrix)):
        begin, end = stored_between(starts, rows, feature, first, last)
        source = matrix[feature]
        for place in range(begin, end):
            target, entry = out[rows[place]], entries[place]
            for j in range(len(source)):
                target[j] += entry * source[j]


@jit
def multiply_earlier_rows(starts, rows, entries, longest, first, last, out):
    """``out[i, j] += X[i] @ X[j]`` for rows i from first to last and every j < i, and half of it for j = i.

    Columns of more than ``longest`` entries are skipped. The cost is that of the pairs of entries that share a column,
    of which sparse rows have few. out (m, m) in/out.
    """
    half = entries.dtype.type(0.5)
    for column in range(len(starts) - 1):
        start = starts[column]
        if starts[column + 1] - start > longest:
            continue
        begin, end = stored_between(starts, rows, column, first, last)
        for place in range(begin, end):
            products, entry = out[rows[place]], entries[place]
            for other in range(start, place):
                products[rows[other]] += entry * entries[other]
            products[rows[place]] += half * entry * entry


@jit
def gram_of_tiles(gemm, syrk, dictionary, data_code, first, last, grams):
    """``grams[t] = [D_t; B_t] @ [D_t; B_t].T`` (upper triangle) for some tiles t.

    gemm, syrk: addresses of BLAS; dictionary, data_code (p, k); grams (tiles, 2k, 2k) out.
    """
    n_features, k = dictionary.shape
    for tile in range(first, last):
        part = slice(tile * TILE, min((tile + 1) * TILE, n_features))
        atoms, statistics, gram = dictionary[part], data_code[part], grams[tile]
        add_upper_square(syrk, atoms, 0.0, gram[:k, :k])
        add_product(gemm, atoms.T, statistics, 0.0, gram[:k, k:])
        add_upper_square(syrk, statistics, 0.0, gram[k:, k:])


@jit
def update_gram(gemm, keep, codes, start, stop, with_atoms, with_statistics, with_earlier, gram):
    """Update ``gram`` (2k, 2k), that of [D; B], to that of [D; keep B + A' X], with X the rows from start to stop.

    gemm: address of BLAS for float64; codes (b, k), float64: A; with_atoms, with_statistics (m, k): ``X D'``, ``X B'``
    of all rows; with_earlier (m, m): see :func:`multiply_earlier_rows`; gram in/out, float64.
    """
    n_rows, k = codes.shape
    pairs, rows = np.empty((n_rows, n_rows)), np.empty((n_rows, 2 * k))
    for i in range(n_rows):
        for j in range(n_rows):
            pairs[i, j] = with_earlier[start + i, start + j]
        for j in range(k):
            rows[i, j] = with_atoms[start + i, j]
            rows[i, k + j] = with_statistics[start + i, j]
    # With L the lower triangle of X X', half its diagonal: (A'X)(A'X)' = A'LA + (A'LA)'. So added[k:] is half of what
    # B B' gains, and its transpose the other half.
    add_product(gemm, pairs, codes, keep, rows[:, k:])
    added = np.empty((2 * k, k))
    add_product(gemm, rows.T, codes, 0.0, added)
    for i in range(k):
        for j in range(k):
            gram[i, k + j] = keep * gram[i, k + j] + added[i, j]
            gram[k + j, i] = gram[i, k + j]
            gram[k + i, k + j] = keep * keep * gram[k + i, k + j] + added[k + i, j] + added[k + j, i]


@jit
def sweep_in_subspace(gemm, gram, code_gram, limit, least, coefficients, sizes):
    """Sweep over the atoms with the l2 ball, given inner products alone; return False if norms are lost in rounding.

    gemm: address of BLAS for float64; gram (2k, 2k) in/out: inner products of [D; B]; code_gram (k, k); limit: bound of
    the squared norm; coefficients (k, 2k) out: new D = coefficients [D; B]; sizes (k,) in/out: squared norms.

    Each vector is a row of 4k numbers, its coefficients and its inner products with all of [D; B], and both move as the
    vector itself does. Where the terms of a candidate cancel, its squared norm is rounding: it is trusted if it is at
    least ``least`` times the sum of the squared norms of the terms. Otherwise nothing but coefficients is changed.
    """
    k, floor = len(code_gram), least_curvature(code_gram)
    vectors, candidates, squares = np.zeros((2 * k, 4 * k)), np.empty((GROUP, 4 * k)), np.empty(k)
    for i in range(2 * k):
        vectors[i, i] = 1.0
        for j in range(2 * k):
            vectors[i, 2 * k + j] = gram[i, j]
    for i in range(k):
        squares[i] = gram[i, i]
    atoms, statistics = vectors[:k], vectors[k:]
    weights, at_start = sweep_weights(code_gram, GROUP, gram.dtype)
    for j in range(k):
        curvature, atom, new, size = code_gram[j, j], atoms[j], candidates[j % GROUP], 0.0
        start_candidates(gemm, weights, at_start, atoms, j, 0, 4 * k, candidates)
        if curvature <= floor:
            continue
        finish_candidate(statistics, atoms, weights, 1.0 / curvature, False, j, 0, 4 * k, candidates)
        terms = gram[k + j, k + j] / curvature**2
        for i in range(k):
            terms += weights[j, i] * weights[j, i] * squares[i]
        for i in range(2 * k):
            size += new[i] * new[2 * k + i]
        if not size >= least * terms:
            return False
        scale = np.sqrt(limit / size) if size > limit else 1.0
        for i in range(4 * k):
            atom[i] = scale * new[i]
        squares[j] = min(size, limit)
    add_product(gemm, atoms[:, 2 * k :], atoms[:, : 2 * k].T, 0.0, gram[:k, :k])
    for i in range(k):
        if code_gram[i, i] > floor:
            sizes[i] = squares[i]
        for j in range(2 * k):
            coefficients[i, j] = atoms[i, j]
        for j in range(k):
            gram[i, k + j] = atoms[i, 3 * k + j]
            gram[k + j, i] = atoms[i, 3 * k + j]
    return True


@jit
def update_rows(gemm, keep, codes, coefficients, start, stop, with_earlier, with_statistics, with_atoms, with_moved):
    """``X B', X D' = keep X B' + X X_b' A, coefficients applied to both``, for the rows X after a batch X_b.

    codes (b, k): A, of the rows from start to stop; coefficients (k, 2k): see :func:`sweep_in_subspace`; with_earlier
    (m, m); with_statistics (m, k) in/out; with_atoms (m, k): before the step; with_moved (m, k) out: after it.
    """
    k = codes.shape[1]
    statistics, moved = with_statistics[stop:], with_moved[stop:]
    add_product(gemm, with_earlier[stop:, start:stop], codes, keep, statistics)
    add_product(gemm, with_atoms[stop:], coefficients[:, :k].T, 0.0, moved)
    add_product(gemm, statistics, coefficients[:, k:].T, 1.0, moved)


@jit
def combine(
    gemm, starts, rows, entries, from_atoms, from_statistics, from_rows, keep, first, last, dictionary, data_code
):
    """``[D, B] = [D @ from_atoms + B @ from_statistics, keep * B] + X.T @ from_rows`` on some tiles, in place.

    from_atoms, from_statistics (k, k); from_rows (m, 2k); dictionary, data_code (p, k) in/out: D and B.
    """
    n_features, k = dictionary.shape
    new = np.empty((PANEL, 2 * k), dictionary.dtype)
    for start in range(first * TILE, min(last * TILE, n_features), PANEL):
        stop = min(start + PANEL, n_features)
        moved = new[: stop - start, :k]
        add_product(gemm, dictionary[start:stop], from_atoms, 0.0, moved)
        add_product(gemm, data_code[start:stop], from_statistics, 1.0, moved)
        for feature in range(start, stop):
            total, atoms, statistics = new[feature - start], dictionary[feature], data_code[feature]
            for j in range(k):
                total[k + j] = keep * statistics[j]
            for place in range(starts[feature], starts[feature + 1]):
                source, entry = from_rows[rows[place]], entries[place]
                for j in range(2 * k):
                    total[j] += entry * source[j]
            for j in range(k):
                atoms[j] = total[j]
                statistics[j] = total[k + j]
