"""The packed store on disk: sizes, names and metadata. ``docs/sources.md`` describes it for readers.

A store is a Zarr v3 group. Each record is an array ``records/000000`` whose columns are the features in a shuffled
order, ``permutations[record % 16]``; each shard is one block of rows with all features, each chunk one tile of features
of it. Integers are multiples of ``scales[record]``, which has the same order and tiles. Every byte is covered by a
checksum, or can be computed from what is.

Since version 2, a seal follows the CRC-32C of each chunk: a second checksum, seeded with the identity of the record and
with the position of the chunk. A chunk, shard or scale from elsewhere, or from other data, does not match its seal.
Zarr readers skip the seals, which the index of a shard does not list.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._checks import check_regular
from terafactor._typing import is_number
from terafactor.errors import DataError

VERSION = 2
READABLE_VERSIONS = (1, 2)
N_PERMUTATIONS = 16
TILE_WIDTH = 2000
"""Largest number of features per tile."""

TILES_PER_ROW = 128
"""Smallest number of tiles, unless there are fewer features: masks are drawn from whole tiles."""

MAX_LENGTH, MAX_ROWS = 2**31, 2**63
"""Exclusive upper bounds: of the features of a store and the rows of a block, and of the rows of a store."""

STORED_DTYPES = ("float32", "float64", "int16")
CHECKSUM_BYTES = 4
LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
CHECKSUM = {"name": "crc32c"}


@dataclass(frozen=True)
class PackedLayout:
    """Everything that determines the layout of a shard."""

    n_features: int
    block_rows: int
    """Rows per shard; the last shard of a record is padded with zeros."""

    tile_width: int
    """Features per chunk; the last tile is padded with zeros."""

    dtype: str
    """float32, float64, or int16 with a scale per record and feature."""

    version: int = VERSION
    """Version of the store; chunks have seals since version 2."""

    @classmethod
    def of(cls, n_features: int, block_rows: int, dtype: str) -> PackedLayout:
        """Return the layout for a number of features: tiles of equal width with as little padding as possible."""
        n_tiles = max(-(-n_features // TILE_WIDTH), min(n_features, TILES_PER_ROW))
        return cls(n_features, block_rows, -(-n_features // n_tiles), dtype)

    @classmethod
    def from_document(cls, content: dict[str, Any]) -> PackedLayout:
        return cls(**content["layout"], version=content["version"])

    def to_document(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "version"}

    @cached_property
    def n_tiles(self) -> int:
        return -(-self.n_features // self.tile_width)

    @property
    def scaled(self) -> bool:
        """Whether stored numbers are multiples of a scale."""
        return self.dtype == "int16"

    @cached_property
    def scales(self) -> PackedLayout:
        """The layout of the scales, one row per record."""
        return replace(self, block_rows=1, dtype="float32")

    @cached_property
    def number_type(self) -> np.dtype[Any]:
        """Type of a stored number."""
        return np.dtype(self.dtype).newbyteorder("<")

    @cached_property
    def tile_type(self) -> np.dtype[Any]:
        """Type of a stored tile: its numbers, their checksum, and the seal."""
        values = ("values", self.number_type, (self.block_rows, self.tile_width))
        return np.dtype([values, ("checksum", "<u4"), *([("seal", "<u4")] if self.version > 1 else [])])

    @cached_property
    def content_bytes(self) -> int:
        """Bytes of the numbers of a tile."""
        return self.block_rows * self.tile_width * self.number_type.itemsize

    @cached_property
    def tile_stride(self) -> int:
        """Numbers from one tile to the next once read; includes checksum and seal where these fill whole numbers."""
        return self.tile_type.itemsize // self.number_type.itemsize

    @cached_property
    def index_bytes(self) -> int:
        return 16 * self.n_tiles + CHECKSUM_BYTES

    @cached_property
    def shard_bytes(self) -> int:
        return self.n_tiles * self.tile_type.itemsize + self.index_bytes

    @cached_property
    def index(self) -> bytes:
        """Offset and size of every chunk of a shard, without the seals."""
        offsets = np.arange(self.n_tiles) * self.tile_type.itemsize
        sizes = np.full(self.n_tiles, self.content_bytes + CHECKSUM_BYTES)
        return np.stack([offsets, sizes], axis=1).astype("<u8").tobytes()


def record_path(store: Path, record: int) -> Path:
    return store / f"records/{record:06d}"


def scales_path(store: Path) -> Path:
    return store / "scales"


def shard_path(array: Path, block: int) -> str:
    """Return the file of a block; a string, which takes a tenth of the time of a Path, at each read."""
    return f"{array}{os.sep}c{os.sep}{block}{os.sep}0"


def encode(document: dict[str, Any]) -> bytes:
    """Return the canonical text of a document."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def group_document(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def array_document(layout: PackedLayout, n_rows: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a record or of the scales: shards of a row block by all features, chunks of a tile."""
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [layout.block_rows, layout.tile_width],
            "codecs": [LITTLE_ENDIAN, CHECKSUM],
            "index_codecs": [LITTLE_ENDIAN, CHECKSUM],
            "index_location": "end",
        },
    }
    shard = [layout.block_rows, layout.n_tiles * layout.tile_width]
    return _array_document([n_rows, layout.n_features], shard, layout.dtype, [sharding], attributes)


