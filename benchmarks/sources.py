"""Bars of the packed store: bytes and time per batch from a cold cache, learning, memory, and fits."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.core import ALPHA, brain_like, learn, start
from benchmarks.harness import Bar, Result, Skipped, best_times
from terafactor import ArraySource, ElasticNet, MatrixSource, NormBall, open_source, pack
from terafactor.data import BatchStream, FeatureTiles
from terafactor.data.masks import masks_of
from terafactor.data.packed.layout import N_PERMUTATIONS, PackedLayout
from terafactor.data.packed.reader import PackedSource
from terafactor.problem import Problem
from terafactor.solver import Snapshot, SolverOptions, State, fit, objective
from terafactor.testing import CountingSource

N_ROWS, N_FEATURES, BLOCK = 1200, 200_000, 40

LARGE = Path.home() / ".cache" / "terafactor-benchmarks" / "10000x200000.packed"
"""The store of 8 GB, written once."""

RIDGE_ON_SPARSE_ATOMS = Problem(1e-3, ElasticNet(0.0), NormBall("l1"))
"""The setting of the paper for functional MRI."""


@contextlib.contextmanager
def packed(n_features: int) -> Iterator[tuple[PackedSource, np.ndarray]]:
    """Yield a store of 1 200 rows and the array it was made from; remove it on exit."""
    X = np.random.default_rng(0).standard_normal((N_ROWS, n_features), np.float32)
    with store_of(X) as source:
        yield source, X


@contextlib.contextmanager
def store_of(X: np.ndarray) -> Iterator[PackedSource]:
    """Yield a store of an array; remove it on exit."""
    with tempfile.TemporaryDirectory() as folder:
        yield open_source(pack(X, Path(folder) / "store", block_rows=BLOCK))


def forget(source: PackedSource) -> None:
    """Drop the store from the page cache."""
    for path in source.path.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_bytes() -> int:
    """Return the bytes that this process has read from disk."""
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def cold(source: PackedSource, work: Callable[[], object]) -> tuple[float, int]:
    """Return seconds and bytes of some work on a store that is not in the page cache."""
    forget(source)
    before, started = disk_bytes(), time.perf_counter()
    work()
    return time.perf_counter() - started, disk_bytes() - before


def epoch(source: PackedSource, reduction: float) -> Callable[[], None]:
    """Return a function that reads every batch of an epoch, one after the other."""
    stream = BatchStream(source, BLOCK, masks_of(source, reduction, 0), 0, whole_rows=False)

    def read() -> None:
        for number in range(stream.batches_per_epoch):
            stream.batch(number)

    return read


def with_zarr(source: PackedSource, reduction: float) -> Callable[[], None]:
    """Return a function that reads and verifies the same chunks with zarr-python, in the order of the store."""
    import zarr

    stream = BatchStream(source, BLOCK, masks_of(source, reduction, 0), 0, whole_rows=False)
    group = zarr.open_group(source.path, mode="r")
    arrays = [group[f"records/{number:06d}"] for number in range(len(source.records))]
    starts = [rows.start for rows in source.records]
    width, n_features = source.layout.tile_width, source.shape[1]

    def read() -> None:
        for number in range(stream.batches_per_epoch):
            part = stream._read_of(number)
            mask = stream._mask(part, number)
            tiles = np.unique(source._order_and_inverse(part.record)[1][mask] // width)
            first = int(part.rows[0]) - starts[part.record]
            for run in np.split(tiles, np.flatnonzero(np.diff(tiles) != 1) + 1):
                stop = min((int(run[-1]) + 1) * width, n_features)
                arrays[part.record][first : first + len(part.rows), int(run[0]) * width : stop]

    return read


def reading(quick: bool) -> Iterator[Result]:
    """1 and 2: one epoch of 1 200 x 200 000 float32 in batches of 40 rows, from a cold cache."""
    if not sys.platform.startswith("linux"):
        yield Skipped("1 and 2 cold reads", "needs posix_fadvise and /proc/self/io")
        return
    repeats = 4 if quick else 8
    with packed(N_FEATURES) as (source, X):
        epoch(source, 12)()  # compiles
        full_bytes, times = X.nbytes, {}
        work = {f"r={r}": epoch(source, r) for r in (1, 4, 8, 12)} | {"zarr r=12": with_zarr(source, 12)}
        taken: dict[str, list[tuple[float, int]]] = {name: [] for name in work}
        for _, (name, read) in itertools.product(range(repeats), work.items()):  # in turns: other load affects all
            taken[name].append(cold(source, read))
        for name, measured_times in taken.items():
            times[name] = 1e3 * min(seconds for seconds, _ in measured_times) / (N_ROWS // BLOCK)
            if name.startswith("r=") and name != "r=1":
                share = max(read_bytes for _, read_bytes in measured_times) / (full_bytes / int(name[2:]))
                yield Bar(f"1 bytes read over full/r, {name}", share, 1.10, details={"ms per batch": times[name]})
        details = {f"{name} ms": value for name, value in times.items()}
        yield Bar("2 time per batch, r=12 over full rows", times["r=12"] / times["r=1"], 1 / 4, details=details)
        yield Bar("2 time per batch, r=12 over zarr-python", times["r=12"] / times["zarr r=12"], 1 / 3)


class PerFeature(CountingSource):
    """Store that hides its tiles, so that masks are drawn feature by feature."""

    def tiles(self, record: int) -> FeatureTiles:
        return FeatureTiles()


def learning(quick: bool) -> Iterator[Result]:
    """3: held-out objective at r = 10 after 5 epochs of 3 600 x 20 000, masks of tiles against masks of features."""
    X, held_out = brain_like(20_000)
    problems = {"l2": Problem(ALPHA, ElasticNet(1.0), NormBall("l2")), "l1": RIDGE_ON_SPARSE_ATOMS}
    with store_of(X) as source:
        for norm, problem in problems.items():
            init = start(X, 40, problem.constraint)
            reached: dict[str, list[float]] = {"tiles": [], "features": []}
            for seed, (name, rows) in itertools.product(
                range(3 if quick else 6), (("tiles", source), ("features", PerFeature(source)))
            ):
                state = learn(
                    rows, problem, init, batch_size=BLOCK, reduction=10, statistics="masked", n_epochs=5, seed=seed,
                    n_threads=2,
                )  # fmt: skip
                atoms = np.ascontiguousarray(state.dictionary)
                reached[name].append(objective(ArraySource(held_out), atoms, problem, 2))
            means = {name: float(np.mean(values)) for name, values in reached.items()}
            details = means | {f"{name} spread": float(np.ptp(values)) for name, values in reached.items()}
            ratio = means["tiles"] / means["features"]
            yield Bar(
                f"3 objective with packed masks over per-feature masks, {norm} ball", ratio, 1.01, details=details
            )


class GeneratedRows(MatrixSource):
    """Rows of noise, generated when read, a block at a time."""

    def __init__(self, n_rows: int, n_features: int) -> None:
        self.shape, self.dtype = (n_rows, n_features), np.dtype(np.float32)

    def row_blocks(self, record: int) -> Sequence[range]:
        return [range(at, min(at + BLOCK, self.shape[0])) for at in range(0, self.shape[0], BLOCK)]

    def read(self, rows: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        blocks = {int(block) for block in rows // BLOCK}
        made = {
            block: np.random.default_rng(block).standard_normal((BLOCK, self.shape[1]), np.float32) for block in blocks
        }
        values = np.stack([made[int(row) // BLOCK][int(row) % BLOCK] for row in rows])
        return values if columns is None else values[:, columns]


def large_store() -> Path:
    """Return the store of 8 GB; write it if it does not exist."""
    if not LARGE.exists():
        LARGE.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(LARGE.parent).free < 12e9:
            raise OSError("12 GB of disk are needed for a store of 8 GB")
        pack(GeneratedRows(10_000, N_FEATURES), LARGE, block_rows=BLOCK)
    return LARGE


STATUS = """
import resource, sys
if sys.argv[1] != "0":
    resource.setrlimit(resource.RLIMIT_AS, (int(float(sys.argv[1])),) * 2)
