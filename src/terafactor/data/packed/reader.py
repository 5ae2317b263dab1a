"""Reading a packed store."""

from __future__ import annotations

import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.packed.layout import (
    CHECKSUM_BYTES,
    N_PERMUTATIONS,
    PackedLayout,
    array_document,
    encoded,
    group_document,
    permutations_document,
    read_metadata,
    read_store_document,
    record_path,
    scales_path,
)
from terafactor.data.packed.shard import DamagedShardError, read_tiles, read_tiles_with_zarr, sealed
from terafactor.data.source import FeatureTiles, MatrixSource, check_indices
from terafactor.data.sources.formats import Format, refuse_inside
from terafactor.errors import DataError, ParameterError
from terafactor.kernels.gather import gather_columns
from terafactor.kernels.tiles import copy_runs, find, locate

TileReader = Callable[[Path, int, PackedLayout, Indices, bool], Array]


class PackedSource(MatrixSource):
    """A store written by :func:`terafactor.pack`, of which a mask reads its share and no more.

    Whatever is read is verified; a damaged store is refused by record and chunk. Any rows and columns can be read, but
    a chunk, ``block_rows`` rows by ``tile_width`` features, is read as a whole:

    - a batch of ``block_rows`` rows, or a multiple, reads nothing twice and nothing in vain;
    - batches of a divisor share a block, and the mask of it, and read it once, together;
    - any other batch size cuts blocks in two, and reads up to twice as much or, below ``block_rows``, more.

    Parameters
    ----------
    path : Path
        Folder of the store.
    reader : {"direct", "zarr"}, optional
        How: by our own reads of many tiles at once, the default where the system has them, or by zarr-python. Both
        verify what they read.

    Attributes
    ----------
    statistics : list of dict
        Count, mean, standard deviation, minimum and maximum of the numbers of each record, as they are read; of
        integers also the error that they make, ``rms_error`` and ``max_error``.
    fingerprint : str
        That of the data when it was packed.
    """

    checked = True

    def __init__(self, path: str | Path, *, reader: Literal["direct", "zarr"] | None = None) -> None:
        self.path = Path(path)
        self._read_tiles = _reader(reader)
        content = read_store_document(self.path)
        self.layout = PackedLayout(**content["layout"])
        self.statistics = content["statistics"]
        self.fingerprint = content["fingerprint"]
        self._names = [record["name"] for record in content["records"]]
        lengths = [record["stop"] - record["start"] for record in content["records"]]
        edges = np.cumsum([0, *lengths]).tolist()
        self._records = [range(start, stop) for start, stop in itertools.pairwise(edges)]
        self._blocks = _Blocks(lengths, self.layout.block_rows)
        self.shape = (edges[-1], self.layout.n_features)
        self.dtype = np.dtype("float32" if self.layout.scaled else self.layout.dtype)
        self._verify(self.path / "records" / "zarr.json", encoded(group_document({})))
        if self.layout.scaled:
            document = array_document(self.layout.scales, len(lengths), {})
            self._verify(scales_path(self.path) / "zarr.json", encoded(document))
        self._orders = self._read_permutations()
        self._places: dict[int, Array] = {}
        self._verified: dict[int, Path] = {}
        self._known_shards: set[tuple[int, str]] = set()

    @property
    def records(self) -> Sequence[range]:
        return self._records

    def record_name(self, record: int) -> str:
        return f"record {record} ({self._names[record]}) of {self.path}"

    def record_label(self, record: int) -> str:
        return self._names[record]

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        layout, scales = self.layout, self.layout.scales
        per_tile = layout.tile_type.itemsize + (scales.tile_type.itemsize if layout.scaled else 0)
        per_block = layout.index_bytes + (scales.index_bytes if layout.scaled else 0)
        total = 0
        for block, _ in self._blocks.parts(rows):
            n_tiles = layout.n_tiles
            if columns is not None:
                order, place = self._order_and_place(self._blocks.record[block])
                at, numbers = np.empty(len(columns), np.int64), np.empty(n_tiles, np.int64)
                n_tiles = find(columns, order, place, layout.tile_width, at, numbers)
            total += n_tiles * per_tile + per_block
        return total

    def row_blocks(self, record: int) -> Sequence[range]:
        rows, height = self._records[record], self.layout.block_rows
        return [range(start, min(start + height, rows.stop)) for start in range(rows.start, rows.stop, height)]

    def tiles(self, record: int) -> FeatureTiles:
        return FeatureTiles(self.layout.tile_width, self._orders[record % N_PERMUTATIONS])

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        columns = np.arange(self.shape[1]) if columns is None else columns
        check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), len(columns)), self.dtype)
        if not values.size:
            return values
        for block, mine in self._blocks.parts(rows):
            if isinstance(mine, slice):
                self._read_block(block, rows[mine], columns, values[mine])
            else:
                part = np.empty((len(mine), len(columns)), self.dtype)
                self._read_block(block, rows[mine], columns, part)
                values[mine] = part
        return values

    def _read_block(self, block: int, rows: Indices, columns: Indices, out: Array) -> None:
        """Read rows of one block: put the tiles that hold the columns in memory, and pick from there."""
        layout, record, number = self.layout, self._blocks.record[block], self._blocks.number[block]
        chosen, places = self._located(columns, record, layout)
        tiles = self._tiles(self._verified_record(record), number, layout, chosen, f"block {number}", record)
        inside, width, step = rows - self._blocks.first_row[block], layout.tile_width, tiles.itemsize
        if not copy_runs(tiles.ravel(), width, inside, places, out):
            # Entry (i, start of tile + place inside it) of the view is row i of that place.
            shape = (layout.block_rows, (len(chosen) - 1) * layout.numbers_apart + width)
            view: Array = np.ndarray(shape, tiles.dtype, tiles, strides=(width * step, step))
            gather_columns(view, inside, places, 0, len(places), out)
        if layout.scaled:
            chosen, places = self._located(columns, record, layout.scales)
            scales = self._tiles(scales_path(self.path), record, layout.scales, chosen, "the scales", record)
            out *= scales.ravel()[places]

    def _located(self, columns: Indices, record: int, layout: PackedLayout) -> tuple[Indices, Indices]:
        """Return the tiles of a record that hold the columns, and where these lie in them, read one after the other."""
        order, place = self._order_and_place(record)
        chosen, places = np.empty(layout.n_tiles, np.int64), np.empty(len(columns), np.int64)
        count = locate(columns, order, place, layout.tile_width, layout.numbers_apart, chosen, places)
        return chosen[:count], places

    def _tiles(self, array: Path, block: int, layout: PackedLayout, chosen: Indices, what: str, record: int) -> Array:
        """Read tiles of a shard, its index with them when it is read for the first time."""
        shard = (record, what)
        try:
            tiles = self._read_tiles(array, block, layout, chosen, shard not in self._known_shards)
        except DamagedShardError as error:
            raise DataError(
                f"{what} of {self.record_name(record)} is damaged: {error}; restore it or pack again"
            ) from error
        self._known_shards.add(shard)
        return tiles

    def _order_and_place(self, record: int) -> tuple[Indices, Array]:
        """Return the order in which a record stores its features, and the place of each in it."""
        number = record % N_PERMUTATIONS
        if number not in self._places:
            place = np.empty(self.layout.n_features, np.int32)
            place[self._orders[number]] = np.arange(len(place), dtype=np.int32)
            self._places[number] = place
        return self._orders[number], self._places[number]

    def _verified_record(self, record: int) -> Path:
        """Return the folder of a record, refused the first time if its metadata is not what the store says."""
        if record not in self._verified:
            path = record_path(self.path, record)
            attributes = {"statistics": self.statistics[record]}
            expected = array_document(self.layout, len(self._records[record]), attributes)
            self._verify(path / "zarr.json", encoded(expected))
            self._verified[record] = path
        return self._verified[record]

    def _read_permutations(self) -> list[Indices]:
        folder, n_features = self.path / "permutations", self.layout.n_features
        self._verify(folder / "zarr.json", encoded(permutations_document(n_features)))
        orders = []
        for number in range(N_PERMUTATIONS):
            raw = read_metadata(folder / "c" / str(number) / "0")
            content = raw[:-CHECKSUM_BYTES]
            if len(content) != 4 * n_features or sealed(content) != raw:
                raise DataError(f"permutation {number} of {self.path} is damaged: restore it or pack again")
            orders.append(np.frombuffer(content, "<i4"))
        return orders

    def _verify(self, path: Path, expected: bytes) -> None:
        if read_metadata(path) != expected:
            raise DataError(f"{path} was changed since the store was packed: restore it or pack again")


