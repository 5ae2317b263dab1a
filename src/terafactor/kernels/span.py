"""The parts of :mod:`terafactor.solver.span` that touch features or stored entries.

Rows come compressed by column, as ``starts``, ``rows`` (ascending) and ``entries``. The first two are unsigned: an
index that may be negative costs a comparison, which in loops as short as these doubles the time. Matrices over features
are transposed, (p, k), each feature contiguous.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._blas import (
    add_product,
    add_product_transposed,
    product,
    product_transposed,
    transposed_product,
    transposed_square_upper,
)
from terafactor.kernels._jit import jit
from terafactor.kernels._rows import add_to_rows, add_up_rows
from terafactor.kernels.accumulation import PANEL
from terafactor.kernels.atoms import least_curvature

ONE, FOUR = np.uint64(1), np.uint64(4)


@jit
def places_of(starts, rows, column, first, last):
    """Return the places of the entries of a column that lie in rows from first to last."""
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
        begin, end = places_of(starts, rows, feature, first, last)
        add_to_rows(matrix, feature, rows, entries, np.int64(begin), np.int64(end), out)


@jit
def multiply_earlier_rows(starts, rows, entries, longest, first, last, out):
    """``out[i, j] += X[i] X[j]'`` for rows i from first to last and every j < i, and half of it for j = i.

    Columns of more than ``longest`` entries are left out. The cost is that of the pairs of entries that share a column,
    of which sparse rows have few. Four rows at a time: what they are multiplied with is looked up once for four.
    """
    half = entries.dtype.type(0.5)
    for column in range(len(starts) - 1):
        start = starts[column]
        if starts[column + 1] - start > longest:
            continue
        begin, end = places_of(starts, rows, column, first, last)
        place = begin
        while place + FOUR <= end:
            one, two, three = place + ONE, place + np.uint64(2), place + np.uint64(3)
            e0, e1, e2, e3 = entries[place], entries[one], entries[two], entries[three]
            row0, row1, row2 = rows[place], rows[one], rows[two]
            out0, out1, out2, out3 = out[row0], out[row1], out[row2], out[rows[three]]
            for other in range(start, place):
                row, entry = rows[other], entries[other]
                out0[row] += e0 * entry
                out1[row] += e1 * entry
                out2[row] += e2 * entry
                out3[row] += e3 * entry
            out1[row0] += e1 * e0
            out2[row0] += e2 * e0
            out2[row1] += e2 * e1
            out3[row0] += e3 * e0
            out3[row1] += e3 * e1
            out3[row2] += e3 * e2
            place += FOUR
        for later in range(place, end):
            products, entry = out[rows[later]], entries[later]
            for other in range(start, later):
                products[rows[other]] += entry * entries[other]
        for place in range(begin, end):
            row, entry = rows[place], entries[place]
            out[row, row] += half * entry * entry


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
def absorb_in_span(gemm, first, last, keep, codes, with_atoms, with_statistics, with_earlier, gram):
    """Make ``gram`` (2k, 2k) that of [D; keep B + A' X], with X the rows from first to last and A their ``codes``.

    gemm: address of BLAS for float64; codes (b, k), float64; with_atoms, with_statistics (m, k): ``X D'``, ``X B'``;
    with_earlier (m, m): see :func:`multiply_earlier_rows`.
    """
    n_rows, k = codes.shape
    products, rows = np.empty((n_rows, n_rows)), np.empty((n_rows, 2 * k))
    for i in range(n_rows):
        for j in range(n_rows):
            products[i, j] = with_earlier[first + i, first + j]
    product(gemm, n_rows, k, n_rows, products, 0, n_rows, codes, 0, k, rows, k, 2 * k)
    for i in range(n_rows):
        for j in range(k):
            rows[i, j] = with_atoms[first + i, j]
            rows[i, k + j] += keep * with_statistics[first + i, j]
    added = np.empty((2 * k, k))  # [D A' X; B A' X and half of A' X X' A], transposed
    transposed_product(gemm, 2 * k, k, n_rows, rows, 0, 2 * k, codes, 0, k, added, 0, k)
    for i in range(k):
        for j in range(k):
            gram[i, k + j] = keep * gram[i, k + j] + added[i, j]
            gram[k + j, i] = gram[i, k + j]
            gram[k + i, k + j] = keep * keep * gram[k + i, k + j] + added[k + i, j] + added[k + j, i]


@jit
def sweep_in_span(gemm, gram, code_gram, limit, least, moves, sizes):
    """Sweep over the atoms, each a combination of atoms and statistics, onto the l2 ball; tell whether it could be.

    gemm: address of BLAS for float64; gram (2k, 2k) in/out: inner products of [D; B]; code_gram (k, k); limit: bound of
    the squared norm; moves (k, 2k) out: new D = moves [D; B]; sizes (k,) in/out: squared norms of those moved.

    Atom j becomes ``(b_j - sum over others of c_ji d_i) / c_jj``, and so do its coefficients and its inner products
    with all of [D; B], as sums of those of the others, each as it is when j's turn comes. Where these cancel, and
    ``least`` times the sum of their squares is more than the square of the sum, its norm is lost in rounding: then
    nothing is changed but ``moves``.
    """
    k, floor = len(code_gram), least_curvature(code_gram)
    products, squares = gram[:k].copy(), np.diag(gram)[:k].copy()  # moves gram; squared norms
    everyone, shares = np.arange(k), np.empty(k)
    moves[:] = 0
    for j in range(k):
        moves[j, j] = 1.0
    for j in range(k):
        curvature = code_gram[j, j]
        if curvature <= floor:
            continue
        moves[j], products[j] = 0.0, gram[k + j] / curvature
        moves[j, k + j] = 1.0 / curvature
        terms = gram[k + j, k + j] / curvature**2
        for i in range(k):
            shares[i] = 0.0 if i == j else -code_gram[j, i] / curvature
            terms += shares[i] * shares[i] * squares[i]
        add_up_rows(moves, everyone, shares, 0, k, moves, j)
        add_up_rows(products, everyone, shares, 0, k, products, j)
        size = 0.0
        for at in range(2 * k):
            size += moves[j, at] * products[j, at]
        if not size >= least * terms:
            return False
        if size > limit:
            scale = np.sqrt(limit / size)
            moves[j] *= scale
            products[j] *= scale
            size = limit
        squares[j] = size
    product_transposed(gemm, k, k, 2 * k, products, 0, 2 * k, moves, 0, 2 * k, gram, 0, 2 * k)
    for i in range(k):
        if code_gram[i, i] > floor:
            sizes[i] = squares[i]
        for j in range(k):
            gram[i, k + j] = products[i, k + j]
            gram[k + j, i] = products[i, k + j]
    return True


@jit
def advance_rows(gemm, first, last, keep, codes, moves, with_earlier, with_statistics, with_atoms, with_moved):
    """Make the inner products of the rows after ``last`` those with statistics and atoms after a step.

    codes (b, k), of the rows from first to last, and moves (k, 2k): as in :func:`absorb_in_span` and
    :func:`sweep_in_span`, in the precision of the rest; with_statistics (m, k) in/out; with_atoms (m, k): before;
    with_moved (m, k) out.
    """
    n_rows, k = with_atoms.shape
    n_later, at = n_rows - last, last * k
    add_product(
        gemm, n_later, k, last - first, with_earlier, last * n_rows + first, n_rows, codes, 0, k,
        keep, with_statistics, at, k,
    )  # fmt: skip
    product_transposed(gemm, n_later, k, k, with_atoms, at, k, moves, 0, 2 * k, with_moved, at, k)
    add_product_transposed(gemm, n_later, k, k, with_statistics, at, k, moves, k, 2 * k, 1.0, with_moved, at, k)


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
        add_product(gemm, width, k, k, data_code, start * k, k, from_statistics, 0, k, 1.0, new, 0, 2 * k)
        for i in range(width):
            total, atoms, statistics = new[i], dictionary[start + i], data_code[start + i]
            for j in range(k):
                total[k + j] = keep * statistics[j]
            begin, end = np.int64(starts[start + i]), np.int64(starts[start + i + 1])
            add_up_rows(from_rows, rows, entries, begin, end, new, i)
            for j in range(k):
                atoms[j] = total[j]
                statistics[j] = total[k + j]