import numpy as np
from terafactor import MaskedDictionaryLearning, RandomMasks, pack

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def growth(work):
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    work()
    return status("VmHWM") - before
"""

FIT_UNDER_LIMIT = (
    STATUS
    + """
setting = dict(penalty="l2", constraint="l1", alpha=1e-3, reduction=RandomMasks(12, "masked"), random_state=0,
               batch_size=40, n_epochs=1)
small = np.random.default_rng(0).standard_normal((200, 2000), np.float32)
MaskedDictionaryLearning(70, **setting).fit(small)
estimator = MaskedDictionaryLearning(70, **setting)
print(growth(lambda: estimator.fit(sys.argv[2])), estimator.n_steps_)
"""
)

PACK = (
    STATUS
    + """
options = dict(dtype=sys.argv[4], standardize=sys.argv[4] == "int16", n_threads=2)
pack(np.ones((200, 2000), np.float32), sys.argv[3] + ".small", **options)
print(growth(lambda: pack(sys.argv[2], sys.argv[3], **options)))
"""
)


def measured(script: str, *arguments: object) -> list[float]:
    """Run a script in a separate process; return the numbers that it prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(found.stderr)
    return [float(word) for word in found.stdout.split()]


def memory(quick: bool) -> Iterator[Result]:
    """4: a fit of 8 GB at k = 70, r = 12 under an address space of 2 GB; and the memory of packing."""
    if not sys.platform.startswith("linux"):
        yield Skipped("4 memory", "read from /proc, which this system lacks")
        return
    if quick and not LARGE.exists():
        yield Skipped("4 memory of a fit of 8 GB", "its store does not exist; the full benchmarks write it")
    else:
        growth, n_steps = measured(FIT_UNDER_LIMIT, 2e9, large_store())
        allowed = 3 * N_FEATURES * 70 * 4 + 300e6
        details = {"steps": n_steps}
        yield Bar("4 memory of a fit of 8 GB under 2 GB", growth / 1e6, allowed / 1e6, unit="MB", details=details)
    block = BLOCK * N_FEATURES * 4
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npy"
        np.save(rows, np.random.default_rng(0).standard_normal((N_ROWS, N_FEATURES), np.float32))
        for dtype in ("float32", "int16"):
            (growth,) = measured(PACK, 0, rows, Path(folder) / dtype, dtype)
            yield Bar(f"memory of packing, {dtype}, in blocks of rows per thread", growth / block / 2, 6, unit="blocks")


