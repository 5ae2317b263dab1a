"""Zarr arrays, versions 2 and 3."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._checks import check_regular
from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.data.origin import METADATA_FILES
from terafactor.data.source import MatrixSource
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import READER_ERRORS, Format, check_matrix, is_a, reading_dtype
from terafactor.errors import DataError

CODECS = frozenset({
    "bytes", "transpose", "sharding_indexed", "blosc", "zstd", "gzip", "zlib", "bz2", "lzma", "lz4", "zfpy", "pcodec",
    "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3",
    "shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits",
})  # fmt: skip
"""Codecs of arrays that are read. Others may run code from the file, as pickle does."""


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
        for codec in _codecs(array.metadata.to_dict()):
            if codec.removeprefix("numcodecs.") not in CODECS:
                raise DataError(
                    f"{name} uses the codec {codec!r}, which is not among those known to be safe "
                    f"({', '.join(sorted(CODECS))}): write the array with one of these"
                )
        self.name = name
        self.shape = check_matrix(array.shape, name)
        self.dtype = reading_dtype(array.dtype, name)
        self.chunk = array.chunks
        self._stored = array.shards or self.chunk
        if min(*self.chunk, *self._stored) < 1:
            raise DataError(f"{name} has chunks of shape {self._stored}; each axis needs at least 1: write it again")
        check_size(math.prod(self.chunk) * self.dtype.itemsize, f"a chunk of {name}", max_bytes())
        self._array = array
        self._folder = Path(array.store.root, array.path) if is_a(array.store, "zarr", "LocalStore") else None

    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        self._check_regular(rows, columns)
        try:
            return np.asarray(self._array[rows, columns])
        except READER_ERRORS as error:
            raise DataError(f"{self.name} cannot be read: {error}; restore it or write it again") from error

    def _check_regular(self, rows: slice, columns: slice) -> None:
        """Refuse pipes among the files of a rectangle, which would be waited for."""
        if self._folder is None:
            return
        spans = zip((rows, columns), self._stored, strict=True)
        blocks = [range(span.start // length, -(-span.stop // length)) for span, length in spans]
        for block in itertools.product(*blocks):
            check_regular(self._folder / self._array.metadata.encode_chunk_key(block))


def open_zarr(path: Path, inside: str | None = None) -> MatrixSource:
    """Return the array at ``path``, or the one named ``inside`` in the group there."""
    import zarr

    try:
        node = zarr.open(path, path=(inside or "").strip("/"), mode="r")
    except (OSError, *READER_ERRORS) as error:
        raise DataError(f"{path} cannot be opened as Zarr: {error or type(error).__name__}") from error
    if isinstance(node, zarr.Group):
        raise _group_error(node, path, f"{path}::name")
    return ZarrSource(node, f"{path}::{inside}" if inside else str(path))


def open_node(node: Any) -> MatrixSource:
    """Return an open array; a group is refused with the names of its arrays."""
    if is_a(node, "zarr", "Group"):
        raise _group_error(node, node.store_path, "group['name']")
    if is_a(node.store, "zarr", "LocalStore"):
        return FORMAT.open(node.store.root, node.path or None)
    return ZarrSource(node, str(node.store_path))


def _codecs(metadata: dict[str, Any]) -> Iterator[str]:
    """Yield the names of all codecs in the metadata of an array, version 2 or 3, or in the configuration of one."""
    listed = [metadata.get("compressor"), *(metadata.get("filters") or ())]
    listed += [*(metadata.get("codecs") or ()), *(metadata.get("index_codecs") or ())]
    for codec in listed:
        if codec is not None:
            yield str(codec["id"] if "id" in codec else codec["name"])
            yield from _codecs(codec.get("configuration") or {})


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
