"""One block of rows of a packed store: writing it, and reading some of its tiles with verification."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.packed_layout import CHECKSUM_BYTES, PackedLayout

MOST_BUFFERS = 1024
"""Buffers that the system fills in one call."""


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


def read_tiles(path: Path, layout: PackedLayout, chosen: Indices) -> Array:
    """Return the ``chosen`` tiles (ascending) of a shard, (tiles, block_rows, tile_width), each verified.

    Tiles that follow each other come in one read, and nothing is read ahead.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DamagedShardError(f"its file {path} cannot be opened: {error.strerror}") from error
    try:
        _check_index(descriptor, layout)
        if len(chosen) < layout.n_tiles and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        values = np.empty((len(chosen), layout.block_rows, layout.tile_width), layout.dtype)
        stored = np.empty(len(chosen), "<u4")
        for run in _runs(chosen):
            _read_run(descriptor, layout, int(chosen[run.start]), values[run], stored[run])
    finally:
        os.close(descriptor)
    for tile, numbers, expected in zip(chosen, values, stored, strict=True):
        if checksum(numbers) != expected:
            raise DamagedShardError(f"chunk {tile} of {path} does not match its checksum")
    return values


def sealed(content: bytes) -> bytes:
    """Return bytes followed by their checksum."""
    return content + checksum(content).to_bytes(CHECKSUM_BYTES, "little")


def checksum(content: bytes | Array) -> int:
    """Return the CRC-32C of some bytes, or of a contiguous array."""
    return int(google_crc32c.value(content))


def _check_index(descriptor: int, layout: PackedLayout) -> None:
    """Refuse a shard of another size, or whose index does not list every chunk where it belongs."""
    size = os.fstat(descriptor).st_size
    if size != layout.shard_bytes:
        raise DamagedShardError(f"its file has {size} bytes where {layout.shard_bytes} were written")
    index = os.pread(descriptor, layout.index_bytes, size - layout.index_bytes)
    if index != sealed(layout.index):
        raise DamagedShardError("the list of its chunks is damaged, or lacks one")


def _read_run(descriptor: int, layout: PackedLayout, first: int, values: Array, stored: Array) -> None:
    """Fill numbers and checksums of tiles that follow each other."""
    buffers = [part for pair in zip(values, stored[:, np.newaxis], strict=True) for part in pair]
    position = first * layout.tile_type.itemsize
    for start in range(0, len(buffers), MOST_BUFFERS):
        part = buffers[start : start + MOST_BUFFERS]
        wanted = sum(buffer.nbytes for buffer in part)
        if _fill(descriptor, part, position) != wanted:
            raise DamagedShardError(f"its file ended in chunk {first + start // 2} or later")
        position += wanted


def _fill(descriptor: int, buffers: list[Array], position: int) -> int:
    """Read into ``buffers``, and return how many bytes there were; more than one call only when interrupted."""
    views = [buffer.data.cast("B") for buffer in buffers]
    done = 0
    while views:
        count = os.preadv(descriptor, views, position + done)
        if count == 0:
            break
        done += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if views:
            views[0] = views[0][count:]
    return done


def _runs(chosen: Indices) -> Iterator[slice]:
    """Cut ascending numbers where one is left out."""
    edges = [0, *(np.flatnonzero(np.diff(chosen) != 1) + 1).tolist(), len(chosen)]
    return (slice(start, stop) for start, stop in itertools.pairwise(edges))
