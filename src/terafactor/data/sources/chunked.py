"""Sources that are read in rectangles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import FeatureTiles, MatrixSource, check_indices


class ChunkedSource(MatrixSource):
    """A matrix stored in chunks, of which any rectangle can be read.

    An implementation sets ``shape``, ``dtype``, ``chunk`` and ``name``, and gives :meth:`box`. Rows and columns that
    share a chunk are read together, chunks without any are left alone.
    """

    chunk: tuple[int, int] = (1, 1)
    """Rows and features that are stored together."""

    name: str = "X"
    """What errors call it."""

    @abstractmethod
    def box(self, rows: slice, columns: slice) -> Array:
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
        return [range(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]

    def tiles(self, record: int) -> FeatureTiles:
        return FeatureTiles(min(self.chunk[1], self.shape[1]))

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is None:
            columns = np.arange(self.shape[1])
        check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), len(columns)), self.dtype)
        for row_span, row_places in spans(rows, self.chunk[0]):
            for column_span, column_places in spans(columns, self.chunk[1]):
                box = self.box(row_span, column_span)
                from_rows, from_columns = rows[row_places] - row_span.start, columns[column_places] - column_span.start
                values[crossing(row_places, column_places)] = box[crossing(from_rows, from_columns)]
        return values


def spans(indices: Indices, width: int) -> Iterator[tuple[slice, Indices]]:
    """Cut ``indices`` into stretches to read at once, each with the places of its members.

    A stretch touches every chunk of ``width`` that it passes.
    """
    if not len(indices):
        return
    places = np.argsort(indices, kind="stable")
    ordered = indices[places]
    cuts = np.flatnonzero(np.diff(ordered // width) > 1) + 1
    for part in np.split(np.arange(len(ordered)), cuts):
        yield slice(int(ordered[part[0]]), int(ordered[part[-1]]) + 1), places[part]


def crossing(rows: Indices, columns: Indices) -> tuple[slice | Indices, ...]:
    """Return what indexes a matrix at some rows and columns: slices where they follow each other, ten times as fast."""
    chosen = _sliced(rows), _sliced(columns)
    return chosen if any(isinstance(part, slice) for part in chosen) else np.ix_(rows, columns)


def _sliced(indices: Indices) -> slice | Indices:
    following = indices[-1] - indices[0] == len(indices) - 1 and bool(np.all(np.diff(indices) == 1))
    return slice(int(indices[0]), int(indices[-1]) + 1) if following else indices
