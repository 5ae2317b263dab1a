"""Writing a packed store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._durable import replace_durably, write_durably
from terafactor._random import Purpose, generator
from terafactor._threads import resolve_threads
from terafactor._typing import Array, Indices, is_number
from terafactor.data.fingerprint import fingerprint
from terafactor.data.open import open_source
from terafactor.data.packed_layout import (
    N_PERMUTATIONS,
    PackedLayout,
    encoded,
    group_document,
    permutations_document,
    plan_of,
    read_store_document,
    record_document,
    record_path,
    shard_path,
    store_document,
)
from terafactor.data.shard import sealed, write_shard
from terafactor.data.source import MatrixSource, read_finite
from terafactor.errors import DataError, ParameterError

Progress = Callable[[int], None]
"""Called with a number of rows that are done, from several threads."""


def pack(
    source: Any,
    out: str | Path,
    *,
    block_rows: int = 40,
    dtype: Any = None,
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
    dtype : float32 or float64, optional
        What to store; by default that of the source.
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
    stored = np.dtype(opened.dtype if dtype is None else dtype)
    if stored not in (np.float32, np.float64):
        raise ParameterError(f"dtype must be float32 or float64, got {dtype!r}")
    layout = PackedLayout.of(opened.shape[1], block_rows, stored.name)
    plan = plan_of(layout, seed, fingerprint(opened), _pieces(opened, block_rows))
    partial = out.with_name(f"{out.name}.partial")
    with _begun(partial, plan):
        _Packer(opened, partial, layout, plan, progress or _ignore).run(resolve_threads(n_threads))
        (partial / "plan.json").unlink(missing_ok=True)
        replace_durably(partial, out)
    return out


@dataclass(frozen=True)
class _Packer:
    source: MatrixSource
    store: Path
    layout: PackedLayout
    plan: dict[str, Any]
    progress: Progress

    def run(self, n_threads: int) -> None:
        """Write what is not there yet."""
        if (self.store / "zarr.json").exists():
            return
        orders = self._write_permutations()
        records = self.plan["records"]
        with ThreadPoolExecutor(n_threads, "terafactor-pack") as pool:
            try:
                statistics = list(
                    pool.map(
                        lambda number: self._write_record(number, orders[number % N_PERMUTATIONS]), range(len(records))
                    )
                )
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        write_durably(self.store / "records" / "zarr.json", encoded(group_document({})))
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

    def _write_record(self, number: int, order: Indices) -> dict[str, float]:
        """Write one record, under a temporary name until it is on the disk; return its statistics."""
        rows = range(self.plan["records"][number]["start"], self.plan["records"][number]["stop"])
        final = record_path(self.store, number)
        if final.exists():
            self.progress(len(rows))
            return _statistics_of(final)
        store = self.store / "unfinished" / str(number)
        shutil.rmtree(store, ignore_errors=True)
        sums = _Sums()
        for block, start in enumerate(range(rows.start, rows.stop, self.layout.block_rows)):
            chosen = np.arange(start, min(start + self.layout.block_rows, rows.stop))
            values = read_finite(self.source, chosen).astype(self.layout.dtype, copy=False)
            self._write_block(shard_path(store, number, block), values, order)
            sums.add(values)
            self.progress(len(chosen))
        statistics = sums.statistics()
        document = record_document(self.layout, len(rows), statistics)
        write_durably(record_path(store, number) / "zarr.json", encoded(document))
        replace_durably(record_path(store, number), final)
        shutil.rmtree(store)
        return statistics

    def _write_block(self, path: Path, values: Array, order: Indices) -> None:
        path.parent.mkdir(parents=True)
        with open(path, "wb") as file:
            write_shard(file, self.layout, values, order)


class _Sums:
    """Sums that the statistics of a record are made of."""

    def __init__(self) -> None:
        self.count, self.total, self.squares, self.least, self.most = 0, 0.0, 0.0, np.inf, -np.inf

    def add(self, values: Array) -> None:
        self.count += values.size
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.einsum("ij,ij->", values, values, dtype=np.float64))
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))

    def statistics(self) -> dict[str, float]:
        mean = self.total / self.count
        deviation = float(np.sqrt(max(self.squares / self.count - mean**2, 0.0)))
        return {"count": self.count, "mean": mean, "std": deviation, "min": self.least, "max": self.most}


def _pieces(source: MatrixSource, block_rows: int) -> list[dict[str, Any]]:
    """Cut records into whole blocks such that there are as many pieces as permutations, where rows allow."""
    records = [record for record in source.records if record]
    wanted = -(-N_PERMUTATIONS // len(records))
    pieces = []
    for number, rows in enumerate(source.records):
        name = Path(source.record_name(number)).name
        n_blocks = -(-len(rows) // block_rows)
        for blocks in np.array_split(np.arange(n_blocks), max(1, min(wanted, n_blocks))):
            if len(blocks):
                start = rows.start + int(blocks[0]) * block_rows
                stop = min(rows.start + (int(blocks[-1]) + 1) * block_rows, rows.stop)
                pieces.append({"name": name, "start": start, "stop": stop})
    return pieces


@contextlib.contextmanager
def _begun(partial: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Hold the folder of an unfinished store, made new or left by an interrupted call with the same plan."""
    (partial / "records").mkdir(parents=True, exist_ok=True)
    with _locked(partial):
        finished = partial / "zarr.json"
        left = partial / "plan.json"
        if finished.exists():
            content = read_store_document(partial)
            same = {key: content.get(key) for key in plan} == plan
        else:
            same = not left.exists() or left.read_bytes() == encoded(plan)
        if not same:
            raise DataError(f"{partial} was left by packing other data, or with other options: remove it first")
        write_durably(left, encoded(plan))
        shutil.rmtree(partial / "unfinished", ignore_errors=True)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder where another process does; the lock goes with the process."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{folder} is being written by another process: wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


def _statistics_of(record: Path) -> dict[str, float]:
    return dict(json.loads((record / "zarr.json").read_bytes())["attributes"]["statistics"])


def _ignore(n_rows: int) -> None:
    pass
