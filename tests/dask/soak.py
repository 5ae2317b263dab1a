"""``python -m tests.dask.soak WORKER_KILLS SCHEDULER_KILLS DRIVER_KILLS``: every fit ends with the same model.

Workers are killed and replaced at random moments of a fit; schedulers are killed, and the run is resumed on another
cluster or on one machine; drivers are killed and resumed.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from tests.dask.cluster import Cluster

from terafactor import MaskedDictionaryLearning, load_model, train
from terafactor.dask import MaskedDictionaryLearning as OnCluster
from terafactor.datasets import make_planted
from terafactor.errors import ClusterError

ROOT = Path(__file__).parents[2]

PARAMETERS = {"n_components": 20, "alpha": 1.0, "shards": 4, "round_steps": 5, "n_epochs": 6, "random_state": 0}
LIMIT = 300.0
"""Seconds within which every fit must end."""


def digest(model: object) -> str:
    state = model._state  # type: ignore[attr-defined]
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in (
        state.dictionary, state.data_code, state.code_gram))).hexdigest()  # fmt: skip


def make_data(folder: Path) -> Path:
    X, _ = make_planted(4000, 6000, 20)
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def kill_workers(data: Path, folder: Path, n_kills: int, chance: random.Random) -> list[str]:
    """Fit while workers die; return digests of the models."""
    digests, killed = [], 0
    with Cluster(folder, 2) as cluster, cluster.client() as client:
        while killed < n_kills:
            stop = threading.Event()

            def kill(stop: threading.Event = stop) -> None:
                nonlocal killed
                while not stop.wait(chance.uniform(0.1, 1.5)):
                    if killed < n_kills:
                        cluster.kill_worker(chance.randrange(len(cluster.workers)))
                        killed += 1
                        cluster.add_worker()

            thread = threading.Thread(target=kill)
            thread.start()
            started = time.monotonic()
            try:
                digests.append(digest(OnCluster(**PARAMETERS, client=client).fit(data)))
            finally:
                stop.set()
                thread.join()
            print(f"{killed} workers killed, fit took {time.monotonic() - started:.1f} s", flush=True)
            assert time.monotonic() - started < LIMIT
    return digests


def kill_scheduler(data: Path, folder: Path, chance: random.Random) -> str:
    """Kill the scheduler during a run; resume on one machine."""
    run = folder / "run"
    with Cluster(folder, 2) as cluster, cluster.client(timeout=5) as client:
        timer = threading.Timer(chance.uniform(1.0, 4.0), cluster.scheduler.kill)
        timer.start()
        started = time.monotonic()
        try:
            train(OnCluster(**PARAMETERS, client=client, timeout=5), data, run, holdout=0)
        except ClusterError as error:
            print("scheduler killed:", error, flush=True)
            begun = (run / "config.toml").exists()  # otherwise it was killed before the first step
            train(MaskedDictionaryLearning(**PARAMETERS), data, run, holdout=0, resume=begun)
        assert time.monotonic() - started < LIMIT
    return digest(load_model(run))


def kill_driver(data: Path, folder: Path, chance: random.Random) -> str:
    """Kill the driver during a run; resume on the same cluster."""
    run = folder / "run"
    code = (
        f"from tests.dask.soak import *; from terafactor import CheckpointPolicy\n"
        f"client = __import__('distributed').Client(scheduler_file={str(folder / 'scheduler.json')!r})\n"
        f"resume = Path({str(run)!r}, 'config.toml').exists()\n"
        f"train(OnCluster(**PARAMETERS, client=client), Path({str(data)!r}), {str(run)!r}, holdout=0, resume=resume, "
        f"checkpoints=CheckpointPolicy(steps=20))\n"
    )
    with Cluster(folder, 2):
        ended, n_killed, deadline = False, 0, time.monotonic() + LIMIT
        while not ended:
            process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
            try:  # the first one early enough to be killed, before or after its first checkpoint
                ended = process.wait(chance.uniform(4.0, 15.0) if n_killed else chance.uniform(2.0, 4.5)) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                n_killed += 1
                print("driver killed", flush=True)
            assert time.monotonic() < deadline
    return digest(load_model(run))


def main(n_workers: int, n_schedulers: int, n_drivers: int, seed: int = 0) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = make_data(folder)
        expected = digest(MaskedDictionaryLearning(**PARAMETERS, n_threads=1).fit(data))
        found = [digest(MaskedDictionaryLearning(**PARAMETERS, n_threads=2).fit(data))]

        def fresh(kind: str, number: int) -> Path:
            path = folder / f"{kind}{number}"
            path.mkdir()
            return path

        for n in (1, 2, 4):
            with Cluster(fresh("quiet", n), n) as cluster, cluster.client() as client:
                found.append(digest(OnCluster(**PARAMETERS, client=client).fit(data)))
        if n_workers:
            found += kill_workers(data, fresh("workers", 0), n_workers, chance)
        found += [kill_scheduler(data, fresh("scheduler", number), chance) for number in range(n_schedulers)]
        found += [kill_driver(data, fresh("driver", number), chance) for number in range(n_drivers)]
        print(f"{len(found)} fits, {len({expected, *found})} model(s): {expected[:16]}")
        if {expected} != set(found):
            sys.exit("models differ")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
