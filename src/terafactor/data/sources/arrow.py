"""Sizes claimed by the compressed buffers of an Arrow file, checked before polars allocates them.

Before each compressed buffer, the file states its size when decompressed, without a checksum. polars trusts it, and the
process ends if the memory cannot be allocated. The metadata are FlatBuffers: a table starts with the distance to its
vtable, which holds the position of each field in the table, 0 for an absent one.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from terafactor._durable import storage_errors
from terafactor._memory import check_size, max_bytes
from terafactor.data.sources.formats import READER_ERRORS
from terafactor.errors import DataError

MAGIC = b"ARROW1"
DICTIONARIES, RECORD_BATCHES = 2, 3
"""Fields of the footer: positions of blocks."""

DICTIONARY_BATCH, HEADER_TYPE, HEADER = 2, 1, 2
"""Type of a message that holds a dictionary; fields of a message."""

BUFFERS, COMPRESSION = 2, 3
"""Fields of a record batch."""

PREFIX_BYTES = 8
"""Size of the claim before a compressed buffer; -1 marks one that is stored as it is."""


def check_arrow_buffers(path: Path) -> None:
    """Refuse an Arrow file with a compressed buffer that claims more memory than is available or allowed."""
    if path.stat().st_size < 2 * len(MAGIC):
        return  # polars refuses it, with a better reason
    with (
        storage_errors(path, "read"),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[: len(MAGIC)] != MAGIC or content[-len(MAGIC) :] != MAGIC:  # not all of it is seen by polars
            raise DataError(f"{path} cannot be read as a table: it does not start and end as Arrow files do")
        try:
            claims = list(_claims(content))
        except READER_ERRORS as error:
            raise DataError(f"{path} is not a complete Arrow file ({error}): write it again") from error
    for claim in claims:
        if claim < -1:
            raise DataError(f"{path} has a compressed buffer of {claim} bytes: it is damaged, write it again")
    check_size(max(claims, default=0), f"a column of {path}", max_bytes())


def _claims(content: mmap.mmap) -> Iterator[int]:
    """Yield the size that each compressed buffer claims."""
    end = len(content) - len(MAGIC) - 4
    footer = _target(content, end - _integer(content, end))
    for field in (DICTIONARIES, RECORD_BATCHES):
        for block in _vector(content, footer, field, item_bytes=24):
            start, length = struct.unpack_from("<qi", content, block)
            yield from _claims_of_block(content, start, start + length)


def _claims_of_block(content: mmap.mmap, start: int, body: int) -> Iterator[int]:
    marked = _integer(content, start) == -1  # versions before 0.15 have no marker before the size
    message = _target(content, start + (8 if marked else 4))
    batch = _target(content, _field(content, message, HEADER))
    if content[_field(content, message, HEADER_TYPE)] == DICTIONARY_BATCH:
        batch = _target(content, _field(content, batch, 1))
    if not _field(content, batch, COMPRESSION):
        return
    for buffer in _vector(content, batch, BUFFERS, item_bytes=16):
        offset, length = struct.unpack_from("<qq", content, buffer)
        if length >= PREFIX_BYTES:
            yield struct.unpack_from("<q", content, body + offset)[0]


def _integer(content: mmap.mmap, place: int) -> int:
    return int(struct.unpack_from("<i", content, place)[0])


def _target(content: mmap.mmap, place: int) -> int:
    """Return the position to which the offset at ``place`` points."""
    return place + _integer(content, place)


def _field(content: mmap.mmap, table: int, number: int) -> int:
    """Return the position of a field of a table, 0 if it is absent."""
    vtable = table - _integer(content, table)
    size, slot = struct.unpack_from("<H", content, vtable)[0], 4 + 2 * number
    offset = struct.unpack_from("<H", content, vtable + slot)[0] if slot < size else 0
    return table + offset if offset else 0


def _vector(content: mmap.mmap, table: int, number: int, item_bytes: int) -> range:
    """Return the positions of the items of a vector, none if the field is absent."""
    field = _field(content, table, number)
    if not field:
        return range(0)
    vector = _target(content, field)
    start, length = vector + 4, _integer(content, vector)
    if not 0 <= length <= (len(content) - start) // item_bytes:
        raise ValueError(f"{length} items do not fit into the file")
    return range(start, start + length * item_bytes, item_bytes)
