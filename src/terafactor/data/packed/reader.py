"""Reader of packed stores."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array, Indices
from terafactor.data.packed.layout import (
    CHECKSUM_BYTES,
    N_PERMUTATIONS,
    PackedLayout,
    array_document,
    encode,
    group_document,
    permutations_document,
    read_metadata,
    read_store_document,
    record_id,
    record_path,
    scales_path,
)
from terafactor.data.packed.shard import (
    DamagedShardError,
    append_checksum,
    checksum,
    read_tiles,
    read_tiles_with_zarr,
    shard_seed,
)
from terafactor.data.source import FeatureTiles, MatrixSource, check_indices
from terafactor.data.sources.formats import Format, refuse_inside
from terafactor.errors import DataError, ParameterError
from terafactor.kernels.gather import gather_columns
from terafactor.kernels.tiles import copy_runs, find_tiles, locate_columns

BLOCK_BYTES = 100
"""Memory per block of rows, for its entry in a table."""


class PackedSource(MatrixSource):
    """A store written by :func:`terafactor.pack`, of which a step reads only its mask.

    Every read is verified; errors name the damaged record and chunk. Any rows and columns can be read, but a chunk,
    ``block_rows`` rows by ``tile_width`` features, is always read whole:

    - batches of ``block_rows`` rows, or a multiple, read every chunk once, and use all of it;
    - batches of a divisor share a block and its mask, and read the block once, together;
    - other batch sizes split blocks, and read up to twice as much or, below ``block_rows``, more.

    Parameters
    ----------
    path : Path
        Folder of the store.
    reader : {"direct", "zarr"}, optional
        Read many tiles at once, directly (the default), or through zarr-python, slower. Both verify what they read.

    Attributes
    ----------
    statistics : list of dict
        Count, mean, standard deviation, minimum and maximum of the values of each record, as they are read; with
        int16 also the quantization errors, ``rms_error`` and ``max_error``.
    fingerprint : str
        Fingerprint of the packed data.
    """

    checked = True

    def __init__(self, path: str | Path, *, reader: Literal["direct", "zarr"] | None = None) -> None:
        self.path = Path(path)
        self._read_tiles = _tile_reader(reader)
        content = read_store_document(self.path)
        self.layout = PackedLayout.from_document(content)
        self.statistics = content["statistics"]
        self.fingerprint = content["fingerprint"]
        self._names = [record["name"] for record in content["records"]]
        lengths = [record["stop"] - record["start"] for record in content["records"]]
        edges = np.cumsum([0, *lengths]).tolist()
        self._records = [range(start, stop) for start, stop in itertools.pairwise(edges)]
        check_size(BLOCK_BYTES * sum(-(-n // self.layout.block_rows) for n in lengths), str(self.path), max_bytes())
        self._blocks = _BlockTable(lengths, self.layout.block_rows)
        self.shape = (edges[-1], self.layout.n_features)
        self.dtype = np.dtype("float32" if self.layout.scaled else self.layout.dtype)
        self._verify(self.path / "records" / "zarr.json", encode(group_document({})))
        if self.layout.scaled:
            document = array_document(self.layout.scales, len(lengths), {})
            self._verify(scales_path(self.path) / "zarr.json", encode(document))
        self._orders = self._read_permutations(content.get("permutation_checksums"))
        self._inverse_orders: dict[int, Array] = {}
        self._plan = content
        self._record_ids: dict[int, bytes] = {}
        self._verified_indexes: set[tuple[int, str, int]] = set()

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
        for block, _ in self._blocks.split(rows):
            n_tiles = layout.n_tiles
            if columns is not None:
                order, inverse = self._order_and_inverse(self._blocks.record[block])
                at, numbers = np.empty(len(columns), np.int64), np.empty(n_tiles, np.int64)
                n_tiles = find_tiles(columns, order, inverse, layout.tile_width, at, numbers)
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
        for block, positions in self._blocks.split(rows):
            if isinstance(positions, slice):
                self._read_block(block, rows[positions], columns, values[positions])
            else:
                part = np.empty((len(positions), len(columns)), self.dtype)
                self._read_block(block, rows[positions], columns, part)
                values[positions] = part
        return values

    def _read_block(self, block: int, rows: Indices, columns: Indices, out: Array) -> None:
        """Read rows of one block: load the tiles that hold the columns, and gather from them."""
        layout, record, number = self.layout, self._blocks.record[block], self._blocks.number[block]
        tiles, places = self._load(record_path(self.path, record), "records", record, number, layout, columns)
        inside, width, step = rows - self._blocks.first_row[block], layout.tile_width, tiles.itemsize
        if not copy_runs(tiles.ravel(), width, inside, places, out):
            # Entry (i, start of tile + position inside it) of the view is row i at that position.
            shape = (layout.block_rows, (len(tiles) - 1) * layout.tile_stride + width)
            view: Array = np.ndarray(shape, tiles.dtype, tiles, strides=(width * step, step))
            gather_columns(view, inside, places, 0, len(places), out)
        if layout.scaled:
            tiles, places = self._load(scales_path(self.path), "scales", record, record, layout.scales, columns)
            scales = tiles.ravel()[places]
            if not (np.minimum.reduce(scales) > 0 and np.maximum.reduce(scales) < np.inf):
                raise DataError(
                    f"the scales of {self.record_name(record)} must be positive and finite: restore them or pack again"
                )
            out *= scales

    def _load(
        self, path: Path, array: str, record: int, block: int, layout: PackedLayout, columns: Indices
    ) -> tuple[Array, Indices]:
        """Return the tiles of a shard that hold the columns, and the position of each column in them.

        The first read of a shard also verifies its index.
        """
        order, inverse = self._order_and_inverse(record)
        chosen, places = np.empty(layout.n_tiles, np.int64), np.empty(len(columns), np.int64)
        count = locate_columns(columns, order, inverse, layout.tile_width, layout.tile_stride, chosen, places)
        seed, shard = shard_seed(self._verified_id(record), array, block), (record, array, block)
        try:
            tiles = self._read_tiles(
                path, block, layout, chosen[:count], seed, with_index=shard not in self._verified_indexes
            )
        except DamagedShardError as error:
            what = "the scales" if array == "scales" else f"block {block}"
            raise DataError(
                f"{what} of {self.record_name(record)} is damaged: {error}; restore it or pack again"
            ) from error
        self._verified_indexes.add(shard)
        return tiles, places

    def _order_and_inverse(self, record: int) -> tuple[Indices, Array]:
        """Return the order in which a record stores its features, and the position of each feature in it."""
        number = record % N_PERMUTATIONS
        if number not in self._inverse_orders:
            inverse = np.empty(self.layout.n_features, np.int32)
            inverse[self._orders[number]] = np.arange(len(inverse), dtype=np.int32)
            self._inverse_orders[number] = inverse
        return self._orders[number], self._inverse_orders[number]

    def _verified_id(self, record: int) -> bytes:
        """Return the id of a record; the first time, refuse the record if its metadata differ from the store's."""
        if record not in self._record_ids:
            attributes = {"statistics": self.statistics[record]}
            expected = array_document(self.layout, len(self._records[record]), attributes)
            self._verify(record_path(self.path, record) / "zarr.json", encode(expected))
            self._record_ids[record] = record_id(self._plan, record)
        return self._record_ids[record]

    def _read_permutations(self, checksums: list[int] | None) -> list[Indices]:
        """Return the orders of features. checksums: those of the store's metadata, since version 2."""
        folder, n_features = self.path / "permutations", self.layout.n_features
        self._verify(folder / "zarr.json", encode(permutations_document(n_features)))
        orders = []
        for number in range(N_PERMUTATIONS):
            raw = read_metadata(folder / "c" / str(number) / "0")
            content = raw[:-CHECKSUM_BYTES]
            intact = append_checksum(content) == raw and (checksums is None or checksum(content) == checksums[number])
            order = np.frombuffer(content if len(content) == 4 * n_features else b"", "<i4")
            if not (intact and _is_permutation(order, n_features)):
                raise DataError(f"permutation {number} of {self.path} is damaged: restore it or pack again")
            orders.append(order)
        return orders

    def _verify(self, path: Path, expected: bytes) -> None:
        if read_metadata(path) != expected:
            raise DataError(f"{path} was changed since the store was packed: restore it or pack again")


