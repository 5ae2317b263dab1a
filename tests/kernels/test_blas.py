"""Matrix products inside kernels equal those of NumPy, on slices and transposes, through either BLAS."""

import numpy as np
import pytest
from numba import njit

from terafactor.kernels import blas
from terafactor.kernels.blas import add_product, add_upper_square, address

DTYPES = [np.float32, np.float64]


@njit
def product(gemm, a, b, keep, c):
    add_product(gemm, a, b, keep, c)


@njit
def upper_square(syrk, a, keep, c):
    add_upper_square(syrk, a, keep, c)


@pytest.fixture(params=["OpenBLAS", "SciPy"])
def routine(request):
    """Return a function that finds BLAS routines, in the newest OpenBLAS or through SciPy."""
    if request.param == "OpenBLAS":
        return lambda name, dtype: address(name, np.dtype(dtype))
    return lambda name, dtype: blas._scipy_address(("s" if dtype == np.float32 else "d") + name)


def inside(matrix, order):
    """Return the matrix as a slice of a larger one, contiguous by rows or by columns, that is NaN around it."""
    large = np.full((matrix.shape[0] + 2, matrix.shape[1] + 3), np.nan, matrix.dtype, order=order)
    large[1:-1, 1:-2] = matrix
    return large[1:-1, 1:-2]


def assert_only_inside(matrix):
    assert np.isnan(matrix.base).sum() == matrix.base.size - matrix.size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 1, 3), (1, 6, 2), (3, 5, 7)])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_add_product(routine, dtype, orders, shape, keep):
    random, (m, n, k) = np.random.default_rng(0), shape
    a, b, c = (random.standard_normal(size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    out = inside(c if keep else np.full_like(c, np.inf), "C")  # with keep 0, what is there does not count
    product(routine("gemm", dtype), inside(a, orders[0]), inside(b, orders[1]), keep, out)
    np.testing.assert_allclose(out, keep * c + a @ b, rtol=1e-5, atol=1e-5)
    assert_only_inside(out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (6, 1), (6, 4)])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_add_upper_square(routine, dtype, order, shape, keep):
    random = np.random.default_rng(0)
    a, c = random.standard_normal(shape).astype(dtype), random.standard_normal((shape[1], shape[1])).astype(dtype)
    out = inside(c, "C")
    upper_square(routine("syrk", dtype), inside(a, order), keep, out)
    np.testing.assert_allclose(np.triu(out), np.triu(keep * c + a.T @ a), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.tril(out, -1), np.tril(c, -1))
    assert_only_inside(out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["gemm", "syrk"])
def test_without_openblas_routines_come_from_scipy(dtype, name, monkeypatch):
    monkeypatch.setattr(blas, "_openblas_libraries", list)
    address.cache_clear()
    letter = "s" if dtype == np.float32 else "d"
    try:
        assert address(name, np.dtype(dtype)) == blas._scipy_address(letter + name) != 0
    finally:
        address.cache_clear()
