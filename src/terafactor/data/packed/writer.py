"""Writing a packed store."""

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
    N_PERMUTATIONS,
    PackedLayout,
    array_document,
    encoded,
    group_document,
    permutations_document,
    plan_of,
    read_store_document,
    record_path,
    scales_path,
    shard_path,
    store_document,
)
from terafactor.data.packed.moments import Totals
from terafactor.data.packed.quantization import Quantization, quantization_of
from terafactor.data.packed.shard import sealed, write_shard
from terafactor.data.source import MatrixSource, read_finite
from terafactor.errors import DataError, ParameterError

Progress = Callable[[int], None]
"""Called with a number of rows that are done, from several threads."""

DTYPES = ("float32", "float64", "int16")

NO_MISSING_VALUES = (
    "a packed store holds no missing values: drop such rows or columns, fill them in, or learn from the matrix as it "
    "is, with missing='nan'"
)

VALUES_AT_ONCE = 2**23
"""Numbers that a thread reads together, at the most, where the blocks of the source are higher than ours."""


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
    """Write a source as a packed store, of which a step with ``reduction=r`` reads one part in r.

    Records are written side by side by several threads, each holding a few blocks of rows. One that is finished appears
    at once and stays; the store itself appears under its name when all are. Until then it is ``<out>.partial``, and the
    same call goes on where an interrupted one ended. The bytes depend on data and parameters only.

    Parameters
    ----------
    source : anything that open_source takes
        Fewer than 16 records are cut into pieces, so that there are as many orders of features as possible.
    out : path
        Folder of the store; must not exist.
    block_rows : int, default=40
        Rows that are read together: the ``batch_size`` that you mean to use.
    dtype : float32, float64 or int16, optional
        What to store; by default that of the source. int16 takes half the space of float32, and a second look at every
        record: the numbers of each feature of a record become multiples of a scale, its largest magnitude / 32 767, and
        are read as float32. The error that makes is in the metadata, see :attr:`PackedSource.statistics`.
    standardize : bool, default=False
        Whether to bring each feature of each record to mean zero and variance one; constant ones become zero. Takes a
        second look at every record.
    seed : int, default=0
        Of the orders of features.
    n_threads : int or None, default=None
        Records written at the same time; None: one per core.
    progress : callable, optional
        Called with the number of rows of each piece of work that is done, from several threads.

    Returns
    -------
    Path
        The store; :func:`terafactor.open_source` opens it.
    """
    out = Path(out)
    if os.path.lexists(out):
        raise DataError(f"{out} exists, and is not overwritten: choose another name, or remove it")
    if not (is_number(block_rows, int) and block_rows >= 1):
        raise ParameterError(f"block_rows must be an integer >= 1, got {block_rows!r} (it is the batch_size of fits)")
    opened = open_source(source)
    layout = PackedLayout.of(opened.shape[1], block_rows, _stored_dtype(opened, dtype))
    plan = plan_of(
        layout,
        standardize=bool(standardize),
        seed=seed,
        fingerprint=fingerprint(opened),
        records=_pieces(opened, block_rows),
    )
    partial = out.with_name(f"{out.name}.partial")
    with _begun(partial, plan):
        _Packer(opened, partial, layout, plan, progress or _ignore).run(resolve_threads(n_threads))
        (partial / "plan.json").unlink(missing_ok=True)
        replace_durably(partial, out)
    return out


