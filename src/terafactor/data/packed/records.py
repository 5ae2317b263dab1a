"""Writer of the records of a packed store: threads and processes write different ones at the same time."""

from __future__ import annotations

import io
import json
import math
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from terafactor._durable import replace_durably, storage_errors, unfinished, write_durably
from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.data.packed.layout import (
    N_PERMUTATIONS,
    PackedLayout,
    array_document,
    encode,
    record_id,
    record_path,
    scales_path,
    shard_path,
)
from terafactor.data.packed.quantization import Quantization, quantization_of
from terafactor.data.packed.shard import shard_seed, write_shard
from terafactor.data.packed.statistics import RecordStatistics
from terafactor.data.source import MatrixSource, read_finite
from terafactor.errors import DataError, StorageError

Progress = Callable[[int], None]
"""Called with a number of finished rows, from several threads."""

NO_MISSING_VALUES = (
    "a packed store holds no missing values: drop such rows or columns, fill them in, or learn from the matrix as it "
    "is, with missing='nan'"
)

MAX_READ_VALUES = 2**23
"""Largest number of values that a thread reads at once, where the row blocks of the source are larger."""


def write_records(source: MatrixSource, store: str | Path, numbers: Iterable[int]) -> None:
    """Write the records ``numbers`` of an unfinished store, in any process that sees it; existing ones are kept.

    Records of the store that are parts of the same record of the source share a pass over it if one call writes them.

    Examples
    --------
    >>> import tempfile
    >>> from terafactor import open_source
    >>> from terafactor.data.packed.writer import unfinished_store
    >>> source, out = open_source(np.eye(6)), Path(tempfile.mkdtemp()) / "store"
    >>> with unfinished_store(source, out, block_rows=2) as (store, numbers):
    ...     for number in numbers:  # in any order, each in a process of its own
    ...         write_records(source, store, [number])
    >>> open_source(out).shape
    (6, 6)
    """
    writer = RecordWriter(source, Path(store))
    for number in numbers:
        writer.write(number)


class RecordWriter:
    """Writes records of an unfinished store, as its plan determines them; threads may share a writer.

    Parameters
    ----------
    source : MatrixSource
        The same for all writers of a store.
    store : Path
        Folder of the unfinished store.
    progress : callable, optional
        Called with the number of rows of each finished part.
    """

    def __init__(self, source: MatrixSource, store: Path, progress: Progress = lambda n_rows: None) -> None:
        self.source, self.store, self.progress = source, store, progress
        self.plan = _read_plan(store)
        self.layout = PackedLayout.from_document(self.plan)
        self._starts = np.array([rows.start for rows in source.records])
        # The parts of a record of the source share its quantization; the first one computes it.
        self._quantizations: dict[int, Quantization] = {}
        self._locks = [Lock() for _ in source.records]

    def write(self, number: int) -> None:
        """Write one record, under a temporary name until it is on disk; keep it if it exists."""
        rows = range(self.plan["records"][number]["start"], self.plan["records"][number]["stop"])
        final = record_path(self.store, number)
        if final.exists():
            self.progress(len(rows))
            return
        with unfinished(final) as temporary:
            statistics = self._write_shards(temporary, number, rows)
            document = array_document(self.layout, len(rows), {"statistics": statistics})
            write_durably(temporary / "zarr.json", encode(document))
            _publish(temporary, final)

    def _write_shards(self, folder: Path, number: int, rows: range) -> dict[str, float]:
        """Write the blocks of a record, and its scales if it has any; return its statistics."""
        order, identity = feature_order(self.plan, number), record_id(self.plan, number)
        quantization, statistics = self._quantization(rows), RecordStatistics()
        for block, values in enumerate(self._read_blocks(rows)):
            wanted = quantization.standardize(values)
            stored = quantization.quantize(wanted)
            path = Path(shard_path(folder, block))
            with storage_errors(path):
                path.parent.mkdir(parents=True)
                with open(path, "wb") as file:
                    write_shard(file, self.layout, stored, order, shard_seed(identity, "records", block))
            as_read = quantization.dequantize(stored)
            statistics.add(as_read)
            if not math.isfinite(statistics.maximum - statistics.minimum):
                name = self.source.record_name(self._record_of(rows.start))
                raise DataError(f"{name} reaches beyond {self.layout.dtype}: pack it as float64")
            if self.layout.scaled:
                statistics.add_errors(np.subtract(as_read, wanted, out=as_read))
            self.progress(len(values))
        if quantization.scale is not None:
            content, scale = io.BytesIO(), quantization.scale[np.newaxis]
            write_shard(content, self.layout.scales, scale, order, shard_seed(identity, "scales", number))
            write_durably(Path(shard_path(scales_path(self.store), number)), content.getvalue())
        return statistics.summary(with_errors=self.layout.scaled)

    def _quantization(self, rows: range) -> Quantization:
        """Return the quantization of the record of the source that contains ``rows``, the same for all its parts."""
        number = self._record_of(rows.start)
        record = self.source.records[number]
        with self._locks[number]:
            quantization = self._quantizations.get(number)
            if quantization is None:
                quantization = quantization_of(
                    self._read_blocks(record),
                    np.dtype(self.layout.dtype),
                    standardize=self.plan["standardize"],
                    name=self.source.record_name(number),
                )
                if len(record) > len(rows):
                    self._quantizations[number] = quantization
        return quantization

    def _record_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _read_blocks(self, rows: range) -> Iterator[Array]:
        """Yield rows a block at a time; reads several blocks at once if the row blocks of the source are larger."""
        height = self.layout.block_rows
        source_blocks = self.source.row_blocks(self._record_of(rows.start)) or ()
        n_rows = min(max(map(len, source_blocks), default=0), MAX_READ_VALUES // self.layout.n_features)
        rows_per_read = height * max(1, n_rows // height)
        for start in range(rows.start, rows.stop, rows_per_read):
            chosen = np.arange(start, min(start + rows_per_read, rows.stop))
            values = read_finite(self.source, chosen, about_nan=NO_MISSING_VALUES)
            for first in range(0, len(values), height):
                yield values[first : first + height]


def feature_order(plan: dict[str, Any], number: int) -> Indices:
    """Return the order in which a record stores its features (p,), int32."""
    n_features = plan["layout"]["n_features"]
    return generator(plan["seed"], Purpose.PACKING, number % N_PERMUTATIONS).permutation(n_features).astype("<i4")


def _read_plan(store: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((store / "plan.json").read_bytes()))
    except OSError as error:
        raise DataError(
            f"{store} is not visible on host {socket.gethostname()}: pack to a file system that all machines share"
        ) from error


def _publish(folder: Path, final: Path) -> None:
    """Give a finished record its name, unless another process was faster: both wrote the same bytes."""
    try:
        replace_durably(folder, final)
    except StorageError:
        if not final.exists():
            raise
        shutil.rmtree(folder, ignore_errors=True)
