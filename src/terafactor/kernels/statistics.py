"""Matrix products over tiles of features: the inputs of the codes, and the update of the statistics."""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.blas import add_product, add_upper_square
from terafactor.kernels.jit import jit

ROUNDING = 4
"""Bound on the error of a Gram matrix, relative to its norm times the precision of the data: twice that measured."""


@jit
def correlate_tiles(gemm, syrk, values, atoms, first, last, grams, products):
    """``grams[t] = atoms_t @ atoms_t.T`` (upper triangle) and ``products[t] = values_t @ atoms_t.T`` for some tiles t.

    gemm, syrk: addresses of BLAS; values (b, s), atoms (k, s); first, last: which tiles; grams (tiles, k, k) and
    products (tiles, b, k) out. An empty ``values`` or ``grams`` skips its part.
    """
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, atoms.shape[1])
        if len(grams):
            add_upper_square(syrk, atoms[:, start:stop].T, 0.0, grams[tile])
        if len(values):
            add_product(gemm, values[:, start:stop], atoms[:, start:stop].T, 0.0, products[tile])


@jit
def add_grams(grams, precision):
    """Return ``grams.sum(axis=0)``, float64, of the upper triangles in ``grams`` (tiles, k, k); symmetric, regularized.

    Where atoms are linearly dependent, as in data without noise, some combination v of them is zero, and so should be
    ``v' D D' v`` and ``x D' v``. Rounding makes both nonzero, of either sign: without a ridge that outweighs the first,
    the objective may be unbounded along v. So the diagonal is raised by the size of these errors. precision: relative
    error of one operation.
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
    """Add to the diagonal of a Gram matrix (k, k), in place, a bound on its rounding error."""
    squares = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            squares += gram[i, j] * gram[i, j]
    ridge = ROUNDING * precision * np.sqrt(squares)
    for i in range(len(gram)):
        gram[i, i] += ridge


@jit
def blend_tiles(gemm, codes, values, keep, first, last, data_code):
    """``data_code = keep * data_code + codes.T @ values`` on some tiles.

    gemm: address of BLAS; codes (b, k), values (b, s); keep: a number; data_code (k, s) in/out.
    """
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, values.shape[1])
        add_product(gemm, codes.T, values[:, start:stop], keep, data_code[:, start:stop])


@jit
def blend_weighted_tiles(gemm, codes, values, keep, take, first, last, data_code):
    """``data_code = keep * data_code + take * (codes.T @ values)`` on some tiles, with keep, take (s,).

    ``take`` is multiplied into the values, so that one matrix product adds to what is kept.
    """
    n_features = values.shape[1]
    scaled = np.empty((len(values), min(TILE, n_features)), values.dtype)
    for tile in range(first, last):
        start, stop = tile * TILE, min((tile + 1) * TILE, n_features)
        for i in range(len(values)):
            multiply(values[i, start:stop], take[start:stop], scaled[i])
        for j in range(len(data_code)):
            multiply(data_code[j, start:stop], keep[start:stop], data_code[j, start:stop])
        add_product(gemm, codes.T, scaled[:, : stop - start], 1.0, data_code[:, start:stop])


@jit
def blend_sparse_codes(codes, values, keep, take, first, last, data_code):
    """``data_code = keep * data_code + take * (codes.T @ values)`` on some tiles, skipping zeros among the codes.

    keep, take: (s,), or (1,) each where features do not differ. Saves a tenth of a lasso step where one code in ten is
    not zero.
    """
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
    """``out[: len(values)] = values * factors``."""
    for i in range(len(values)):
        out[i] = values[i] * factors[i]