class _Packer:
    """Writes what a plan asks for and is not there yet."""

    def __init__(
        self, source: MatrixSource, store: Path, layout: PackedLayout, plan: dict[str, Any], progress: Progress
    ) -> None:
        self.source, self.store, self.layout, self.plan, self.progress = source, store, layout, plan, progress
        self._starts = np.array([rows.start for rows in source.records])
        # Several pieces of a record of the source share its coding, and one of them finds it.
        self._codings: dict[int, Quantization] = {}
        self._locks = [Lock() for _ in source.records]

    def run(self, n_threads: int) -> None:
        """Write what is not there yet."""
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
        write_durably(self.store / "records" / "zarr.json", encoded(group_document({})))
        if self.layout.scaled:
            document = array_document(self.layout.scales, len(records), {})
            write_durably(scales_path(self.store) / "zarr.json", encoded(document))
        shutil.rmtree(self.store / "unfinished", ignore_errors=True)
        write_durably(self.store / "zarr.json", encoded(store_document(self.plan, statistics)))

    def _write_permutations(self) -> list[Indices]:
        orders = [
            generator(self.plan["seed"], Purpose.PACKING, number).permutation(self.layout.n_features).astype("<i4")
            for number in range(N_PERMUTATIONS)
        ]
        for number, order in enumerate(orders):
            write_durably(self.store / "permutations" / "c" / str(number) / "0", sealed(order.tobytes()))
        document = permutations_document(self.layout.n_features)
        write_durably(self.store / "permutations" / "zarr.json", encoded(document))
        return orders

    def _write_record(self, number: int, orders: list[Indices]) -> dict[str, float]:
        """Write one record, under a temporary name until it is on the disk; return its statistics."""
        order = orders[number % N_PERMUTATIONS]
        rows = range(self.plan["records"][number]["start"], self.plan["records"][number]["stop"])
        final = record_path(self.store, number)
        if final.exists():
            self.progress(len(rows))
            return _statistics_of(final)
        unfinished = self.store / "unfinished" / str(number)
        shutil.rmtree(unfinished, ignore_errors=True)
        coding, totals = self._coding(rows), Totals()
        for block, values in enumerate(self._blocks(rows)):
            self._write_block(Path(shard_path(unfinished, block)), values, order, coding, totals)
            if not math.isfinite(totals.most - totals.least):
                name = self.source.record_name(self._record_of(rows.start))
                raise DataError(f"{name} reaches beyond {self.layout.dtype}: pack it as float64")
            self.progress(len(values))
        if coding.scale is not None:
            self._write_scales(number, coding.scale, order)
        statistics = totals.statistics(with_errors=self.layout.scaled)
        document = array_document(self.layout, len(rows), {"statistics": statistics})
        write_durably(unfinished / "zarr.json", encoded(document))
        replace_durably(unfinished, final)
        return statistics

    def _write_block(self, path: Path, values: Array, order: Indices, coding: Quantization, totals: Totals) -> None:
        wanted = coding.standardized(values)
        stored = coding.stored(wanted)
        with storage_errors(path):
            path.parent.mkdir(parents=True)
            with open(path, "wb") as file:
                write_shard(file, self.layout, stored, order)
        as_read = coding.read(stored)
        totals.add(as_read)
        if self.layout.scaled:
            totals.add_errors(np.subtract(as_read, wanted, out=as_read))

    def _write_scales(self, number: int, scale: Array, order: Indices) -> None:
        content = io.BytesIO()
        write_shard(content, self.layout.scales, scale[np.newaxis], order)
        write_durably(Path(shard_path(scales_path(self.store), number)), content.getvalue())

    def _coding(self, rows: range) -> Quantization:
        """Return the coding of the record of the source that ``rows`` are of, the same for all pieces of it."""
        number = self._record_of(rows.start)
        record = self.source.records[number]
        with self._locks[number]:
            coding = self._codings.get(number)
            if coding is None:
                coding = quantization_of(
                    self._blocks(record),
                    np.dtype(self.layout.dtype),
                    standardize=self.plan["standardize"],
                    name=self.source.record_name(number),
                )
                if len(record) > len(rows):
                    self._codings[number] = coding
        return coding

    def _record_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _blocks(self, rows: range) -> Iterator[Array]:
        """Read rows a block at a time, or a few blocks where the source keeps more rows together."""
        height = self.layout.block_rows
        together = self.source.row_blocks(self._record_of(rows.start))
        most = min(max(map(len, together or ()), default=0), VALUES_AT_ONCE // self.layout.n_features)
        at_once = height * max(1, most // height)
        for start in range(rows.start, rows.stop, at_once):
            chosen = np.arange(start, min(start + at_once, rows.stop))
            values = read_finite(self.source, chosen, about_nan=NO_MISSING_VALUES)
            for first in range(0, len(values), height):
                yield values[first : first + height]


def _stored_dtype(source: MatrixSource, dtype: Any) -> str:
    with contextlib.suppress(TypeError):
        name = np.dtype(source.dtype if dtype is None else dtype).name
        if name in DTYPES:
            return name
    raise ParameterError(f"dtype must be {', '.join(DTYPES)} or None for that of the source, got {dtype!r}")


def _pieces(source: MatrixSource, block_rows: int) -> list[dict[str, Any]]:
    """Cut records into whole blocks such that there are as many pieces as permutations, where rows allow."""
    records = [record for record in source.records if record]
    wanted = -(-N_PERMUTATIONS // len(records))
    pieces = []
    for number, rows in enumerate(source.records):
        name, identity = source.record_label(number), source.record_identity(number)
        known = {} if identity is None else {"identity": identity}
        n_blocks = -(-len(rows) // block_rows)
        for blocks in np.array_split(np.arange(n_blocks), max(1, min(wanted, n_blocks))):
            if len(blocks):
                start = rows.start + int(blocks[0]) * block_rows
                stop = min(rows.start + (int(blocks[-1]) + 1) * block_rows, rows.stop)
                pieces.append({"name": name, "start": start, "stop": stop} | known)
    return pieces


@contextlib.contextmanager
def _begun(partial: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Hold the folder of an unfinished store, made new or left by an interrupted call with the same plan."""
    (partial / "records").mkdir(parents=True, exist_ok=True)
    with locked(partial):
        finished = partial / "zarr.json"
        left = partial / "plan.json"
        if finished.exists():
            content = read_store_document(partial)
            same = {key: content.get(key) for key in plan} == plan
        else:
            same = not left.exists() or _take_up(partial, json.loads(left.read_bytes()), plan)
        if not same:
            raise DataError(f"{partial} was left by packing other data, or with other options: remove it first")
        write_durably(left, encoded(plan))
        shutil.rmtree(partial / "unfinished", ignore_errors=True)
        remove_leftovers(partial)
        yield


def _take_up(partial: Path, before: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Whether an unfinished store can be gone on with; records that are known to have changed are packed again."""
    if before != plan and _apart_from_identities(before) != _apart_from_identities(plan):
        return False
    for number, (old, new) in enumerate(zip(before["records"], plan["records"], strict=True)):
        if old != new:
            shutil.rmtree(record_path(partial, number), ignore_errors=True)
    return True


def _apart_from_identities(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what must be the same for finished records to stay, where each tells by itself whether it changed."""
    if not all("identity" in record for record in plan["records"]):
        return plan
    return plan | {"fingerprint": None, "records": [record | {"identity": None} for record in plan["records"]]}


def _statistics_of(record: Path) -> dict[str, float]:
    return dict(json.loads((record / "zarr.json").read_bytes())["attributes"]["statistics"])


def _ignore(n_rows: int) -> None:
    pass