def _is_permutation(order: Indices, length: int) -> bool:
    if len(order) != length or order.min() < 0 or order.max() >= length:
        return False
    present = np.zeros(length, np.bool_)
    present[order] = True
    return bool(present.all())


class _BlockTable:
    """The blocks of all records: record, number in the record, and first row of each."""

    def __init__(self, lengths: Sequence[int], height: int) -> None:
        counts = [-(-length // height) for length in lengths]
        starts = np.cumsum([0, *lengths])[:-1]
        self.record: list[int] = np.repeat(np.arange(len(lengths)), counts).tolist()
        self.number = [number for count in counts for number in range(count)]
        self.first_row: list[int] = (starts[self.record] + np.array(self.number) * height).tolist()

    def split(self, rows: Indices) -> Iterator[tuple[int, slice | Indices]]:
        """Yield each block that holds some of the rows, and their positions: a slice if they are consecutive."""
        if len(rows):
            ends = np.minimum.reduce(rows), np.maximum.reduce(rows)
            first, last = (bisect_right(self.first_row, int(row)) - 1 for row in ends)
            if first == last:
                yield first, slice(0, len(rows))
                return
        owners = np.searchsorted(self.first_row, rows, side="right") - 1
        for block in np.unique(owners).tolist():
            positions = np.flatnonzero(owners == block)
            consecutive = positions[-1] - positions[0] + 1 == len(positions)
            yield block, slice(int(positions[0]), int(positions[-1]) + 1) if consecutive else positions


def open_packed(
    path: Path, inside: str | None = None, *, reader: Literal["direct", "zarr"] | None = None
) -> MatrixSource:
    """Return a source of a packed store."""
    refuse_inside(path, inside)
    return PackedSource(path, reader=reader)


def _tile_reader(name: str | None) -> Callable[..., Array]:
    readers = {None: read_tiles, "direct": read_tiles, "zarr": read_tiles_with_zarr}
    if name not in readers:
        raise ParameterError(f"reader must be 'direct' or 'zarr', got {name!r}")
    return readers[name]


def _is_packed(path: Path) -> bool:
    """Return whether a folder is a packed store: by its metadata or, if they are lost, by its records."""
    if (path / "permutations" / "zarr.json").is_file() and (record_path(path, 0) / "zarr.json").is_file():
        return True  # with other metadata, the folder would be read as a Zarr array without chunks, all zeros
    try:
        return "terafactor" in json.loads(read_metadata(path / "zarr.json"))["attributes"]
    except (DataError, ValueError, RecursionError, KeyError, TypeError):
        return False


FORMAT = Format(
    name="packed",
    description="packed stores, written by terafactor pack",
    is_path=_is_packed,
    open_path=open_packed,
)
