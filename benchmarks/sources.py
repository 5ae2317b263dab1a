"""The bars of the packed store: bytes and time per batch from a cold cache, and a fit from it against memory."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.core import learn, start
from benchmarks.harness import Bar, Result, Skipped, best_times
from terafactor import ArraySource, ElasticNet, MatrixSource, NormBall, open_source, pack
from terafactor.data import BatchStream
from terafactor.data.masks import masks_of
from terafactor.data.packed import PackedSource
from terafactor.problem import Problem

N_ROWS, N_FEATURES, BLOCK = 1200, 200_000, 40


@contextlib.contextmanager
def packed(n_features: int) -> Iterator[tuple[PackedSource, np.ndarray]]:
    """Yield a store of 1 200 rows and the array it was made from; remove it afterwards."""
    X = np.random.default_rng(0).standard_normal((N_ROWS, n_features), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        yield open_source(pack(X, Path(folder) / "store", block_rows=BLOCK)), X


def forget(source: PackedSource) -> None:
    """Drop the store from the cache of the system, and the last block from ours."""
    source._recent = None
    for path in source.path.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_bytes() -> int:
    """Return the bytes that this process made the system fetch from the disk."""
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def cold(source: PackedSource, work: Callable[[], object]) -> tuple[float, int]:
    """Return seconds and bytes of some work on a store that is not in the cache."""
    forget(source)
    before, started = disk_bytes(), time.perf_counter()
    work()
    return time.perf_counter() - started, disk_bytes() - before


def epoch(source: PackedSource, reduction: float) -> Callable[[], None]:
    """Return a function that reads every batch of an epoch."""
    stream = BatchStream(source, BLOCK, masks_of(source, reduction, 0), 0, whole_rows=False)

    def read() -> None:
        for _ in stream.batches(0, stream.batches_per_epoch):
            pass

    return read


def with_zarr(source: PackedSource, reduction: float) -> Callable[[], None]:
    """Return a function that reads the same chunks by zarr-python, verified, left in the order of the store."""
    import zarr

    stream = BatchStream(source, BLOCK, masks_of(source, reduction, 0), 0, whole_rows=False)
    group = zarr.open_group(source.path, mode="r")
    arrays = [group[f"records/{number:06d}"] for number in range(len(source.records))]
    starts = [rows.start for rows in source.records]
    width, n_features = source.layout.tile_width, source.shape[1]

    def read() -> None:
        for number in range(stream.batches_per_epoch):
            _, place = stream._place(number)
            columns = stream.masks.mask(number, place.record, place.visit)
            tiles = np.unique(source._places_of(place.record)[columns] // width)
            first = int(place.rows[0]) - starts[place.record]
            for run in np.split(tiles, np.flatnonzero(np.diff(tiles) != 1) + 1):
                stop = min((int(run[-1]) + 1) * width, n_features)
                arrays[place.record][first : first + len(place.rows), int(run[0]) * width : stop]

    return read


def reading(quick: bool) -> Iterator[Result]:
    """1 and 2: one epoch of 1 200 x 200 000 float32 in batches of 40 rows, from a cold cache."""
    if not sys.platform.startswith("linux"):
        yield Skipped("1 and 2 cold reads", "needs posix_fadvise and /proc/self/io")
        return
    repeats = 2 if quick else 5
    with packed(N_FEATURES) as (source, X):
        epoch(source, 12)()  # compiles
        full_bytes, times = X.nbytes, {}
        work = {f"r={r}": epoch(source, r) for r in (1, 4, 8, 12)} | {"zarr r=12": with_zarr(source, 12)}
        for name, read in work.items():
            taken = [cold(source, read) for _ in range(repeats)]
            times[name] = 1e3 * min(seconds for seconds, _ in taken) / (N_ROWS // BLOCK)
            if name.startswith("r=") and name != "r=1":
                share = max(read_bytes for _, read_bytes in taken) / (full_bytes / int(name[2:]))
                yield Bar(f"1 bytes read over full/r, {name}", share, 1.10, details={"ms per batch": times[name]})
        details = {f"{name} ms": value for name, value in times.items()}
        yield Bar("2 time per batch, r=12 over full rows", times["r=12"] / times["r=1"], 1 / 4, details=details)
        yield Bar("2 time per batch, r=12 over zarr-python", times["r=12"] / times["zarr r=12"], 1 / 3)


def fitting(quick: bool) -> Iterator[Result]:
    """5: one epoch at r = 12, k = 60, ridge codes and the l1 ball, from a store in the cache and from memory."""
    problem = Problem(1e-3, ElasticNet(0.0), NormBall("l1"))
    with packed(N_FEATURES) as (source, X):
        init, array = start(X, 60, problem.constraint), ArraySource(X)
        options = {"batch_size": BLOCK, "reduction": 12, "statistics": "masked", "n_threads": 2}
        steps: dict[str, int] = {}

        def run(name: str, rows: MatrixSource) -> None:
            steps[name] = learn(rows, problem, init, **options).n_steps

        contestants = {"store s": lambda: run("store", source), "memory s": lambda: run("memory", array)}
        times = best_times(contestants, repeats=2 if quick else 5)
    details = times | {f"{name} steps": count for name, count in steps.items()}
    ratio = times["store s"] / times["memory s"]
    yield Bar("5 fit from the store over fit from memory, r=12", ratio, 1.3, details=details)


BENCHMARKS = {"reading": reading, "fitting": fitting}
