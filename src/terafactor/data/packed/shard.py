"""Shards of a packed store: writing a block of rows, and reading some of its tiles with verification."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from terafactor._durable import storage_errors
from terafactor._typing import Array, Indices
from terafactor.data.packed.layout import CHECKSUM_BYTES, PackedLayout, shard_path
from terafactor.data.preadv import read_at

READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags to open a file with. Non-blocking: if a pipe has replaced the file, opening it does not wait."""


class DamagedShardError(Exception):
    """A shard differs from what was written."""


def shard_seed(record_id: bytes, array: str, block: int) -> int:
    """Return the seed of the seals of a shard: of block ``block`` of the ``array`` "records" or "scales"."""
    return checksum(record_id + array.encode() + struct.pack("<Q", block))


def write_shard(file: BinaryIO, layout: PackedLayout, rows: Array, order: Indices, seed: int) -> None:
    """Write a block of ``rows`` (h, p) with the features in ``order`` (p,)."""
    shard = np.zeros(layout.n_tiles, layout.tile_type)
    for tile in range(layout.n_tiles):
        features = order[tile * layout.tile_width : (tile + 1) * layout.tile_width]
        shard["values"][tile, : len(rows), : len(features)] = np.take(rows, features, axis=1)
        shard["checksum"][tile] = checksum(shard["values"][tile])
        shard["seal"][tile] = _seal(seed, tile, int(shard["checksum"][tile]))
    file.write(shard.view(np.uint8).data)
    file.write(append_checksum(layout.index))


def read_tiles(array: Path, block: int, layout: PackedLayout, chosen: Indices, seed: int, *, with_index: bool) -> Array:
    """Return the ``chosen`` tiles (ascending) of a shard of ``array``, each verified: (tiles, layout.tile_stride).

    A row begins with the numbers of a tile, block_rows by tile_width. Adjacent tiles take one read, and nothing else is
    read. with_index: whether to verify the index of the shard too.
    """
    path, size, numbers = shard_path(array, block), layout.tile_type.itemsize, chosen.tolist()
    with _open_shard(path, layout, with_index) as descriptor:
        raw = np.empty((len(numbers), size), np.uint8)
        for run in _runs(numbers):
            first, wanted = numbers[run.start], (run.stop - run.start) * size
            found = read_at(descriptor, raw[run], first * size)
            if found != wanted:
                raise DamagedShardError(f"its file ended in chunk {first + found // size}")
    contents, trailers = raw[:, : layout.content_bytes], raw[:, layout.content_bytes :].copy().view("<u4").tolist()
    for number, content, trailer in zip(numbers, contents, trailers, strict=True):
        _verify_tile(seed, number, content, trailer, path)
    if size % layout.number_type.itemsize:  # float64 in version 1, where 4 bytes follow each tile
        raw = np.ascontiguousarray(contents)
    return raw.view(layout.number_type)


def read_tiles_with_zarr(
    array: Path, block: int, layout: PackedLayout, chosen: Indices, seed: int, *, with_index: bool
) -> Array:
    """Do what :func:`read_tiles` does through zarr-python, a second, slower implementation."""
    import zarr

    path, numbers = shard_path(array, block), chosen.tolist()
    tiles = np.zeros((len(numbers), layout.tile_stride), layout.number_type)
    values = tiles[:, : layout.block_rows * layout.tile_width].reshape(-1, layout.block_rows, layout.tile_width)
    rows = slice(block * layout.block_rows, (block + 1) * layout.block_rows)
    trailer = np.zeros((layout.tile_type.itemsize - layout.content_bytes) // CHECKSUM_BYTES, "<u4")
    with _open_shard(path, layout, with_index):  # zarr relies on the index
        opened = zarr.open_array(array, mode="r")
    with _open_shard(path, layout, with_index=False) as descriptor:
        for place, number in enumerate(numbers):
            try:
                _read_tile_with_zarr(opened, rows, number, values[place])
            except ValueError as error:
                raise DamagedShardError(_wrong_chunk(number, path)) from error
            position = number * layout.tile_type.itemsize + layout.content_bytes
            read_at(descriptor, trailer, position)
            _verify_tile(seed, number, values[place], trailer.tolist(), path)
    return tiles


def append_checksum(content: bytes) -> bytes:
    """Return bytes followed by their checksum."""
    return content + struct.pack("<I", checksum(content))


def checksum(content: bytes | Array) -> int:
    """Return the CRC-32C of some bytes, or of a contiguous array."""
    return int(google_crc32c.value(content))


def _seal(seed: int, tile: int, content_checksum: int) -> int:
    return int(google_crc32c.extend(seed, struct.pack("<II", tile, content_checksum)))


def _verify_tile(seed: int, number: int, content: Array, trailer: list[int], path: str) -> None:
    """Refuse a tile that differs from its checksum, or with the seal of another place or of other data.

    trailer: the checksum, and the seal since version 2.
    """
    expected, *seals = trailer
    if checksum(content) != expected:
        raise DamagedShardError(_wrong_chunk(number, path))
    if seals and seals != [_seal(seed, number, expected)]:
        raise DamagedShardError(f"chunk {number} of {path} belongs to another place or to other data")


@contextlib.contextmanager
def _open_shard(path: str, layout: PackedLayout, with_index: bool) -> Iterator[int]:
    """Open a shard and verify its size; ``with_index`` also verifies that its index lists every chunk.

    The system loads the index while the chunks are read; it is verified at the end.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
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
        with storage_errors(Path(path), "read"):
            yield descriptor
            if with_index:
                index = np.empty(layout.index_bytes, np.uint8)
                read_at(descriptor, index, position)
                if index.tobytes() != append_checksum(layout.index):
                    raise DamagedShardError("the index of its chunks is damaged, or lacks one")
    finally:
        os.close(descriptor)


def _read_tile_with_zarr(array: Any, rows: slice, number: int, tile: Array) -> None:
    """Read the numbers of one tile; those beyond the last row and feature stay zero."""
    width = tile.shape[1]
    values = array[rows, number * width : (number + 1) * width]
    tile[: values.shape[0], : values.shape[1]] = values


def _wrong_chunk(tile: int, path: str) -> str:
    return f"chunk {tile} of {path} does not match its checksum"


def _runs(chosen: list[int]) -> Iterator[slice]:
    """Cut ascending numbers into runs of consecutive ones."""
    start = 0
    for place, number in enumerate(chosen, 1):
        if place == len(chosen) or chosen[place] != number + 1:
            yield slice(start, place)
            start = place
