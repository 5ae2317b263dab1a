"""Dask arrays."""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np

from terafactor._typing import Array
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import Format, check_matrix, is_a, reading_dtype
from terafactor.data.sources.sparse import dense_rows, to_canonical
from terafactor.errors import DataError


class DaskSource(ChunkedSource):
    """A Dask array; the thread that reads a rectangle computes it.

    Parameters
    ----------
    array : dask.array.Array
        Its chunk sizes must be known.
    """

    array: Any
    """The Dask array."""

    name = "the dask array"

    absent: float = 0.0
    """Value of entries that sparse blocks do not store."""

    def __init__(self, array: Any) -> None:
        if any(math.isnan(length) for length in array.shape):
            raise DataError(f"the dask array has unknown lengths, {array.shape}: call its compute_chunk_sizes() first")
        self.shape = check_matrix(array.shape, self.name)
        self.dtype = reading_dtype(array.dtype, self.name)
        self.chunk = array.chunksize
        self.array = array

    def absent_as_missing(self) -> Self:
        if not _is_sparse(self._compute(slice(1), slice(1))):
            return super().absent_as_missing()
        changed = copy.copy(self)
        changed.absent = np.nan
        return changed

    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        return self._dense(self._compute(rows, columns))

    def _dense(self, block: Any) -> Array:
        if not _is_sparse(block):
            return np.asarray(block)
        from scipy.sparse import csr_array

        canonical = to_canonical(csr_array(block, dtype=self.dtype))
        return dense_rows(canonical, np.arange(block.shape[0]), None, self.absent)

    def _compute(self, rows: slice, columns: slice) -> Any:
        return self.array[rows, columns].compute(scheduler="synchronous")


def _is_sparse(block: Any) -> bool:
    return hasattr(block, "toarray")


FORMAT = Format(
    name="dask",
    description="dask arrays",
    is_object=lambda data: is_a(data, "dask", "Array"),
    open_object=DaskSource,
)
