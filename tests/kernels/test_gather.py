"""Gathering and scattering mean what their docstrings say, in both memory orders."""

import numpy as np
import pytest

from terafactor.kernels.gather import gather_columns, gather_features, scatter_columns, scatter_features


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
def test_gather_columns(order):
    random = np.random.default_rng(0)
    matrix = np.asarray(random.standard_normal((9, 30)), order=order)
    rows, columns = np.array([7, 0, 3, 8, 1, 0]), np.array([1, 2, 20, 29])
    out = np.zeros((6, 4))
    gather_columns(matrix, rows, columns, 1, 3, out)
    np.testing.assert_array_equal(out[:, 1:3], matrix[np.ix_(rows, [2, 20])])
    assert not out[:, [0, 3]].any()


def test_scatter_columns():
    matrix, columns = np.random.default_rng(0).standard_normal((9, 30)), np.array([1, 2, 20, 29])
    expected = matrix.copy()
    values = np.arange(36.0).reshape(9, 4)
    expected[:, [2, 20]] = values[:, 1:3]
    scatter_columns(values, columns, 1, 3, matrix)
    np.testing.assert_array_equal(matrix, expected)