def permutations_document(n_features: int) -> dict[str, Any]:
    """Return the metadata of the permutations: one chunk each."""
    shape = [N_PERMUTATIONS, n_features]
    return _array_document(shape, [1, n_features], "int32", [LITTLE_ENDIAN, CHECKSUM], {})


def _array_document(
    shape: list[int], chunk: list[int], dtype: str, codecs: list[Any], attributes: dict[str, Any]
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0 if dtype.startswith("int") else 0.0,
        "codecs": codecs,
        "attributes": attributes,
    }


def plan_of(layout: PackedLayout, **choices: Any) -> dict[str, Any]:
    """Return everything that determines the bytes of a store."""
    fixed = {"format": "terafactor-packed", "version": VERSION, "n_permutations": N_PERMUTATIONS}
    return {**fixed, "layout": layout.to_document(), **choices}


def record_id(plan: dict[str, Any], number: int) -> bytes:
    """Return a digest of a record's data, parameters and place in the store, which seeds the seals of its chunks.

    A record with an identity does not depend on the fingerprint of the whole matrix: if other records change while
    packing is interrupted, it stays valid.
    """
    record = plan["records"][number]
    fingerprint = None if "identity" in record else plan["fingerprint"]
    choices = {key: plan[key] for key in ("version", "layout", "standardize", "seed")}
    return hashlib.sha256(encode({**choices, "number": number, "record": record, "data": fingerprint})).digest()


def store_document(
    plan: dict[str, Any], statistics: list[dict[str, float]], permutation_checksums: list[int]
) -> dict[str, Any]:
    """Return the metadata of the whole store, with its digest."""
    return _with_digest({**plan, "statistics": statistics, "permutation_checksums": permutation_checksums})


def read_store_document(path: Path) -> dict[str, Any]:
    """Return the content of a store's metadata, or raise a DataError."""
    raw = read_metadata(path / "zarr.json")
    try:
        document = json.loads(raw)
        content = dict(document["attributes"]["terafactor"])
        digest = content.pop("checksum")
        intact = digest == _digest(content) and encode(_with_digest(content)) == raw
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path}/zarr.json is damaged, or not of a packed store: {error!r}; restore it or pack again"
        ) from error
    if not is_number(content.get("version"), int) or content["version"] not in READABLE_VERSIONS:
        raise DataError(
            f"{path} has version {content.get('version')!r} of the packed store; this version of terafactor reads "
            f"{' and '.join(map(str, READABLE_VERSIONS))}: upgrade terafactor, or pack again"
        )
    if not intact:
        raise DataError(f"{path}/zarr.json does not match its checksum: it was changed; restore it or pack again")
    if not _is_valid(content):
        raise DataError(f"{path}/zarr.json was not written by terafactor: pack again")
    return content


def read_metadata(path: Path) -> bytes:
    try:
        check_regular(path)
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} is missing or cannot be read: {error.strerror}; restore it or pack again") from error


def read_statistics(record: Path) -> dict[str, float]:
    """Return the statistics in the metadata of a finished record, or raise a DataError."""
    try:
        statistics = json.loads(read_metadata(record / "zarr.json"))["attributes"]["statistics"]
    except (ValueError, RecursionError, KeyError, TypeError):
        statistics = None
    if not _is_statistics(statistics):
        raise DataError(f"{record}/zarr.json is damaged: remove the unfinished store and pack again")
    return dict(statistics)


def _is_valid(content: dict[str, Any]) -> bool:
    """Return whether metadata could have been written by :func:`terafactor.pack`; a digest alone does not prove it."""
    try:
        layout, records = PackedLayout.from_document(content), content["records"]
        sizes = (layout.n_features, layout.block_rows, layout.tile_width)
        return (
            all(is_number(size, int) and 1 <= size < MAX_LENGTH for size in sizes)
            and layout.tile_width <= layout.n_features
            and layout.dtype in STORED_DTYPES
            and layout.content_bytes + 2 * CHECKSUM_BYTES < MAX_LENGTH  # NumPy stores the size of a type as an int32
            and content["n_permutations"] == N_PERMUTATIONS
            and len(content["statistics"]) == len(records) >= 1
            and all(map(_is_record, records))
            and all(map(_is_statistics, content["statistics"]))
            and isinstance(content["fingerprint"], str)
            and (layout.version == 1 or _are_checksums(content["permutation_checksums"]))
            and "standardize" in content
            and "seed" in content
        )
    except (KeyError, TypeError):
        return False


def _is_record(record: dict[str, Any]) -> bool:
    start, stop = record["start"], record["stop"]
    return (
        isinstance(record["name"], str)
        and is_number(start, int)
        and is_number(stop, int)
        and 0 <= start < stop < MAX_ROWS
    )


def _is_statistics(numbers: Any) -> bool:
    return isinstance(numbers, dict) and all(
        is_number(value) and abs(value) <= sys.float_info.max for value in numbers.values()
    )


def _are_checksums(values: list[Any]) -> bool:
    return (
        isinstance(values, list)
        and len(values) == N_PERMUTATIONS
        and all(is_number(value, int) and 0 <= value < 2**32 for value in values)
    )


def _with_digest(content: dict[str, Any]) -> dict[str, Any]:
    return group_document({"terafactor": {**content, "checksum": _digest(content)}})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(encode(content)).hexdigest()