class SimulatedStudy(MatrixSource):
    """2 000 records of 1 200 rows in the layout of a store: sparse maps mixed by random codes, and noise.

    Values are generated when read; ``seconds`` is the time spent on that.
    """

    in_memory = True  # no prefetching, so that generating rows and learning are timed apart

    def __init__(self, n_maps: int = 40) -> None:
        random = np.random.default_rng(0)
        self.shape, self.dtype, self.seconds = (2_400_000, N_FEATURES), np.dtype(np.float32), 0.0
        self._records = [range(start, start + N_ROWS) for start in range(0, self.shape[0], N_ROWS)]
        width = PackedLayout.of(N_FEATURES, BLOCK, "float32").tile_width
        self._tiles = [FeatureTiles(width, random.permutation(N_FEATURES)) for _ in range(N_PERMUTATIONS)]
        self._maps = random.standard_normal((N_FEATURES, n_maps), np.float32)
        self._maps *= random.random(self._maps.shape, np.float32) < 0.05
        self._noise = random.standard_normal(2**24, np.float32)

    @property
    def records(self) -> Sequence[range]:
        return self._records

    def row_blocks(self, record: int) -> Sequence[range]:
        start = record * N_ROWS
        return [range(at, at + BLOCK) for at in range(start, start + N_ROWS, BLOCK)]

    def tiles(self, record: int) -> FeatureTiles:
        return self._tiles[record % N_PERMUTATIONS]

    def read(self, rows: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        started = time.perf_counter()
        maps = self._maps if columns is None else self._maps[columns]
        random = np.random.default_rng(int(rows[0]))
        values = random.standard_normal((len(rows), maps.shape[1]), np.float32) @ maps.T
        for row in values:
            at = int(random.integers(len(self._noise) - len(row)))
            row += self._noise[at : at + len(row)]
        self.seconds += time.perf_counter() - started
        return values


def two_terabytes(quick: bool) -> Iterator[Result]:
    """6: steps per second on n = 2.4e6, p = 2e5, k = 70, r = 12, two threads; an epoch is 60 000 of them.

    The figure is the shortest mean of two cycles of masks, as times of other bars are the shortest of their repeats.
    """
    source, n_epoch, window = SimulatedStudy(), 2_400_000 // BLOCK, 24
    atoms = start(source.read(np.arange(100)), 70, RIDGE_ON_SPARSE_ATOMS.constraint)
    n_steps = window * (6 if quick else 25) + 1
    options = SolverOptions(
        70, batch_size=BLOCK, reduction=12, statistics="masked", n_threads=2, n_epochs=n_steps / n_epoch
    )
    finished: list[float] = []

    def note(snapshot: Snapshot) -> None:
        finished.append(time.perf_counter() - source.seconds)

    source.seconds, started = 0.0, time.perf_counter()
    fit(source, RIDGE_ON_SPARSE_ATOMS, options, State.start(atoms, RIDGE_ON_SPARSE_ATOMS), [note])
    means = np.diff(finished[:n_steps:window]) / window
    hours = n_epoch * float(means.min()) / 3600
    details = {
        "steps per second": 1 / float(means.min()),
        "median ms per step": 1e3 * float(np.median(means)),
        "first step after s": finished[0] - started,
    }
    yield Bar("6 an epoch of 2 TB, extrapolated", hours, 1, unit="h", details=details)


def fitting(quick: bool) -> Iterator[Result]:
    """5: one epoch at r = 12, k = 60, ridge codes and the l1 ball, from a store in the cache and from memory."""
    problem = RIDGE_ON_SPARSE_ATOMS
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


BENCHMARKS = {
    "reading": reading,
    "learning": learning,
    "memory": memory,
    "fitting": fitting,
    "two_terabytes": two_terabytes,
}
