"""Matrices in memory."""

import tracemalloc

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, open_source
from terafactor.data.source import check_finite
from terafactor.errors import DataError, DataTypeError
from terafactor.testing import SourceContract


def values(dtype=np.float64):
    return np.random.default_rng(0).standard_normal((37, 23)).astype(dtype)


class TestRowMajor(SourceContract):
    def make(self, tmp_path):
        return ArraySource(values()), values()


class TestColumnMajor(SourceContract):
    def make(self, tmp_path):
        return ArraySource(np.asfortranarray(values(np.float32))), values(np.float32)


class TestStrided(SourceContract):
    def make(self, tmp_path):
        return ArraySource(np.repeat(np.repeat(values(), 2, axis=0), 3, axis=1)[::2, ::3]), values()


class TestReadOnlyMemmap(SourceContract):
    def make(self, tmp_path):
        np.save(tmp_path / "values.npy", values(np.float32))
        return ArraySource(np.load(tmp_path / "values.npy", mmap_mode="r")), values(np.float32)


class TestColumnMajorMemmap(SourceContract):
    def make(self, tmp_path):
        np.save(tmp_path / "values.npy", np.asfortranarray(values()))
        return ArraySource(np.load(tmp_path / "values.npy", mmap_mode="r")), values()


def test_errors_name_an_array_as_users_do():
    bad = values()
    bad[3, 4] = np.nan
    for source, name in [(ArraySource(bad, "counts", allow_nan=True), "counts"), (open_source(bad), "X")]:
        with pytest.raises(DataError, match=f"^{name} contains NaN at row 3, feature 4"):
            MaskedDictionaryLearning(2).fit(source)
        with pytest.raises(DataTypeError, match=f"and {name} is dense"):
            MaskedDictionaryLearning(2, missing="absent").fit(source)


@pytest.mark.parametrize("columns", [None, np.arange(0, 1000, 7)], ids=["whole rows", "some columns"])
@pytest.mark.parametrize(
    "lay_out",
    [np.ascontiguousarray, np.asfortranarray, lambda array: np.repeat(array, 2, axis=1)[:, ::2]],
    ids=["row major", "column major", "strided"],
)
def test_reading_a_few_rows_allocates_a_few_rows(lay_out, columns):
    array = lay_out(np.ones((1000, 1000)))
    source, rows = ArraySource(array), np.array([999, 3, 500])
    source.read(rows, columns)  # compiles
    tracemalloc.start()
    try:
        source.read(rows, columns)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 10


@pytest.mark.parametrize("columns", [None, np.arange(5)], ids=["whole rows", "some columns"])
def test_what_is_read_is_row_major_whatever_the_array(columns):
    assert ArraySource(np.asfortranarray(values())).read(np.arange(6), columns).flags.c_contiguous


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((3, 4), int), r"float32 or float64 .*got int64 of shape \(3, 4\)"),
        (np.ones((3, 4), ">f8"), "float32 or float64 .*got >f8"),
        (np.ones(4), r"\(rows, features\), got float64 of shape \(4,\)"),
        (np.ones((0, 4)), r"got float64 of shape \(0, 4\)"),
        ([[1.0, 2.0]], "float32 or float64 array.*got .*list"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "NaN at row 1, column 1"),
    ],
)
def test_arrays_other_than_matrices_of_finite_floats_are_refused(array, message):
    with pytest.raises(DataError, match=message):
        ArraySource(array)


@pytest.mark.parametrize("largest", [1e153, -1e153])
def test_values_whose_squares_overflow_over_many_rows_are_accepted(largest):
    check_finite(np.full((300, 50), largest))


@pytest.mark.parametrize("large", [1e20, -1e30])
def test_values_whose_squares_overflow_over_a_row_are_refused(large):
    array = np.ones((300, 50), np.float32)
    array[200, 7] = large
    with pytest.raises(
        DataError, match=r"1e\+(20|30) at row 200, column 7; the squares of such values overflow float32"
    ):
        check_finite(array)


@pytest.mark.parametrize("hidden", [np.inf, -np.inf, np.nan])
def test_the_first_bad_entry_is_found_among_values_whose_squares_overflow(hidden):
    array = np.full((300, 50), 1e153)
    array[200, 7] = hidden
    array[201, 0] = np.nan
    with pytest.raises(DataError, match="row 200, column 7"):
        check_finite(array)


def test_infinities_that_cancel_are_found():
    array = np.ones((3, 4))
    array[1, 2], array[1, 3] = np.inf, -np.inf
    with pytest.raises(DataError, match="row 1, column 2"):
        check_finite(array)
