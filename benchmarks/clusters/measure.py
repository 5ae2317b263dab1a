"""The experiments: steps of rounds, time of a round, memory of workers, one task per record."""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.data import SCENE, Matrices, hyperspectral, lasso, photographs, sparse_maps, subjects
from terafactor import ArraySource, MaskedDictionaryLearning, dask, pack
from terafactor.dictionary import defaults
from terafactor.problem import Problem
from terafactor.solver import Snapshot, SolverOptions, fit, objective
from terafactor.solver.rounds import LocalExecutor

SHARDS, STEPS = 4, 5
GROWTH = 1.05
"""Ratio of steps from one evaluation to the next."""


@dataclass(frozen=True)
class Size:
    """Sizes of the experiments."""

    seeds: int = 5
    steps: int = 300
    n_features: int = 200_000
    n_rows: int = 800
    n_components: int = 70
    rounds: int = 4
    n_records: int = 64
    record_rows: int = 40
    record_features: int = 20_000


TINY = Size(1, 20, 400, 60, 3, 1, 4, 8, 50)


@dataclass(frozen=True)
class Data:
    """A data set of the experiment on steps."""

    title: str
    make: Callable[[], Matrices]
    n_components: int
    problem: Problem
    needs: str | None = None
    """File in the data folder that it needs."""


