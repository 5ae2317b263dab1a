"""Kill runs at random moments and let them resume: ``python tests/runs/soak.py 200``.

A process that has everything loaded forks one child per try; the child starts or resumes a run and is killed after a
random time, sometimes in a chain. Then a last child resumes to the end, and the model must be that of a run that was
never disturbed.
"""

import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from terafactor import CheckpointPolicy, MaskedDictionaryLearning, train
from terafactor.runs import RunDirectory

POLICY = CheckpointPolicy(seconds=0.05, steps=12)


def estimator():
    return MaskedDictionaryLearning(
        5, alpha=0.1, penalty="l2", constraint="l1", projection="exact", statistics="masked", reduction=4,
        batch_size=10, n_epochs=8, random_state=0, n_threads=1,
    )  # fmt: skip


def work(X, folder):
    train(estimator(), X, folder, resume=RunDirectory(folder).is_run, holdout=40, checkpoints=POLICY)


def in_child(X, folder):
    """Fork a child that works, and return its number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(X, folder)
            status = 0
        finally:
            os._exit(status)
    return child


def digest(folder):
    parts = [(folder / "model" / name).read_bytes() for name in ("manifest.json", "arrays.safetensors")]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def soak(n_kills: int, root: Path, seed: int = 0) -> int:
    """Kill until ``n_kills`` have hit a running child; return how many tries that took. Raise when a model differs."""
    chance = random.Random(seed)
    X = np.random.default_rng(0).standard_normal((400, 200)).astype(np.float32)
    work(X, root / "undisturbed")  # loads kernels, too
    started = time.monotonic()
    work(X, root / "timed")
    duration = time.monotonic() - started
    expected, number, hits = digest(root / "undisturbed"), 0, 0
    if digest(root / "timed") != expected:
        raise AssertionError("two undisturbed runs differ")
    while hits < n_kills:
        folder = root / f"run{number}"
        child = in_child(X, folder)
        time.sleep(chance.random() * duration)
        os.kill(child, signal.SIGKILL)
        hits += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        if number % 3 == 2:  # a second kill while it resumes
            child = in_child(X, folder)
            time.sleep(chance.random() * duration)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(os.waitpid(in_child(X, folder), 0)[1])
        if status != 0 or digest(folder) != expected:
            raise AssertionError(f"kill {number}: the resumed run left with {status} or has another model: {folder}")
        number += 1
    return number


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as place:
        tries = soak(wanted, Path(place), seed=int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
    print(f"{wanted} kills of a run in progress, in {tries} tries: every resume gave the model of an undisturbed run")
