"""Plain numbers in a file: the rows behind ``.npy`` files, memory maps and temporary files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from terafactor._durable import storage_errors
from terafactor._typing import Array, Indices
from terafactor.data.preadv import read_at
from terafactor.data.source import MatrixSource, check_indices
from terafactor.data.sources.formats import Format, check_matrix, reading_dtype, refuse_inside
from terafactor.errors import DataError, ParameterError

BUFFER_BYTES = 2**23
"""Size of the buffer of whole rows from which columns are picked."""

BLOCK_ROWS = 1024
"""Rows per block of a column-major file: a page of each column."""


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a matrix are in a file."""

    file: Path | BinaryIO
    """A path, opened for each read so that thousands of records need no open files; or an open file."""

    name: str
    """Name in error messages."""

    offset: int
    """Bytes before the first number."""

    shape: tuple[int, ...]
    """Numbers of rows and features."""

    dtype: np.dtype
    """Stored type."""

    column_major: bool = False
    """Whether columns are contiguous, rather than rows."""


class RawSource(MatrixSource):
    """A matrix of plain numbers in a file, read by position rather than mapped.

    Rows of a row-major file are read whole, whatever the columns: scattered columns touch all pages of a row. Pack
    such a file to read less (:func:`terafactor.pack`).

    Parameters
    ----------
    layout : Layout
    """

    def __init__(self, layout: Layout) -> None:
        self.shape = check_matrix(layout.shape, layout.name)
        self.dtype = reading_dtype(layout.dtype, layout.name)
        self.layout = layout
        needed = layout.offset + self.shape[0] * self.shape[1] * layout.dtype.itemsize
        with self._open() as descriptor:
            size = os.fstat(descriptor).st_size
        if size < needed:
            raise DataError(
                f"{layout.name} claims {layout.dtype} of shape {self.shape}, {needed} bytes, but the file has {size}: "
                "it is truncated, copy or write it again"
            )

    def record_name(self, record: int) -> str:
        return self.layout.name

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        size, n_columns = self.layout.dtype.itemsize, self.shape[1]
        if not self.layout.column_major or not len(rows):
            return len(rows) * n_columns * size
        return (n_columns if columns is None else len(columns)) * int(rows.max() - rows.min() + 1) * size

    def row_blocks(self, record: int) -> Sequence[range] | None:
        if not self.layout.column_major:
            return None
        n_rows = self.shape[0]
        return [range(start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, n_rows, BLOCK_ROWS)]

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is not None:
            check_indices(columns, self.shape[1], "columns")
        with storage_errors(self.layout.name, "read"), self._open() as descriptor:
            if self.layout.column_major:
                return self._read_columns(descriptor, rows, np.arange(self.shape[1]) if columns is None else columns)
            if columns is None:
                return self._read_rows(descriptor, rows).astype(self.dtype, copy=False)
            values = np.empty((len(rows), len(columns)), self.dtype)
            buffer_rows = max(1, BUFFER_BYTES // (self.shape[1] * self.layout.dtype.itemsize))
            for start in range(0, len(rows), buffer_rows):
                part = slice(start, start + buffer_rows)
                values[part] = np.take(self._read_rows(descriptor, rows[part]), columns, axis=1)
            return values

    def _read_rows(self, descriptor: int, rows: Indices) -> Array:
        """Return whole rows in their stored type; consecutive rows take a single read."""
        values = np.empty((len(rows), self.shape[1]), self.layout.dtype)
        row_bytes = self.shape[1] * self.layout.dtype.itemsize
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        for run in np.split(np.arange(len(rows)), cuts):
            if len(run):
                self._fill(descriptor, values[run[0] : run[-1] + 1], int(rows[run[0]]) * row_bytes)
        return values

    def _read_columns(self, descriptor: int, rows: Indices, columns: Indices) -> Array:
        """Return rows and columns of a column-major file; reads each column from the first row to the last."""
        values = np.empty((len(rows), len(columns)), self.dtype)
        if not len(rows):
            return values
        first = int(rows.min())
        buffer = np.empty(int(rows.max()) + 1 - first, self.layout.dtype)
        for place, column in enumerate(columns):
            self._fill(descriptor, buffer, (int(column) * self.shape[0] + first) * self.layout.dtype.itemsize)
            values[:, place] = buffer[rows - first]
        return values

    def _fill(self, descriptor: int, out: Array, position: int) -> None:
        """Read numbers into ``out``, a contiguous array, from a position relative to the first number."""
        start = self.layout.offset + position
        done = read_at(descriptor, out, start)
        if done < out.nbytes:
            raise DataError(f"{self.layout.name} ended at byte {start + done}: it shrank since it was opened")

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        if not isinstance(self.layout.file, Path):
            yield self.layout.file.fileno()
            return
        with open(self.layout.file, "rb", buffering=0) as file:
            yield file.fileno()


def open_raw(
    path: Path,
    inside: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    offset: int = 0,
) -> MatrixSource:
    """Return the rows of a file of plain numbers, row after row, from byte ``offset`` on."""
    refuse_inside(path, inside)
    if shape is None or dtype is None:
        raise ParameterError(
            f"{path} has no header: pass its shape and dtype in Python, as in "
            f"open_source('raw://{path}', shape=(100, 20), dtype='float32'), or convert it to .npy"
        )
    if offset < 0:
        raise ParameterError(f"offset must be the bytes before the first number, at least 0, got {offset}")
    try:
        stored = np.dtype(dtype)
    except TypeError as error:
        raise ParameterError(f"dtype must name a type of numbers, such as 'float32', got {dtype!r}") from error
    with storage_errors(path, "read"):
        return RawSource(Layout(path, str(path), offset, tuple(shape), stored))


FORMAT = Format(
    name="raw",
    description="files of plain numbers (raw://path, with shape= and dtype=)",
    open_path=open_raw,
)
