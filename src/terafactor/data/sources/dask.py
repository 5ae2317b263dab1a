"""Dask arrays."""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np

from terafactor._typing import Array
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import Format, check_matrix, is_a, reading_dtype
from terafactor.data.sources.sparse import dense_rows, in_order
from terafactor.errors import DataError


class DaskSource(ChunkedSource):
    """A Dask array, computed a rectangle at a time in the thread that asks for it.

    Parameters
    ----------
    array : dask.array.Array
        With known chunk sizes.
    """

    name = "the dask array"

    absent: float = 0.0
    """What an entry that sparse blocks do not store reads as."""

    def __init__(self, array: Any) -> None:
        if any(math.isnan(length) for length in array.shape):
            raise DataError(f"the dask array has unknown lengths, {array.shape}: call its compute_chunk_sizes() first")
        self.shape = check_matrix(array.shape, self.name)
        self.dtype = reading_dtype(array.dtype, self.name)
        self.chunk = array.chunksize
        self._array = array

    def absent_as_missing(self) -> Self:
        if not _is_sparse(self._block(slice(1), slice(1))):
            return super().absent_as_missing()
        changed = copy.copy(self)
        changed.absent = np.nan
        return changed

    def box(self, rows: slice, columns: slice) -> Array:
        block = self._block(rows, columns)
        if not _is_sparse(block):
            return np.asarray(block)
        from scipy.sparse import csr_array

        return dense_rows(in_order(csr_array(block, dtype=self.dtype)), np.arange(block.shape[0]), None, self.absent)

    def _block(self, rows: slice, columns: slice) -> Any:
        return self._array[rows, columns].compute(scheduler="synchronous")


def _is_sparse(block: Any) -> bool:
    return hasattr(block, "toarray")


FORMAT = Format(
    name="dask",
    understands="dask arrays",
    is_object=lambda thing: is_a(thing, "dask", "Array"),
    open_object=DaskSource,
)
