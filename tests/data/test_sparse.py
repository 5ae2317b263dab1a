"""Sparse matrices as sources."""

import numpy as np
import pytest
from scipy import sparse

from terafactor.data import SparseSource
from terafactor.errors import DataError
from terafactor.testing import SourceContract


def make_matrix(dtype=np.float64):
    return sparse.random_array((37, 23), density=0.2, rng=np.random.default_rng(0), dtype=dtype)


class TestSparseSource(SourceContract):
    def make(self, tmp_path):
        matrix = make_matrix()
        return SparseSource(matrix), matrix.toarray()


class TestAbsentIsMissing(SourceContract):
    def make(self, tmp_path):
        matrix = make_matrix(np.float32).tocsr()
        expected = np.full(matrix.shape, np.nan, np.float32)
        coordinates = matrix.tocoo()
        expected[coordinates.row, coordinates.col] = coordinates.data
        return SparseSource(matrix, absent=np.nan), expected


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_any_form_reads_the_same(form, kind):
    matrix = kind(make_matrix().tocsr()).asformat(form)
    np.testing.assert_array_equal(SparseSource(matrix).read(np.arange(37)), make_matrix().toarray())


def test_duplicates_are_added_up_and_the_given_matrix_is_left_alone():
    matrix = sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 2])), shape=(2, 3))
    np.testing.assert_array_equal(SparseSource(matrix).read(np.arange(2)), [[0, 3, 0], [0, 0, 4]])
    assert matrix.nnz == 3


def test_a_stored_nan_is_named():
    matrix = make_matrix().tocsr()
    matrix.data[5] = np.nan
    row = np.searchsorted(matrix.indptr, 5, side="right") - 1
    with pytest.raises(DataError, match=f"NaN.*row {row}, column {matrix.indices[5]}"):
        SparseSource(matrix)
    SparseSource(matrix, allow_nan=True)
