"""Writer of packed stores."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from terafactor._durable import locked, remove_leftovers, replace_durably, storage_errors, write_durably
from terafactor._random import Purpose, generator
from terafactor._threads import resolve_threads
from terafactor._typing import Array, Indices, is_number
from terafactor.data.fingerprint import fingerprint
from terafactor.data.open import open_source
from terafactor.data.packed.layout import (
    DTYPES,
    N_PERMUTATIONS,
    PackedLayout,
    array_document,
    encode,
    group_document,
    permutations_document,
    plan_of,
    read_metadata,
    read_statistics,
    read_store_document,
    record_id,
    record_path,
    scales_path,
    shard_path,
    store_document,
)
from terafactor.data.packed.quantization import Quantization, quantization_of
from terafactor.data.packed.shard import append_checksum, checksum, shard_seed, write_shard
from terafactor.data.packed.statistics import RecordStatistics
from terafactor.data.source import MatrixSource, read_finite
from terafactor.errors import DataError, ParameterError

Progress = Callable[[int], None]
"""Called with a number of finished rows, from several threads."""

NO_MISSING_VALUES = (
    "a packed store holds no missing values: drop such rows or columns, fill them in, or learn from the matrix as it "
    "is, with missing='nan'"
)

MAX_READ_VALUES = 2**23
"""Largest number of values that a thread reads at once, where the row blocks of the source are larger."""


def pack(
    source: Any,
    out: str | Path,
    *,
    block_rows: int = 40,
    dtype: Any = None,
    standardize: bool = False,
    seed: int = 0,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a source as a packed store, of which a step with ``reduction=r`` reads 1 / r.

    Several threads write records at the same time, each holding a few blocks of rows. A finished record appears
    immediately and stays; the store itself appears under its name when all are finished. Until then it is
    ``<out>.partial``, and the same call resumes an interrupted one. The bytes depend on data and parameters only.

    Parameters
    ----------
    source : anything that open_source takes
        Fewer than 16 records are split, so that there are as many orders of features as possible.
    out : path
        Folder of the store; must not exist.
    block_rows : int, default=40
        Rows that are read together: the ``batch_size`` of the fits to come.
    dtype : float32, float64 or int16, optional
        Stored type; by default that of the source. int16 takes half the space of float32, and a second pass over every
        record: the values of each feature of a record become multiples of a scale, its largest magnitude / 32 767, and
        are read as float32. :attr:`PackedSource.statistics` holds the quantization errors.
    standardize : bool, default=False
        Whether to scale each feature of each record to mean zero and variance one; constant ones become zero. Takes a
        second pass over every record.
    seed : int, default=0
        Seed of the orders of features.
    n_threads : int or None, default=None
        Records written at the same time; None: one per core.
    progress : callable, optional
        Called with the number of rows of each finished part, from several threads.

    Returns
    -------
    Path
        The store; :func:`terafactor.open_source` opens it.

    Examples
    --------
    >>> import tempfile
    >>> from terafactor import open_source
    >>> store = pack(np.eye(6), Path(tempfile.mkdtemp()) / "store", block_rows=2)
    >>> open_source(store).shape
    (6, 6)
    """
    out = Path(out)
    if os.path.lexists(out):
        raise DataError(f"{out} exists and is not overwritten: choose another name, or remove it")
    if not (is_number(block_rows, int) and block_rows >= 1):
        raise ParameterError(f"block_rows must be an integer >= 1, got {block_rows!r} (the batch_size of fits)")
    opened = open_source(source)
    layout = PackedLayout.of(opened.shape[1], block_rows, _stored_dtype(opened, dtype))
    plan = plan_of(
        layout,
        standardize=bool(standardize),
        seed=seed,
        fingerprint=fingerprint(opened),
        records=_split_records(opened, block_rows),
    )
    partial = out.with_name(f"{out.name}.partial")
    with _partial_store(partial, plan):
        _StoreWriter(opened, partial, layout, plan, progress or _ignore).run(resolve_threads(n_threads))
        (partial / "plan.json").unlink(missing_ok=True)
        replace_durably(partial, out)
    return out


