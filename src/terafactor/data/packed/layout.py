"""The packed store on disk: sizes, names and metadata. ``docs/sources.md`` describes it for readers.

A store is a Zarr v3 group. Each record is an array ``records/000000`` whose columns are the features in a shuffled
order, ``permutations[record % 16]``; each shard is one block of rows with all features, each chunk one tile of features
of it. Integers are multiples of ``scales[record]``, which has the same order and tiles. Every byte is covered by a
checksum, or can be made again from what is.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.errors import DataError

VERSION = 1
N_PERMUTATIONS = 16
TILE_WIDTH = 2000
"""Features per tile, at the most."""

TILES_PER_ROW = 128
"""Tiles, at the least, where there are as many features: a mask is a whole number of tiles."""

CHECKSUM_BYTES = 4
LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
CHECKSUM = {"name": "crc32c"}


@dataclass(frozen=True)
class PackedLayout:
    """What determines the bytes of a shard."""

    n_features: int
    block_rows: int
    """Rows per shard; the last one of a record is filled up with zeros."""

    tile_width: int
    """Features per chunk; the last tile is filled up with zeros."""

    dtype: str
    """float32, float64, or int16 with a scale per record and feature."""

    @classmethod
    def of(cls, n_features: int, block_rows: int, dtype: str) -> PackedLayout:
        """Return the layout for a width: tiles of equal width with as little filling as possible."""
        n_tiles = max(-(-n_features // TILE_WIDTH), min(n_features, TILES_PER_ROW))
        return cls(n_features, block_rows, -(-n_features // n_tiles), dtype)

    @cached_property
    def n_tiles(self) -> int:
        return -(-self.n_features // self.tile_width)

    @property
    def scaled(self) -> bool:
        """Whether numbers are multiples of a scale."""
        return self.dtype == "int16"

    @cached_property
    def scales(self) -> PackedLayout:
        """The layout of the scales, a row per record."""
        return replace(self, block_rows=1, dtype="float32")

    @cached_property
    def number_type(self) -> np.dtype[Any]:
        """One number as it lies in the file."""
        return np.dtype(self.dtype).newbyteorder("<")

    @cached_property
    def tile_type(self) -> np.dtype[Any]:
        """One chunk as it lies in the file: its numbers, then their checksum."""
        return np.dtype([("values", self.number_type, (self.block_rows, self.tile_width)), ("checksum", "<u4")])

    @cached_property
    def numbers_apart(self) -> int:
        """Numbers from one tile to the next, read together: the checksum between them counts where it is whole ones."""
        return self.block_rows * self.tile_width + CHECKSUM_BYTES // self.number_type.itemsize

    @cached_property
    def index_bytes(self) -> int:
        return 16 * self.n_tiles + CHECKSUM_BYTES

    @cached_property
    def shard_bytes(self) -> int:
        return self.n_tiles * self.tile_type.itemsize + self.index_bytes

    @cached_property
    def index(self) -> bytes:
        """Offset and size of every chunk of a shard: they follow each other."""
        size = self.tile_type.itemsize
        return np.stack([np.arange(self.n_tiles) * size, np.full(self.n_tiles, size)], axis=1).astype("<u8").tobytes()


def record_path(store: Path, record: int) -> Path:
    return store / f"records/{record:06d}"


def scales_path(store: Path) -> Path:
    return store / "scales"


def shard_path(array: Path, block: int) -> str:
    """Return the file of a block; as text, which takes a tenth of the time of a path, for each read."""
    return f"{array}{os.sep}c{os.sep}{block}{os.sep}0"


def encoded(document: dict[str, Any]) -> bytes:
    """Return a document as the one text that stands for it."""
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
    return {**fixed, "layout": asdict(layout), **choices}


def store_document(plan: dict[str, Any], statistics: list[dict[str, float]]) -> dict[str, Any]:
    """Return the metadata of the whole store, with its own checksum."""
    return _sealed_document({**plan, "statistics": statistics})


def read_store_document(path: Path) -> dict[str, Any]:
    """Return the content of a store's metadata, or say what is wrong with it."""
    raw = read_metadata(path / "zarr.json")
    try:
        document = json.loads(raw)
        content = dict(document["attributes"]["terafactor"])
        checksum = content.pop("checksum")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}/zarr.json is damaged, or no packed store: {error!r}; restore it or pack again"
        ) from error
    if content.get("version", 0) != VERSION:
        raise DataError(
            f"{path} has version {content.get('version')!r} of the packed store, this terafactor reads {VERSION}"
        )
    if checksum != _digest(content) or encoded(_sealed_document(content)) != raw:
        raise DataError(f"{path}/zarr.json does not match its checksum: it was changed; restore it or pack again")
    return content


def read_metadata(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} is missing or cannot be read: {error.strerror}; restore it or pack again") from error


def _sealed_document(content: dict[str, Any]) -> dict[str, Any]:
    return group_document({"terafactor": {**content, "checksum": _digest(content)}})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(encoded(content)).hexdigest()
