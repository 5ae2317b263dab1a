"""The parts of :mod:`terafactor.solver.learners.sparse` that touch features or stored entries.

Rows come compressed by column, as ``starts``, ``rows`` (ascending) and ``entries``. The first two are unsigned: an
index that may be negative costs a comparison, which in loops as short as these doubles the time. Matrices over features
are transposed, (p, k), each feature contiguous.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.atoms import least_curvature
from terafactor.kernels.blas import add_product, add_upper_square
from terafactor.kernels.jit import jit

ONE = np.uint64(1)

PANEL = 1024
"""Features that are combined at once, in the caches; divides ``TILE``."""


@jit
def stored_between(starts, rows, column, first, last):
    """Return the range of the entries of a column that lie in rows from first to last."""
    begin, end = starts[column], starts[column + 1]
    while begin < end and rows[begin] < first:
        begin += ONE
    while begin < end and rows[end - ONE] >= last:
        end -= ONE
    return begin, end


@jit
def multiply_stored(starts, rows, entries, matrix, first, last, out):
    """``out += X matrix`` for rows from first to last. matrix (p, k), read once in order; out (m, k) in/out."""
    for feature in range(len(matrix)):
        begin, end = stored_between(starts, rows, feature, first, last)
        source = matrix[feature]
        for place in range(begin, end):
            target, entry = out[rows[place]], entries[place]
            for j in range(len(source)):
                target[j] += entry * source[j]


@jit
def multiply_earlier_rows(starts, rows, entries, longest, first, last, out):
    """``out[i, j] += X[i] X[j]'`` for rows i from first to last and every j < i, and half of it for j = i.

    Columns of more than ``longest`` entries are left out. The cost is that of the pairs of entries that share a column,
    of which sparse rows have few.
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
def inner_products_of_features(gemm, syrk, dictionary, data_code, first, last, grams):
    """Put the upper triangle of ``[D; B] [D; B]'`` of some tiles in ``grams`` (tiles, 2k, 2k).

    dictionary, data_code (p, k).
    """
    n_features, k = dictionary.shape
    for tile in range(first, last):
        part = slice(tile * TILE, min((tile + 1) * TILE, n_features))
        atoms, statistics, gram = dictionary[part], data_code[part], grams[tile]
        add_upper_square(syrk, atoms, 0.0, gram[:k, :k])
        add_product(gemm, atoms.T, statistics, 0.0, gram[:k, k:])
        add_upper_square(syrk, statistics, 0.0, gram[k:, k:])


@jit
def absorb_rows(gemm, keep, codes, with_atoms, with_statistics, with_each_other, gram):
    """Make ``gram`` (2k, 2k) that of [D; keep B + A' X], with X the rows of a batch and A their ``codes``.

    gemm: address of BLAS for float64; codes, with_atoms = ``X D'`` (b, k); with_statistics = ``X B'`` (b, k),
    overwritten; with_each_other (b, b): see :func:`multiply_earlier_rows`; all float64.
    """
    k = codes.shape[1]
    added = np.empty((2 * k, k))  # [D X' A; (keep B + half of A' X) X' A], transposed
    add_product(gemm, with_atoms.T, codes, 0.0, added[:k])
    add_product(gemm, with_each_other, codes, keep, with_statistics)
    add_product(gemm, with_statistics.T, codes, 0.0, added[k:])
    for i in range(k):
        for j in range(k):
            gram[i, k + j] = keep * gram[i, k + j] + added[i, j]
            gram[k + j, i] = gram[i, k + j]
            gram[k + i, k + j] = keep * keep * gram[k + i, k + j] + added[k + i, j] + added[k + j, i]


@jit
def sweep_combinations(gemm, gram, code_gram, limit, least, moves, sizes):
    """Sweep over the atoms, each a combination of atoms and statistics, onto the l2 ball; return whether it could be.

    gemm: address of BLAS for float64; gram (2k, 2k) in/out: inner products of [D; B]; code_gram (k, k); limit: bound of
    the squared norm; moves (k, 2k) out: new D = moves [D; B]; sizes (k,) in/out: squared norms of those moved.

    Atom j becomes ``(b_j - sum over others of c_ji d_i) / c_jj``, and so do its coefficients and its inner products
    with all of [D; B], as sums of those of the others, each as it is when j's turn comes. Where these cancel, and
    ``least`` times the sum of their squares is more than the square of the sum, its norm is lost in rounding: then
    nothing is changed.
    """
    k, floor = len(code_gram), least_curvature(code_gram)
    both, squares = np.zeros((k, 4 * k)), np.empty(k)  # [moves, moves gram]; squared norms
    for j in range(k):
        both[j, j] = 1.0
        squares[j] = gram[j, j]
        for at in range(2 * k):
            both[j, 2 * k + at] = gram[j, at]
    for j in range(k):
        curvature, row = code_gram[j, j], both[j]
        if curvature <= floor:
            continue
        for at in range(2 * k):
            row[at] = 1.0 / curvature if at == k + j else 0.0
            row[2 * k + at] = gram[k + j, at] / curvature
        terms = gram[k + j, k + j] / curvature**2
        for i in range(k):
            if i != j:
                share, other = -code_gram[j, i] / curvature, both[i]
                terms += share * share * squares[i]
                for at in range(4 * k):
                    row[at] += share * other[at]
        size = 0.0
        for at in range(2 * k):
            size += row[at] * row[2 * k + at]
        if not size >= least * terms:
            return False
        scale = np.sqrt(limit / size) if size > limit else 1.0
        for at in range(4 * k):
            row[at] *= scale
        squares[j] = min(size, limit)
    add_product(gemm, both[:, 2 * k :], both[:, : 2 * k].T, 0.0, gram[:k, :k])
    for i in range(k):
        if code_gram[i, i] > floor:
            sizes[i] = squares[i]
        for j in range(2 * k):
            moves[i, j] = both[i, j]
        for j in range(k):
            gram[i, k + j] = both[i, 3 * k + j]
            gram[k + j, i] = both[i, 3 * k + j]
    return True


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