class _StoreWriter:
    """Writes the parts of a store that do not exist yet."""

    def __init__(
        self, source: MatrixSource, store: Path, layout: PackedLayout, plan: dict[str, Any], progress: Progress
    ) -> None:
        self.source, self.store, self.layout, self.plan, self.progress = source, store, layout, plan, progress
        self._starts = np.array([rows.start for rows in source.records])
        # The parts of a record of the source share its quantization; the first one computes it.
        self._quantizations: dict[int, Quantization] = {}
        self._locks = [Lock() for _ in source.records]

    def run(self, n_threads: int) -> None:
        """Write the missing parts of the store."""
        if (self.store / "zarr.json").exists():
            return
        orders = self._write_permutations()
        records = self.plan["records"]
        with ThreadPoolExecutor(n_threads, "terafactor-pack") as pool:
            try:
                statistics = list(pool.map(lambda number: self._write_record(number, orders), range(len(records))))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        write_durably(self.store / "records" / "zarr.json", encode(group_document({})))
        if self.layout.scaled:
            document = array_document(self.layout.scales, len(records), {})
            write_durably(scales_path(self.store) / "zarr.json", encode(document))
        shutil.rmtree(self.store / "unfinished", ignore_errors=True)
        checksums = [checksum(order.tobytes()) for order in orders]
        write_durably(self.store / "zarr.json", encode(store_document(self.plan, statistics, checksums)))

    def _write_permutations(self) -> list[Indices]:
        orders = [
            generator(self.plan["seed"], Purpose.PACKING, number).permutation(self.layout.n_features).astype("<i4")
            for number in range(N_PERMUTATIONS)
        ]
        for number, order in enumerate(orders):
            write_durably(self.store / "permutations" / "c" / str(number) / "0", append_checksum(order.tobytes()))
        document = permutations_document(self.layout.n_features)
        write_durably(self.store / "permutations" / "zarr.json", encode(document))
        return orders

    def _write_record(self, number: int, orders: list[Indices]) -> dict[str, float]:
        """Write one record, under a temporary name until it is on disk; return its statistics."""
        order = orders[number % N_PERMUTATIONS]
        rows = range(self.plan["records"][number]["start"], self.plan["records"][number]["stop"])
        final = record_path(self.store, number)
        if final.exists():
            self.progress(len(rows))
            return read_statistics(final)
        unfinished = self.store / "unfinished" / str(number)
        shutil.rmtree(unfinished, ignore_errors=True)
        quantization, statistics, identity = self._quantization(rows), RecordStatistics(), record_id(self.plan, number)
        for block, values in enumerate(self._read_blocks(rows)):
            wanted = quantization.standardize(values)
            stored = quantization.quantize(wanted)
            path = Path(shard_path(unfinished, block))
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
        summary = statistics.summary(with_errors=self.layout.scaled)
        document = array_document(self.layout, len(rows), {"statistics": summary})
        write_durably(unfinished / "zarr.json", encode(document))
        replace_durably(unfinished, final)
        return summary

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


def _stored_dtype(source: MatrixSource, dtype: Any) -> str:
    with contextlib.suppress(TypeError):
        name = np.dtype(source.dtype if dtype is None else dtype).name
        if name in DTYPES:
            return name
    raise ParameterError(f"dtype must be {', '.join(DTYPES)} or None for that of the source, got {dtype!r}")


def _split_records(source: MatrixSource, block_rows: int) -> list[dict[str, Any]]:
    """Split records, between blocks, such that there are as many parts as permutations, if there are enough rows."""
    records = [record for record in source.records if record]
    wanted = -(-N_PERMUTATIONS // len(records))
    parts = []
    for number, rows in enumerate(source.records):
        name, identity = source.record_label(number), source.record_identity(number)
        known = {} if identity is None else {"identity": identity}
        n_blocks = -(-len(rows) // block_rows)
        for blocks in np.array_split(np.arange(n_blocks), max(1, min(wanted, n_blocks))):
            if len(blocks):
                start = rows.start + int(blocks[0]) * block_rows
                stop = min(rows.start + (int(blocks[-1]) + 1) * block_rows, rows.stop)
                parts.append({"name": name, "start": start, "stop": stop} | known)
    return parts


@contextlib.contextmanager
def _partial_store(partial: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Lock the folder of an unfinished store, which is new, or left by an interrupted call with the same plan."""
    link = next((path for path in (partial, *partial.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise DataError(f"{link} is a symbolic link, which is not written through: remove it first")
    (partial / "records").mkdir(parents=True, exist_ok=True)
    with locked(partial):
        plan_file = partial / "plan.json"
        if (partial / "zarr.json").exists():
            content = read_store_document(partial)
            resumable = {key: content.get(key) for key in plan} == plan
        else:
            resumable = not plan_file.exists() or _resume(partial, read_metadata(plan_file), plan)
        if not resumable:
            raise DataError(f"{partial} was left by packing other data, or with other options: remove it first")
        write_durably(plan_file, encode(plan))
        shutil.rmtree(partial / "unfinished", ignore_errors=True)
        remove_leftovers(partial)
        yield


def _resume(partial: Path, raw: bytes, plan: dict[str, Any]) -> bool:
    """Return whether an unfinished store can be resumed; remove its records that have changed.

    raw: the plan with which it was begun, as stored.
    """
    try:
        before = json.loads(raw)
        if before != plan and _without_identities(before) != _without_identities(plan):
            return False
    except (ValueError, RecursionError, KeyError, TypeError):  # damaged
        return False
    for number, (old, new) in enumerate(zip(before["records"], plan["records"], strict=True)):
        if old != new:
            shutil.rmtree(record_path(partial, number), ignore_errors=True)
    return True


def _without_identities(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal for unchanged records to stay valid, if every record has an identity."""
    if not all("identity" in record for record in plan["records"]):
        return plan
    return plan | {"fingerprint": None, "records": [record | {"identity": None} for record in plan["records"]]}


def _ignore(n_rows: int) -> None:
    pass
