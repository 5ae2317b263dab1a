"""Inner products in registers are those of NumPy, whatever does not fill a block or a register."""

import numpy as np
import pytest

from terafactor.kernels._dots import inner_products


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5, 6, 7, 8, 13, 40])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 3), (5, 21), (0, 64), (7, 300)])
def test_inner_products(dtype, tolerance, n_rows, start, stop):
    matrix = np.random.default_rng(0).standard_normal((n_rows, 301)).astype(dtype)
    out = np.full((n_rows, n_rows), np.nan, dtype)
    inner_products(matrix, start, stop, out)
    part = matrix[:, start:stop].astype(np.float64)
    np.testing.assert_allclose(out, part @ part.T, atol=tolerance * (stop - start))
    np.testing.assert_array_equal(out, out.T)
