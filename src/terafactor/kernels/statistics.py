"""Matrix products over tiles of features: what codes are found from, and the update of the statistics."""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.blas import add_product, add_upper_square
from terafactor.kernels.jit import jit

ROUNDING = 4
"""Error of a Gram matrix, at the most, in units of its norm times the precision of the data; twice what was met."""


@jit
def correlate_tiles(gemm, syrk, values, atoms, first, last, grams, products):
    """``grams[t] = atoms_t @ atoms_t.T`` (upper triangle) and ``products[t] = values_t @ atoms_t.T`` for some tiles t.

    gemm, syrk: addresses of BLAS; values (b, s), atoms (k, s); first, last: which tiles; grams (tiles, k, k) and
    products (tiles, b, k) out. Without rows, or with ``grams`` empty, that part is left out.
    """
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, atoms.shape[1])
        if len(grams):
            add_upper_square(syrk, atoms[:, start:stop].T, 0.0, grams[tile])
        if len(values):
            add_product(gemm, values[:, start:stop], atoms[:, start:stop].T, 0.0, products[tile])


@jit
def add_grams(grams, precision):
    """Return the sum of ``grams`` (tiles, k, k), of which the upper triangles count, in float64, made definite.

    Where atoms depend on each other, as in data without noise, some combination v of them is zero, and so should be
    ``v' D D' v`` and ``x D' v``. Both are rounding errors of either sign: without a ridge that outweighs the first, the
    objective falls along v without end, unless an l1 term is strong enough, and codes have no bound. So the diagonal is
    raised by the size of these errors. precision: relative error of one operation.
    """
    n_tiles, k, _ = grams.shape
    total = np.zeros((k, k))
    for tile in range(n_tiles):
        for i in range(k):
            for j in range(i, k):
                total[i, j] += grams[tile, i, j]
    for i in range(k):
        for j in range(i):
            total[i, j] = total[j, i]
    add_rounding(total, precision)
    return total


@jit
def add_rounding(gram, precision):
    """Raise the diagonal of a Gram matrix (k, k), in place, by its rounding error."""
    squares = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            squares += gram[i, j] * gram[i, j]
    ridge = ROUNDING * precision * np.sqrt(squares)
    for i in range(len(gram)):
        gram[i, i] += ridge


@jit
def add_parts(parts):
    """``parts.sum(axis=0)`` for ``parts`` (n, a, b), in float64 and one after the other."""
    n_parts, n_rows, n_columns = parts.shape
    total = np.zeros((n_rows, n_columns))
    for part in range(n_parts):
        for i in range(n_rows):
            for j in range(n_columns):
                total[i, j] += parts[part, i, j]
    return total


@jit
def blend_tiles(gemm, codes, values, keep, take, first, last, data_code):
    """``data_code = keep * data_code + take * (codes.T @ values)`` on some tiles.

    gemm: address of BLAS; codes (b, k), values (b, s); keep, take (s,), or (1,) each if they are the same for all
    features; data_code (k, s) in/out. The product is added where it belongs by one call per tile: ``take`` goes into
    the codes if it can, else into the values, and ``keep`` into what is there.
    """
    n_features, uniform = values.shape[1], len(keep) == 1
    weighted = np.empty(codes.shape, codes.dtype)
    for i in range(len(codes)):
        for j in range(codes.shape[1]):
            weighted[i, j] = codes[i, j] * take[0] if uniform else codes[i, j]
    scaled = np.empty((len(values), min(TILE, n_features)), values.dtype)
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, n_features)
        if uniform:
            add_product(gemm, weighted.T, values[:, start:stop], keep[0], data_code[:, start:stop])
            continue
        for i in range(len(values)):
            multiply(values[i, start:stop], take[start:stop], scaled[i])
        for j in range(len(data_code)):
            multiply(data_code[j, start:stop], keep[start:stop], data_code[j, start:stop])
        add_product(gemm, weighted.T, scaled[:, : stop - start], 1.0, data_code[:, start:stop])


@jit
def blend_sparse_codes(codes, values, keep, take, first, last, data_code):
    """:func:`blend_tiles` without a look at codes that are zero: a fifth of a lasso step where one in six is not."""
    n_features, uniform = values.shape[1], len(keep) == 1
    total = np.empty(min(TILE, n_features), values.dtype)
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, n_features)
        added = total[: stop - start]
        for j in range(len(data_code)):
            for f in range(len(added)):
                added[f] = values.dtype.type(0)
            for row in range(len(values)):
                code, source = codes[row, j], values[row, start:stop]
                if code != 0:
                    for f in range(len(added)):
                        added[f] += code * source[f]
            entries = data_code[j, start:stop]
            if uniform:
                for f in range(len(entries)):
                    entries[f] = keep[0] * entries[f] + take[0] * added[f]
            else:
                old, new = keep[start:stop], take[start:stop]
                for f in range(len(entries)):
                    entries[f] = old[f] * entries[f] + new[f] * added[f]


@jit
def multiply(values, factors, out):
    """``out = values * factors``, as far as these go."""
    for i in range(len(values)):
        out[i] = values[i] * factors[i]
