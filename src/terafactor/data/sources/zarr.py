"""Zarr arrays, versions 2 and 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data.source import MatrixSource
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import Format, check_matrix, is_a, reading_dtype
from terafactor.errors import DataError

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
"""Files that mark a folder as an array or a group."""


class ZarrSource(ChunkedSource):
    """A two-dimensional Zarr array.

    A missing chunk reads as the array's fill value, as Zarr defines it: writers omit such chunks. The packed store
    (:func:`terafactor.pack`) holds every chunk and refuses a missing one.

    Parameters
    ----------
    array : zarr.Array
    name : str
        Name in error messages.
    """

    def __init__(self, array: Any, name: str) -> None:
        self.name = name
        self.shape = check_matrix(array.shape, name)
        self.dtype = reading_dtype(array.dtype, name)
        self.chunk = array.chunks
        self._array = array

    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        return np.asarray(self._array[rows, columns])


def open_zarr(path: Path, inside: str | None = None) -> MatrixSource:
    """Return the array at ``path``, or the one named ``inside`` in the group there."""
    import zarr

    try:
        node = zarr.open(path, path=(inside or "").strip("/"), mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be opened as Zarr: {error or type(error).__name__}") from error
    if isinstance(node, zarr.Group):
        raise _group_error(node, path, f"{path}::name")
    return ZarrSource(node, f"{path}::{inside}" if inside else str(path))


def open_node(node: Any) -> MatrixSource:
    """Return an open array; a group is refused with the names of its arrays."""
    if is_a(node, "zarr", "Group"):
        raise _group_error(node, node.store_path, "group['name']")
    return ZarrSource(node, str(node.store_path))


def _group_error(group: Any, name: Any, example: str) -> DataError:
    names = sorted(name for name, _ in group.arrays())
    return DataError(f"{name} is a group that holds {', '.join(names) or 'no array'}: name one, as in {example}")


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in METADATA_FILES)


FORMAT = Format(
    name="zarr",
    description="Zarr arrays, version 2 or 3 (group.zarr::name of an array)",
    is_path=_is_zarr,
    open_path=open_zarr,
    is_object=lambda data: is_a(data, "zarr", "Array", "Group"),
    open_object=open_node,
)
