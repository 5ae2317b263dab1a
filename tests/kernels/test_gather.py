"""Gathering and scattering equal NumPy indexing, in both memory orders."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from terafactor.kernels.gather import (
    check_sparse_rows,
    fill_sparse_rows,
    gather_columns,
    gather_features,
    scatter_columns,
    scatter_features,
)  # fmt: skip


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


@pytest.mark.parametrize(
    ("indices", "found", "ascending"),
    [
        ([0, 3, 1, 2, 4], -1, True),
        ([0, 3, 1, 1, 4], -1, False),
        ([3, 0, 1, 2, 4], -1, False),
        ([0, 5, 1, 2, 4], 1, True),
        ([0, 3, -1, 2, 4], 2, True),
        ([3, 0, 1, 2, 5], 4, False),
    ],
)
def test_check_sparse_rows(indices, found, ascending):
    starts = np.array([0, 2, 2, 5], np.int32)
    assert check_sparse_rows(starts, np.array(indices, np.int32), 5) == (found, ascending)


@pytest.mark.parametrize("columns", [None, [0, 4], [1, 2, 5], [3], [0, 1, 2, 3, 4, 5]], ids=str)
def test_fill_sparse_rows(columns):
    random = np.random.default_rng(0)
    dense = random.standard_normal((5, 6)) * (random.random((5, 6)) < 0.5)
    dense[1] = 0
    matrix, rows = csr_array(dense), np.array([4, 1, 0, 0])
    expected = np.where(dense == 0, np.nan, dense)[rows]
    chosen = np.arange(6) if columns is None else np.array(columns)
    out = np.full((4, len(chosen)), np.nan)
    fill_sparse_rows(matrix.indptr, matrix.indices, matrix.data, rows, chosen, columns is None, out)
    np.testing.assert_array_equal(out, expected[:, chosen])
