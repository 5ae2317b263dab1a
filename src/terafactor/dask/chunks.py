"""Dask arrays on a cluster: chunks stay on the workers, and a shard gets those with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.dask.cluster import TIMEOUT, check_memory, wait_for_workers
from terafactor.data import MatrixSource
from terafactor.data.source import SourceView, check_indices
from terafactor.data.sources.dask import DaskSource
from terafactor.data.views.rows import SelectedRows


class ClusterArray(DaskSource):
    """A Dask array whose rows are computed by a cluster; only requested rows are transferred.

    Parameters
    ----------
    array : dask.array.Array
        Its chunk sizes must be known.
    client : dask.distributed.Client
    timeout : float
        Seconds to wait for a worker.
    """

    def __init__(self, array: Any, client: Any, timeout: float = TIMEOUT) -> None:
        super().__init__(array)
        self.client = client
        wait_for_workers(client, timeout)
        n_bytes = max(array.chunks[0]) * array.shape[1] * array.dtype.itemsize
        check_memory(client, n_bytes, "the largest chunk of whole rows of the dask array", "rechunk it into fewer rows")

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        order = np.argsort(rows, kind="stable")
        chosen = self.array[rows[order]]
        if columns is not None:
            check_indices(columns, self.shape[1], "columns")
            chosen = chosen[:, columns]
        values = np.empty(chosen.shape, self.dtype)
        values[order] = self._dense(chosen.compute(scheduler=self.client))
        return values


class ChunkedRows(MatrixSource):
    """The rows of a Dask array, of which this process has some chunks.

    Parameters
    ----------
    like : DaskSource
        The array.
    borders : sequence of int
        First rows of the chunks, and the number of rows.
    """

    name = "the dask array"

    def __init__(self, like: DaskSource, borders: Sequence[int]) -> None:
        self.shape = like.shape
        self.dtype = like.dtype
        self.borders = np.asarray(borders, np.int64)
        self.blocks: dict[int, Array] = {}

    @staticmethod
    def with_blocks(source: MatrixSource, blocks: dict[int, Array]) -> MatrixSource:
        """Return a view whose base has these chunks, by number."""
        if isinstance(source, SourceView):
            return source.with_base(ChunkedRows.with_blocks(source.base, blocks))
        changed: Any = copy(source)
        changed.blocks = blocks
        return changed

    def record_name(self, record: int) -> str:
        return self.name

    def row_blocks(self, record: int) -> Sequence[range] | None:
        return [range(first, last) for first, last in pairwise(self.borders.tolist())]

    def chunks_of(self, rows: Indices) -> Indices:
        """Return the number of the chunk of each row."""
        return np.searchsorted(self.borders, rows, side="right") - 1

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        rows = np.asarray(rows, np.int64)
        check_indices(rows, self.shape[0], "rows")
        chosen = np.arange(self.shape[1]) if columns is None else columns
        check_indices(chosen, self.shape[1], "columns")
        values, chunks = np.empty((len(rows), len(chosen)), self.dtype), self.chunks_of(rows)
        for chunk in np.unique(chunks).tolist():
            of_chunk = chunks == chunk
            inside = rows[of_chunk] - self.borders[chunk]
            block = np.asarray(self.blocks[chunk])
            values[of_chunk] = block[inside] if columns is None else block[np.ix_(inside, chosen)]
        return values


class ArrayChunks:
    """The chunks of a Dask array as tasks, for the views of a source.

    Parameters
    ----------
    source : MatrixSource
        A view of a :class:`DaskSource`, or one.
    array : DaskSource
        The base of ``source``.
    client : dask.distributed.Client
    """

    def __init__(self, source: MatrixSource, array: DaskSource, client: Any) -> None:
        whole = array.array.rechunk({1: -1})
        borders = np.cumsum([0, *whole.chunks[0]])
        self.client = client
        self._blocks = whole.to_delayed()[:, 0]
        self._base = ChunkedRows(array, borders.tolist())
        self._views: list[SelectedRows] = []
        view = source
        while isinstance(view, SourceView):
            if isinstance(view, SelectedRows):
                self._views.append(view)
            view = view.base
        self.template = _rebased(source, self._base)

    def futures(self, rows: Sequence[int]) -> dict[int, Any]:
        """Return the chunks that hold some rows of the view, by number, as futures."""
        found = np.asarray(rows, np.int64)
        for view in self._views:
            found = view.rows[found]
        numbers = np.unique(self._base.chunks_of(found)).tolist()
        return dict(zip(numbers, self.client.compute([self._blocks[number] for number in numbers]), strict=True))


def chunked(source: MatrixSource, client: Any) -> ArrayChunks | None:
    """Return the chunks of the Dask array that a source reads; None if it reads none."""
    base = source
    while isinstance(base, SourceView):
        base = base.base
    return ArrayChunks(source, base, client) if isinstance(base, DaskSource) else None


def _rebased(source: MatrixSource, base: MatrixSource) -> MatrixSource:
    return source.with_base(_rebased(source.base, base)) if isinstance(source, SourceView) else base
