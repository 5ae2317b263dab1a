"""Tests that every source must pass."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource, open_description
from terafactor.data.source import SourceView


class CountingSource(SourceView):
    """Source that reads from another one, and counts reads and values.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import ArraySource
    >>> from terafactor.testing import CountingSource
    >>> source = CountingSource(ArraySource(np.ones((4, 3))))
    >>> source.read(np.array([0, 1])).shape, source.n_values
    ((2, 3), 6)
    """

    def __init__(self, base: MatrixSource) -> None:
        super().__init__(base)
        self.n_reads = 0
        self.n_values = 0

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        values = super().read(rows, columns)
        self.n_reads += 1
        self.n_values += values.size
        return values

    def read_stored(self, rows: Indices) -> Any:
        values = super().read_stored(rows)
        self.n_reads += 1
        self.n_values += values.nnz
        return values


class SourceContract:
    """Tests of one source. A subclass defines :meth:`make`.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import ArraySource
    >>> from terafactor.testing import SourceContract
    >>> class TestMySource(SourceContract):
    ...     def make(self, tmp_path):
    ...         X = np.random.default_rng(0).standard_normal((37, 23))
    ...         return ArraySource(X), X
    """

    def make(self, tmp_path: object) -> tuple[MatrixSource, Array]:
        """Return a source of at least 5 rows and 5 features, and the matrix (n, p) that it must read."""
        raise NotImplementedError

    @pytest.fixture
    def made(self, tmp_path: object) -> tuple[MatrixSource, Array]:
        """Return the result of :meth:`make`."""
        return self.make(tmp_path)

    def test_shape_and_dtype(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        assert source.shape == expected.shape
        assert all(type(length) is int for length in source.shape)
        assert source.dtype in (np.float32, np.float64)

    def test_reads_whole_rows(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        values = source.read(np.arange(source.shape[0]))
        assert values.dtype == source.dtype
        np.testing.assert_array_equal(values, expected)

    def test_reads_scattered_rows_and_columns(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        random = np.random.default_rng(0)
        for _ in range(10):
            rows = random.permutation(source.shape[0])[: random.integers(1, 6)]
            columns = np.sort(random.permutation(source.shape[1])[: random.integers(1, 6)])
            np.testing.assert_array_equal(source.read(rows, columns), expected[np.ix_(rows, columns)])

    def test_keeps_the_requested_order(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        rows, columns = np.array([4, 0, 2]), np.array([3, 1, 4])
        np.testing.assert_array_equal(source.read(rows, columns), expected[np.ix_(rows, columns)])

    def test_reads_empty_selections(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        nothing = np.arange(0)
        assert source.read(nothing).shape == (0, source.shape[1])
        assert source.read(np.array([0]), nothing).shape == (1, 0)

    def test_returned_arrays_are_copies(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        rows = np.array([0, 1])
        source.read(rows)[:] = 7
        np.testing.assert_array_equal(source.read(rows), expected[:2])

    def test_refuses_rows_and_columns_out_of_range(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        n_rows, n_features = source.shape
        for rows, columns in (([n_rows], [0]), ([-1], [0]), ([0], [n_features]), ([0], [-1])):
            with pytest.raises(IndexError):
                source.read(np.array(rows), np.array(columns))

    def test_records_cover_the_rows(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        rows = [row for record in source.records for row in record]
        assert rows == list(range(source.shape[0]))

    def test_row_blocks_cover_their_record(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        for number, record in enumerate(source.records):
            blocks = source.row_blocks(number)
            if blocks is not None:
                assert [row for block in blocks for row in block] == list(record)

    def test_tiles_cover_the_features(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        for number in range(len(source.records)):
            tiles = source.tiles(number)
            assert tiles.width >= 1
            if tiles.order is not None:
                np.testing.assert_array_equal(np.sort(tiles.order), np.arange(source.shape[1]))

    def test_stored_bytes_grow_with_the_selection(self, made: tuple[MatrixSource, Array]) -> None:
        source, _ = made
        every_row, every_column = np.arange(source.shape[0]), np.arange(source.shape[1])
        whole, part = source.stored_bytes(every_row), source.stored_bytes(every_row[:3], every_column[:2])
        assert 0 <= part <= source.stored_bytes(every_row, every_column) == whole
        assert whole > 0
        assert source.stored_bytes(every_row[:0]) == 0

    def test_stored_values_leave_out_zeros_only(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        rows = np.arange(source.shape[0])[::-1]
        assert 0 <= source.stored_share <= 1
        if source.stored_share < 1:
            stored = source.read_stored(rows)
            np.testing.assert_array_equal(stored.toarray(), expected[rows])
            assert stored.has_canonical_format

    def test_a_description_opens_the_same_matrix(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        description = source.describe()
        if description is None:  # data that only this process has
            return
        for given in (description, _through_json(description)):
            opened = open_description(given)
            assert _access(opened) == _access(source)
            assert opened.describe() is not None
            np.testing.assert_array_equal(opened.read(np.arange(source.shape[0])), expected)

    def test_reads_from_several_threads(self, made: tuple[MatrixSource, Array]) -> None:
        source, expected = made
        columns = np.arange(0, source.shape[1], 2)

        def read(row: int) -> Array:
            return source.read(np.array([row]), columns)

        with ThreadPoolExecutor(4) as pool:
            values = list(pool.map(read, range(source.shape[0])))
        np.testing.assert_array_equal(np.concatenate(values), expected[:, columns])


def _through_json(description: dict[str, Any]) -> Any:
    """Return a description after a round trip through JSON, except for its arrays."""
    arrays: list[Array] = []

    def set_aside(value: Any) -> dict[str, int]:
        assert isinstance(value, np.ndarray), f"{value!r} is neither plain nor an array"
        arrays.append(value)
        return {"array": len(arrays) - 1}

    text = json.dumps(description, default=set_aside)
    return json.loads(text, object_hook=lambda found: arrays[found["array"]] if found.keys() == {"array"} else found)


def _access(source: MatrixSource) -> dict[str, Any]:
    """Return all that decides how a source is read."""
    numbers = range(len(source.records))
    tiles = [source.tiles(number) for number in numbers]
    names = source.feature_names
    return {
        "shape": source.shape,
        "dtype": source.dtype,
        "flags": (source.in_memory, source.whole_records, source.checked, source.holds_nan, source.stored_share),
        "geometry": source.geometry,
        "names": None if names is None else list(names),
        "records": [(source.record_label(number), source.records[number]) for number in numbers],
        "blocks": [source.row_blocks(number) for number in numbers],
        "tiles": [(each.width, each.fewest, None if each.order is None else each.order.tolist()) for each in tiles],
    }
