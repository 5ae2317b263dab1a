"""Bars of runs: the cost of checkpoints, evaluations and the live view."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.harness import Bar, Result
from terafactor import CheckpointPolicy, MaskedDictionaryLearning, RandomMasks, train
from terafactor.runs.checkpoint import Checkpointer
from terafactor.solver import Snapshot

N_FEATURES, N_COMPONENTS = 200_000, 70


class Clock:
    """Callback that measures the share of time spent in callbacks after the first step."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None
        self.share = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        now = time.perf_counter()
        if self.first is None:
            self.first = (now, snapshot.seconds)
        elif now > self.first[0]:
            wall, learning = now - self.first[0], snapshot.seconds - self.first[1]
            self.share = 1 - learning / wall


def estimator(seconds: float, clock: Clock) -> MaskedDictionaryLearning:
    return MaskedDictionaryLearning(
        N_COMPONENTS, alpha=1e-3, penalty="l2", constraint="l1", reduction=RandomMasks(12, "masked"), n_epochs=1e6,
        batch_size=40, max_time=seconds, random_state=0, callbacks=[clock],
    )  # fmt: skip


def checkpoint_cost(quick: bool) -> Iterator[Result]:
    """p = 200 000, k = 70: the time to write and verify one, against the minute between two."""
    X = np.random.default_rng(0).standard_normal((200, N_FEATURES), np.float32)
    model = estimator(3.0, Clock()).fit(X)
    task, times = model._task(), list[float]()
    state_dict = task.artifact().state_dict
    with tempfile.TemporaryDirectory() as folder:
        writer = Checkpointer(Path(folder), CheckpointPolicy(), task.artifact, lambda snapshot: None)
        for number in range(6 if quick else 12):
            os.sync()  # earlier writes are on disk, as after a minute
            time.sleep(1)
            started = time.perf_counter()
            writer.write(number, state_dict)
            times.append(time.perf_counter() - started)
    cost = 100 * float(np.median(times)) / 60
    yield Bar("checkpoints every minute", cost, 1.0, unit="%", details={"one takes s": float(np.median(times))})


def watching_cost(quick: bool) -> Iterator[Result]:
    """The same fit in a run directory: evaluations on held-out rows, metrics and the live view together.

    The report has its own bar and is not written here.
    """
    X = np.random.default_rng(0).standard_normal((200, N_FEATURES), np.float32)
    seconds = 60.0 if quick else 180.0
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, patch("terafactor.runs.report_writer.SHARE", 0.0):
        model = train(
            estimator(seconds, clock), X, Path(folder, "run"), holdout=20, checkpoints=CheckpointPolicy(seconds=1e6)
        )
    details = {"evaluations": len(model.history_), "steps": model.n_steps_, "seconds": seconds}
    yield Bar("progress and metrics", 100 * clock.share, 2.0, unit="%", details=details)


BENCHMARKS = {"checkpoint": checkpoint_cost, "watching": watching_cost}