class _Blocks:
    """All blocks of all records: record, number inside it, first row."""

    def __init__(self, lengths: Sequence[int], height: int) -> None:
        counts = [-(-length // height) for length in lengths]
        starts = np.cumsum([0, *lengths])[:-1]
        self.record: list[int] = np.repeat(np.arange(len(lengths)), counts).tolist()
        self.number = [number for count in counts for number in range(count)]
        self.first_row: list[int] = (starts[self.record] + np.array(self.number) * height).tolist()

    def parts(self, rows: Indices) -> Iterator[tuple[int, slice | Indices]]:
        """Yield each block that holds some of the rows, and which of them: a slice where they follow each other."""
        if len(rows):
            ends = np.minimum.reduce(rows), np.maximum.reduce(rows)
            first, last = (bisect_right(self.first_row, int(row)) - 1 for row in ends)
            if first == last:
                yield first, slice(0, len(rows))
                return
        owners = np.searchsorted(self.first_row, rows, side="right") - 1
        for block in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == block)
            together = mine[-1] - mine[0] + 1 == len(mine)
            yield block, slice(int(mine[0]), int(mine[-1]) + 1) if together else mine


def open_packed(path: Path, inside: str | None = None, **options: Any) -> MatrixSource:
    """Return the rows of a packed store."""
    refuse_inside(path, inside)
    return PackedSource(path, **options)


def _reader(name: str | None) -> TileReader:
    readers: dict[str, TileReader] = {"direct": read_tiles, "zarr": read_tiles_with_zarr}
    name = name or ("direct" if hasattr(os, "preadv") else "zarr")
    if name not in readers:
        raise ParameterError(f"reader must be 'direct' or 'zarr', got {name!r}")
    return readers[name]


def _is_packed(path: Path) -> bool:
    try:
        return "terafactor" in json.loads((path / "zarr.json").read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


FORMAT = Format(
    name="packed",
    understands="packed stores, written by terafactor pack",
    is_path=_is_packed,
    open_path=open_packed,
)
