"""Matrix products over tiles of features equal those of NumPy."""

import numpy as np
import pytest

from terafactor._threads import TILE
from terafactor.kernels.blas import address
from terafactor.kernels.statistics import (
    ROUNDING,
    add_grams,
    blend_sparse_codes,
    blend_tiles,
    blend_weighted_tiles,
    correlate_tiles,
)

B, K, S = 4, 3, 2 * TILE + 5
TILES = [slice(0, TILE), slice(TILE, 2 * TILE), slice(2 * TILE, S)]
TOLERANCE = {np.float32: {"rtol": 1e-4, "atol": 1e-3}, np.float64: {"rtol": 1e-12, "atol": 1e-12}}


def make(dtype):
    """Return values (B, S), atoms (K, S), codes (B, K) with zeros, and statistics (K, S)."""
    random = np.random.default_rng(0)
    values, atoms, codes, data_code = (random.standard_normal(size) for size in ((B, S), (K, S), (B, K), (K, S)))
    return (array.astype(dtype) for array in (values, atoms, codes * (random.random((B, K)) < 0.7), data_code))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_rows", "with_grams"), [(B, True), (0, True), (B, False)])
def test_correlate_tiles(dtype, n_rows, with_grams):
    values, atoms, _, _ = make(dtype)
    values = values[:n_rows]
    grams = np.full((3 if with_grams else 0, K, K), np.nan, dtype)
    products = np.full((3, n_rows, K), np.nan, dtype)
    gemm, syrk = (address(name, np.dtype(dtype)) for name in ("gemm", "syrk"))
    correlate_tiles(gemm, syrk, values, atoms, 1, 3, grams, products)
    assert np.isnan(products[:1]).all()
    assert np.isnan(grams[:1]).all()
    for tile, part in list(enumerate(TILES))[1:]:
        np.testing.assert_allclose(products[tile], values[:, part] @ atoms[:, part].T, **TOLERANCE[dtype])
        if with_grams:
            expected = atoms[:, part] @ atoms[:, part].T
            np.testing.assert_allclose(np.triu(grams[tile]), np.triu(expected), **TOLERANCE[dtype])


def test_sums_over_tiles():
    parts, precision = np.random.default_rng(0).standard_normal((4, K, K)), 1e-3
    upper = np.triu(parts.sum(axis=0))
    total = upper + np.triu(upper, 1).T
    ridge = ROUNDING * precision * np.linalg.norm(total)
    np.testing.assert_allclose(add_grams(parts, precision), total + ridge * np.eye(K))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_weights", [1, S])
@pytest.mark.parametrize("skip_zeros", [False, True])
def test_blend(dtype, n_weights, skip_zeros):
    values, _, codes, data_code = make(dtype)
    random = np.random.default_rng(1)
    keep, take = (random.uniform(0.2, 2, n_weights).astype(dtype) for _ in range(2))
    expected = keep * data_code + take * (codes.T @ values)
    expected[:, :TILE] = data_code[:, :TILE]  # the first tile belongs to another thread
    if skip_zeros:
        blend_sparse_codes(codes, values, keep, take, 1, 3, data_code)
    else:
        gemm = address("gemm", np.dtype(dtype))
        if n_weights == 1:
            blend_tiles(gemm, codes * take, values, keep[0], 1, 3, data_code)
        else:
            blend_weighted_tiles(gemm, codes, values, keep, take, 1, 3, data_code)
    np.testing.assert_allclose(data_code, expected, rtol=1e-4, atol=1e-5)
