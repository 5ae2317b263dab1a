"""Dask arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data.boxes import BoxSource
from terafactor.data.formats import Format, check_matrix, is_a, reading_dtype
from terafactor.errors import DataError


class DaskSource(BoxSource):
    """A Dask array, computed a rectangle at a time in the thread that asks for it.

    Parameters
    ----------
    array : dask.array.Array
        With known chunk sizes.
    """

    name = "the dask array"

    def __init__(self, array: Any) -> None:
        if any(math.isnan(length) for length in array.shape):
            raise DataError(f"the dask array has unknown lengths, {array.shape}: call its compute_chunk_sizes() first")
        self.shape = check_matrix(array.shape, self.name)
        self.dtype = reading_dtype(array.dtype, self.name)
        self.chunk = array.chunksize
        self._array = array

    def box(self, rows: slice, columns: slice) -> Array:
        block = self._array[rows, columns].compute(scheduler="synchronous")
        return np.asarray(block.toarray() if hasattr(block, "toarray") else block)  # blocks may be sparse


FORMAT = Format(
    name="dask",
    understands="dask arrays",
    is_object=lambda thing: is_a(thing, "dask", "Array"),
    open_object=DaskSource,
)
