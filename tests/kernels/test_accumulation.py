"""Gathering, scattering and blending mean what their docstrings say, in both memory orders."""

import numpy as np
import pytest

from terafactor._threads import TILE, Executor
from terafactor.kernels._blas import address
from terafactor.kernels._dots import FEW
from terafactor.kernels.accumulation import (
    batch_weights,
    blend,
    blend_features,
    blend_product,
    blend_sparse_product,
    code_sums,
    gather_features,
    gather_values,
    scatter_columns,
    scatter_features,
)
from terafactor.problem.problem import correlate


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [1, 5, 8, 9, 20])
@pytest.mark.parametrize("n_observed", [0, 1, 15, 16, 17, 60])
def test_gather_and_scatter(dtype, n_components, n_observed):
    random = np.random.default_rng(0)
    matrix = np.asarray(random.standard_normal((n_components, 60)), dtype, order="F")
    columns = np.sort(random.permutation(60)[:n_observed])
    out = np.empty((n_components, n_observed), dtype)
    gather_features(matrix.T, columns, 0, n_observed, out)
    np.testing.assert_array_equal(out, matrix[:, columns])
    expected = matrix.copy()
    expected[:, columns] = -out
    scatter_features(-out, columns, 0, n_observed, matrix.T)
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_gather_values(order):
    random = np.random.default_rng(0)
    matrix = np.asarray(random.standard_normal((9, 30)), order=order)
    rows, columns = np.array([7, 0, 3, 8, 1, 0]), np.array([1, 2, 20, 29])
    out = np.zeros((6, 4))
    gather_values(matrix, rows, columns, 1, 3, out)
    np.testing.assert_array_equal(out[:, 1:3], matrix[np.ix_(rows, [2, 20])])
    assert not out[:, [0, 3]].any()


def test_scatter_columns():
    matrix, columns = np.random.default_rng(0).standard_normal((9, 30)), np.array([1, 2, 20, 29])
    expected = matrix.copy()
    values = np.arange(36.0).reshape(9, 4)
    expected[:, [2, 20]] = values[:, 1:3]
    scatter_columns(values, columns, 1, 3, matrix)
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blend(dtype):
    random = np.random.default_rng(0)
    matrix, sums = random.standard_normal((2, 4, 50)).astype(dtype)
    feature_rows = random.integers(0, 4, 50)
    before = random.integers(0, 20, 50)
    counts = feature_rows + before
    gain = 1.7
    weights = np.minimum(1, gain * feature_rows / np.maximum(counts, 1))
    expected = (1 - weights) * matrix + weights * sums / np.maximum(feature_rows, 1)
    keep, take = np.empty((2, 50), dtype)
    batch_weights(feature_rows, np.arange(50), before, gain, keep, take)
    np.testing.assert_array_equal(before, counts)
    some = np.array([3, 17, 49])
    by_feature = np.ascontiguousarray(matrix.T)
    blend_features(by_feature, some, np.ascontiguousarray(sums.T[some]), keep[some], take[some], 0, 3)
    np.testing.assert_allclose(by_feature.T[:, some], expected[:, some], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.delete(by_feature.T, some, axis=1), np.delete(matrix, some, axis=1))
    blend(matrix, sums, keep, take, 0, 30)
    blend(matrix, sums, keep, take, 30, 50)
    np.testing.assert_allclose(matrix, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keep", [0.0, 0.7])
def test_blend_product(dtype, keep):
    random = np.random.default_rng(0)
    n_features = TILE + 70
    codes = (random.standard_normal((9, 4)) * (random.random((9, 4)) < 0.3)).astype(dtype)
    codes[:, 2] = 0
    matrix, numbers = random.standard_normal((20, n_features)).astype(dtype), random.permutation(20)[:9]
    values = matrix[numbers]
    before = random.standard_normal((4, n_features)).astype(dtype) if keep else np.full((4, n_features), np.nan, dtype)
    expected = (keep * before if keep else 0) + codes.T @ values
    take = random.random(n_features).astype(dtype)
    dense, sparse, gemm = before.copy(), before.copy(), address("gemm", np.dtype(dtype))
    for start, stop in ((0, 30), (30, n_features)):
        blend_product(gemm, codes, values, dtype(keep), start, stop, dense)
        blend_sparse_product(codes, matrix, numbers, np.full(n_features, keep, dtype), take, start, stop, sparse)
    np.testing.assert_allclose(dense, expected, rtol=1e-5, atol=1e-6)
    kept = expected - codes.T @ values
    np.testing.assert_allclose(sparse, kept + take * (codes.T @ values), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_code_sums(dtype):
    codes = np.random.default_rng(0).standard_normal((9, 4)).astype(dtype)
    codes[:, 2] = 0
    gram, used = np.empty((4, 4)), np.empty(4, np.bool_)
    absolute, squares = code_sums(address("syrk", np.dtype(np.float64)), codes, np.empty((9, 4)), gram, used)
    precise = codes.astype(np.float64)
    np.testing.assert_allclose(gram, precise.T @ precise)
    np.testing.assert_allclose([absolute, squares], [np.abs(precise).sum(), (precise**2).sum()])
    assert used.tolist() == [True, True, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [5, FEW, FEW + 1])
def test_correlate(dtype, n_components):
    random = np.random.default_rng(0)
    values, atoms = (random.standard_normal((n, TILE + 30)).astype(dtype) for n in (7, n_components))
    with Executor(2) as executor:
        gram, correlations = correlate(values, atoms, executor)
    tolerance = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(gram, atoms.astype(float) @ atoms.T.astype(float), atol=tolerance)
    np.testing.assert_allclose(correlations, values.astype(float) @ atoms.T.astype(float), atol=tolerance)