def some_columns(matrices: Matrices, n_columns: int) -> Matrices:
    """Return random features of a training and a test matrix, and fewer test rows."""
    train, test = matrices
    columns = np.sort(np.random.default_rng(0).permutation(train.shape[1])[:n_columns])
    return np.ascontiguousarray(train[:, columns]), np.ascontiguousarray(test[:: max(1, len(test) // 150)][:, columns])


DATA = {
    "hyperspectral": Data("Hyperspectral patches 8 x 8, 1,600 features",
                          lambda: some_columns(hyperspectral(8, 1), 1600), 32, lasso(1.25), SCENE),
    "subjects": Data("Simulated subjects, 3,000 voxels", lambda: some_columns(subjects(3000, 30, 1.0), 3000), 30,
                     sparse_maps(1e-3)),
    "photographs": Data("Photographs 12 x 12", lambda: photographs(12, 60_000, 300, color=False), 64, lasso(0.5)),
}  # fmt: skip


def steps_to_level(data: Data, size: Size) -> dict[str, Any]:
    """Return the sequential steps of three ways to 1 % above the end of the fit without shards, for each seed."""
    train, test = data.make()
    k = data.n_components
    batch = max(32, 2 * k)
    ways = {
        "serial": {"batch_size": batch},
        "serial, batches of 4 times the size": {"batch_size": SHARDS * batch},
        f"{SHARDS} shards, {STEPS} steps per round": {"batch_size": batch, "shards": SHARDS, "round_steps": STEPS},
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(size.seeds):
        curves = {}
        for number, (name, changes) in enumerate(ways.items()):
            per_step = SHARDS * batch if number else batch
            n_steps = size.steps // 2 if number else size.steps
            options = SolverOptions(k, seed=seed, n_epochs=n_steps * per_step / len(train), **changes)
            options = replace(options, schedule=defaults.schedule(options, len(train)))
            curves[name] = curve_of(train, test, data.problem, options)
        level = 1.01 * curves["serial"][-1][1]
        for name, curve in curves.items():
            found[name].append(next((steps for steps, value in curve if value <= level), math.inf))
    return {"title": data.title, "shape": list(train.shape), "n_components": k, "steps": found}


def curve_of(
    train: np.ndarray, test: np.ndarray, problem: Problem, options: SolverOptions
) -> list[tuple[float, float]]:
    """Return (sequential steps, objective on test rows) during a fit."""
    points: list[tuple[float, float]] = []
    due = 1.0

    def note(snapshot: Snapshot) -> None:
        nonlocal due
        steps = snapshot.batches_done / options.shards
        if steps >= due or snapshot.stopped_by:
            due = GROWTH * steps
            points.append((steps, objective(ArraySource(test), snapshot.components, problem)))

    fit(ArraySource(train), problem, options, callbacks=[note])
    return points


@contextmanager
def workers(count: int, folder: Path, **options: Any) -> Iterator[Any]:
    """Start a local cluster of worker processes; yield a client."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0", silence_logs=50,
                     local_directory=str(folder), **options) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


def study(folder: Path, n_rows: int, n_features: int) -> Path:
    """Return a packed store of noise with some structure."""
    random = np.random.default_rng(0)
    maps = random.standard_normal((5, n_features)).astype(np.float32)
    rows = random.standard_normal((n_rows, 5)).astype(np.float32) @ maps
    return pack(rows + random.standard_normal(rows.shape).astype(np.float32), folder / "store")


def round_overhead(size: Size) -> dict[str, Any]:
    """Return the time of a round on two workers, and what it would be without any overhead."""
    problem = {"alpha": 1e-3, "penalty": "l2", "constraint": "l1", "batch_size": 40, "random_state": 0}
    with tempfile.TemporaryDirectory() as name:
        store = study(Path(name), size.n_rows, size.n_features)
        epochs = size.rounds * 2 * STEPS * 40 / size.n_rows
        parameters = {
            "n_components": size.n_components,
            "n_epochs": epochs,
            "shards": 2,
            "round_steps": STEPS,
            **problem,
        }
        state_bytes = 2 * size.n_components * size.n_features * 4
        seconds: dict[str, list[float]] = {"serial": [], "threads": [], "cluster": []}
        digests = set()
        with workers(2, Path(name)) as client:
            bandwidth = loopback(client, state_bytes)
            one_thread = round_seconds(MaskedDictionaryLearning(**parameters | {"shards": 1}, n_threads=1), store)
            for _ in range(3):
                ways = {
                    "serial": OneAfterTheOther(**parameters, n_threads=2),
                    "threads": MaskedDictionaryLearning(**parameters, n_threads=2),
                    "cluster": dask.MaskedDictionaryLearning(**parameters, client=client),
                }
                for way, model in ways.items():
                    seconds[way].append(round_seconds(model, store))
                    digests.add(digest(model.components_))
    # The driver sends the state to two workers, one sends its own to the other, which sends the merged one back.
    n_states = 4
    ideal = float(np.median(seconds["threads"])) + n_states * state_bytes / bandwidth
    return {"seconds": seconds, "ideal": ideal,
            "step_on_one_thread": one_thread, "bandwidth": bandwidth, "state_bytes": state_bytes, "n_states": n_states,
            "n_models": len(digests)}  # fmt: skip


class OneAfterTheOther(MaskedDictionaryLearning):
    """Runs shards one after the other, each on all threads."""

    def _task(self) -> Any:
        task = super()._task()
        task.executor = lambda: LocalExecutor(1)
        return task


def round_seconds(estimator: Any, store: Path) -> float:
    """Return the median time between two rounds, or steps, of a fit."""
    times: list[float] = []
    estimator.set_params(
        callbacks=[lambda snapshot: times.append(snapshot.seconds) if not snapshot.stopped_by else None]
    )
    estimator.fit(store)
    return float(np.median(np.diff(times))) if len(times) > 1 else times[0]


def loopback(client: Any, n_bytes: int) -> float:
    """Return the bandwidth with which Dask moves a state between processes, in bytes per second."""
    block = np.ones(n_bytes, np.uint8)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        client.submit(np.copy, client.scatter(block, hash=False), pure=False).result()
        times.append(time.perf_counter() - started)
    return 2 * n_bytes / min(times)


def worker_memory(size: Size) -> dict[str, Any]:
    """Return the peak memory of workers on data of ten times their limit, and the estimate of the plan."""
    n_features, n_rows, random = size.n_features // 10, 2 * size.n_rows, np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"record-{number:02d}.npy" for number in range(40)]
        for path in paths:
            np.save(path, random.standard_normal((n_rows, n_features), np.float32))
        estimator = MaskedDictionaryLearning(20, alpha=1.0, shards=2, n_epochs=1, random_state=0)
        planned = estimator.plan(paths, workers=2).cluster
        assert planned is not None
        limit = max(4 * n_rows * n_features * 4, 500_000_000)  # a tenth of the data; libraries alone take 300 MB
        with workers(2, Path(name), memory_limit=limit) as client:
            dask.on_cluster(estimator, client).fit(paths)
            used = list(client.run(peak_memory).values())
    return {"said": planned.worker_bytes, "used": used, "data_bytes": 40 * n_rows * n_features * 4}


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def record_tasks(size: Size) -> dict[str, Any]:
    """Return the times of packing, transform and objective of many records, on one and on two workers."""
    random, found = np.random.default_rng(0), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(size.n_records):
            rows = random.standard_normal((size.record_rows, size.record_features), np.float32)
            np.save(folder / f"record-{number:02d}.npy", rows)
        paths = sorted(folder.glob("record-*.npy"))
        model = MaskedDictionaryLearning(20, alpha=1.0, n_epochs=0.2, random_state=0).fit(paths)
        for count in (1, 2):
            with workers(count, folder) as client:
                on_cluster = dask.on_cluster(model, client)
                on_cluster.objective(paths[:4])  # compiles, and imports on the workers
                found[count] = [timed_tasks(on_cluster, paths, folder / f"{count}-{turn}", client) for turn in range(2)]
    best = {count: {name: min(turn[name] for turn in turns) for name in ("pack", "transform", "objective")}
            for count, turns in found.items()}  # fmt: skip
    digests = {turn["digest"] for turns in found.values() for turn in turns}
    return {"seconds": {str(count): seconds for count, seconds in best.items()}, "n_results": len(digests)}


def timed_tasks(model: Any, paths: list[Path], out: Path, client: Any) -> dict[str, Any]:
    """Return the times of the three tasks, and a digest of what they wrote."""
    marks = [time.perf_counter()]
    store = dask.pack(paths, out.with_suffix(".store"), client=client, dtype="int16")
    marks.append(time.perf_counter())
    codes = model.transform(paths, out=out.with_suffix(".npy"))
    marks.append(time.perf_counter())
    value = model.objective(paths)
    marks.append(time.perf_counter())
    files = b"".join(file.read_bytes() for file in sorted(store.rglob("*")) if file.is_file())
    names = ("pack", "transform", "objective")
    seconds = {name: stop - start for name, (start, stop) in zip(names, itertools.pairwise(marks), strict=True)}
    return seconds | {"digest": digest(np.array(codes)) + digest(np.frombuffer(files, np.uint8)) + repr(value)}


def digest(array: np.ndarray) -> str:
    """Return a hash of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
