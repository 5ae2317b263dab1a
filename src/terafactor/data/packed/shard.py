"""One block of rows of a packed store: writing it, and reading some of its tiles with verification."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.packed.layout import CHECKSUM_BYTES, PackedLayout, shard_path
from terafactor.data.preadv import fill


class DamagedShardError(Exception):
    """A shard is not what was written."""


def write_shard(file: BinaryIO, layout: PackedLayout, rows: Array, order: Indices) -> None:
    """Write a block of ``rows`` (h, p), their features taken in ``order``."""
    shard = np.zeros(layout.n_tiles, layout.tile_type)
    for tile in range(layout.n_tiles):
        features = order[tile * layout.tile_width : (tile + 1) * layout.tile_width]
        shard["values"][tile, : len(rows), : len(features)] = np.take(rows, features, axis=1)
        shard["checksum"][tile] = checksum(shard["values"][tile])
    file.write(shard.view(np.uint8).data)
    file.write(sealed(layout.index))


def read_tiles(array: Path, block: int, layout: PackedLayout, chosen: Indices, with_index: bool) -> Array:
    """Return the ``chosen`` tiles (ascending) of a shard of ``array``, each verified: (tiles, layout.numbers_apart).

    A row begins with the numbers of a tile, block_rows by tile_width. Tiles that follow each other come in one read,
    checksums between them, and nothing is read ahead. with_index: whether to verify the list of all chunks too.
    """
    path, size, numbers = shard_path(array, block), layout.tile_type.itemsize, chosen.tolist()
    raw = np.empty((len(numbers), size), np.uint8)
    with _opened(path, layout, with_index) as descriptor:
        for run in _runs(numbers):
            first, wanted = numbers[run.start], (run.stop - run.start) * size
            found = fill(descriptor, raw[run], first * size)
            if found != wanted:
                raise DamagedShardError(f"its file ended in chunk {first + found // size}")
    contents, checksums = raw[:, :-CHECKSUM_BYTES], raw.view(layout.tile_type)["checksum"][:, 0].tolist()
    for number, content, expected in zip(numbers, contents, checksums, strict=True):
        if checksum(content) != expected:
            raise DamagedShardError(_wrong_chunk(number, path))
    if size % layout.number_type.itemsize:  # a checksum is half as long as a float64
        raw = np.ascontiguousarray(contents)
    return raw.view(layout.number_type)


def read_tiles_with_zarr(array: Path, block: int, layout: PackedLayout, chosen: Indices, with_index: bool) -> Array:
    """Do what :func:`read_tiles` does by zarr-python: where the system cannot read many buffers at a position."""
    import zarr

    path, numbers = shard_path(array, block), chosen.tolist()
    with _opened(path, layout, with_index):
        opened = zarr.open_array(array, mode="r")
    tiles = np.zeros((len(numbers), layout.numbers_apart), layout.dtype)
    values = tiles[:, : layout.block_rows * layout.tile_width].reshape(-1, layout.block_rows, layout.tile_width)
    rows = slice(block * layout.block_rows, (block + 1) * layout.block_rows)
    for run in _runs(numbers):
        try:
            _read_run_with_zarr(opened, rows, numbers[run.start], values[run])
        except ValueError:
            _name_wrong_chunk(opened, rows, path, numbers[run], values[run])
    return tiles


def sealed(content: bytes) -> bytes:
    """Return bytes followed by their checksum."""
    return content + checksum(content).to_bytes(CHECKSUM_BYTES, "little")


def checksum(content: bytes | Array) -> int:
    """Return the CRC-32C of some bytes, or of a contiguous array."""
    return int(google_crc32c.value(content))


@contextlib.contextmanager
def _opened(path: str, layout: PackedLayout, with_index: bool) -> Iterator[int]:
    """Open a shard that has the right size; ``with_index``, check that its index lists every chunk where it belongs.

    The index comes from the disk while the chunks are read, and is checked at the end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise DamagedShardError(f"its file {path} cannot be opened: {error.strerror}") from error
    try:
        size, position = os.fstat(descriptor).st_size, layout.shard_bytes - layout.index_bytes
        if size != layout.shard_bytes:
            raise DamagedShardError(f"its file has {size} bytes where {layout.shard_bytes} were written")
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            if with_index:
                os.posix_fadvise(descriptor, position, layout.index_bytes, os.POSIX_FADV_WILLNEED)
        yield descriptor
        if with_index:
            index = np.empty(layout.index_bytes, np.uint8)
            fill(descriptor, index, position)
            if index.tobytes() != sealed(layout.index):
                raise DamagedShardError("the list of its chunks is damaged, or lacks one")
    finally:
        os.close(descriptor)


def _read_run_with_zarr(array: Any, rows: slice, first: int, values: Array) -> None:
    """Fill the numbers of tiles that follow each other, zeros beyond the last row and feature."""
    width = values.shape[2]
    box = array[rows, first * width : (first + len(values)) * width]
    for place, tile in enumerate(values):
        part = box[:, place * width : (place + 1) * width]
        tile[: part.shape[0], : part.shape[1]] = part


def _name_wrong_chunk(array: Any, rows: slice, path: str, chosen: list[int], values: Array) -> None:
    """Read tiles one by one, and name the first that cannot be."""
    for place, tile in enumerate(chosen):
        try:
            _read_run_with_zarr(array, rows, tile, values[place : place + 1])
        except ValueError as error:
            raise DamagedShardError(_wrong_chunk(tile, path)) from error


def _wrong_chunk(tile: int, path: str) -> str:
    return f"chunk {tile} of {path} does not match its checksum"


def _runs(chosen: list[int]) -> Iterator[slice]:
    """Cut ascending numbers where one is left out."""
    start = 0
    for place, number in enumerate(chosen, 1):
        if place == len(chosen) or chosen[place] != number + 1:
            yield slice(start, place)
            start = place
