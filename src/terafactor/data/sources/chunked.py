"""Sources that are stored in chunks and read in rectangles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from terafactor._durable import storage_errors
from terafactor._typing import Array, Indices
from terafactor.data.source import FeatureTiles, MatrixSource, check_indices
from terafactor.errors import DataError

MAX_BLOCKS = 2**24
"""Most chunks along the rows: lists of them take a gigabyte. Metadata may claim any number of rows."""


class ChunkedSource(MatrixSource):
    """A matrix stored in chunks, of which any rectangle can be read.

    A subclass sets ``shape``, ``dtype``, ``chunk`` and ``name``, and implements :meth:`read_rectangle`. Rows and
    columns in the same or adjacent chunks are read together; chunks without any are skipped.
    """

    chunk: tuple[int, int] = (1, 1)
    """Rows and features per chunk."""

    name: str = "X"
    """Name in error messages."""

    @abstractmethod
    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        """Return a rectangle of the matrix."""

    def record_name(self, record: int) -> str:
        return self.name

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        height, width = self.chunk
        n_columns = self.shape[1] if columns is None else len(np.unique(columns // width)) * width
        return len(np.unique(rows // height)) * height * min(n_columns, self.shape[1]) * self.dtype.itemsize

    def row_blocks(self, record: int) -> Sequence[range] | None:
        height, n_rows = self.chunk[0], self.shape[0]
        if height == 1:
            return None
        if n_rows > MAX_BLOCKS * height:
            raise DataError(
                f"{self.name} has {n_rows:,} rows in chunks of {height}: at most {MAX_BLOCKS:,} chunks along "
                f"the rows are supported; write it with at least {-(-n_rows // MAX_BLOCKS):,} rows per chunk"
            )
        return [range(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]

    def tiles(self, record: int) -> FeatureTiles:
        return FeatureTiles(min(self.chunk[1], self.shape[1]))

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is None:
            columns = np.arange(self.shape[1])
        check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), len(columns)), self.dtype)
        for row_slice, row_positions in _cut_by_chunks(rows, self.chunk[0]):
            for column_slice, column_positions in _cut_by_chunks(columns, self.chunk[1]):
                with storage_errors(self.name, "read"):
                    rectangle = self.read_rectangle(row_slice, column_slice)
                inner_rows = rows[row_positions] - row_slice.start
                inner_columns = columns[column_positions] - column_slice.start
                values[_grid(row_positions, column_positions)] = rectangle[_grid(inner_rows, inner_columns)]
        return values


def _cut_by_chunks(indices: Indices, width: int) -> Iterator[tuple[slice, Indices]]:
    """Yield slices that cover ``indices`` and skip chunks of ``width`` without any, with the positions they cover."""
    if not len(indices):
        return
    positions = np.argsort(indices, kind="stable")
    ordered = indices[positions]
    cuts = np.flatnonzero(np.diff(ordered // width) > 1) + 1
    for part in np.split(np.arange(len(ordered)), cuts):
        yield slice(int(ordered[part[0]]), int(ordered[part[-1]]) + 1), positions[part]


def _grid(rows: Indices, columns: Indices) -> tuple[slice | Indices, ...]:
    """Return an index of a matrix at ``rows`` and ``columns``: consecutive ones as slices, ten times as fast."""
    grid = _as_slice(rows), _as_slice(columns)
    return grid if any(isinstance(part, slice) for part in grid) else np.ix_(rows, columns)


def _as_slice(indices: Indices) -> slice | Indices:
    consecutive = indices[-1] - indices[0] == len(indices) - 1 and bool(np.all(np.diff(indices) == 1))
    return slice(int(indices[0]), int(indices[-1]) + 1) if consecutive else indices
