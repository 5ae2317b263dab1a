"""Held-out objective against time and rows, for terafactor and its peers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.learning.data import DataSet
from terafactor import ArraySource, MaskedDictionaryLearning
from terafactor.solver import Snapshot, objective

N_PASSES, MOST_SECONDS = 10, 30.0
"""The earlier default is evaluated after this number of passes or of seconds, whichever comes first."""

GROWTH = 1.15
"""Ratio of steps from one evaluation to the next."""


@dataclass
class Curve:
    """Progress of a fit."""

    seconds: list[float] = field(default_factory=list)
    """CPU time spent learning, without evaluations."""

    rows: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    """On held-out rows."""

    def add(self, seconds: float, rows: int, value: float) -> None:
        self.seconds.append(round(seconds, 5))
        self.rows.append(rows)
        self.objective.append(float(f"{value:.7g}"))


@dataclass(frozen=True)
class Task:
    """A data set in memory, with one seed."""

    data: DataSet
    train: np.ndarray
    test: np.ndarray
    seed: int

    def judge(self, atoms: np.ndarray) -> float:
        """Return the held-out objective, with atoms scaled to the boundary of the ball, where optimal ones are."""
        problem = self.data.problem
        return objective(ArraySource(self.test), problem.constraint.fill(np.asarray(atoms, np.float32)), problem, 1)


Contestant = Callable[[Task], Curve]


def ours(*, patient: bool = False, **parameters: Any) -> Contestant:
    """Return terafactor with some parameters; a batch size ``"nk"`` is ``n`` times k.

    patient: it continues beyond its time, up to where the earlier default is evaluated.
    """

    def learn(task: Task) -> Curve:
        problem, curve, watch = task.data.problem, Curve(), Stopwatch()
        due = 1.0

        def note(snapshot: Snapshot) -> bool:
            nonlocal due
            watch.stop()
            ended = watch.seconds > task.data.seconds
            if patient and watch.seconds < MOST_SECONDS:
                ended &= snapshot.n_samples >= N_PASSES * len(task.train)
            if snapshot.step >= due or ended or snapshot.stopped_by:
                due = max(snapshot.step + 1, GROWTH * snapshot.step)
                curve.add(watch.seconds, snapshot.n_samples, task.judge(snapshot.components))
            watch.start()
            return ended

        chosen = dict(parameters)
        if str(chosen.get("batch_size", "")).endswith("k"):
            chosen["batch_size"] = max(1, round(float(chosen["batch_size"][:-1]) * task.data.n_components))
        estimator = MaskedDictionaryLearning(
            task.data.n_components, alpha=problem.alpha, penalty=problem.penalty, constraint=problem.constraint,
            n_epochs=1e6, n_threads=1, random_state=task.seed, callbacks=[note], **chosen,
        )  # fmt: skip
        watch.start()
        estimator.fit(task.train)
        return curve

    return learn


def scikit_learn(task: Task) -> Curve:
    """Learn with MiniBatchDictionaryLearning, or MiniBatchNMF where all is non-negative, batch by batch."""
    from sklearn.decomposition import MiniBatchDictionaryLearning, MiniBatchNMF

    k, problem = task.data.n_components, task.data.problem
    if problem.penalty.positive:
        batch_size, estimator = 1024, MiniBatchNMF(k, random_state=task.seed)
    else:
        batch_size = 256
        estimator = MiniBatchDictionaryLearning(
            k, alpha=problem.alpha, batch_size=batch_size, fit_algorithm="cd", random_state=task.seed
        )
    curve, watch, due = Curve(), Stopwatch(), 1.0
    for step, rows in enumerate(batches(task, batch_size), start=1):
        part = task.train[rows]
        watch.start()
        estimator.partial_fit(part)
        watch.stop()
        ended = watch.seconds > task.data.seconds
        if step >= due or ended:
            due = max(step + 1, GROWTH * step)
            curve.add(watch.seconds, step * batch_size, task.judge(estimator.components_))
        if ended:
            break
    return curve


def spams(task: Task) -> Curve:
    """Learn with SPAMS, one fit from scratch for each point: it has no callbacks."""
    import spams as peer

    by_column, curve = np.asfortranarray(task.train.T), Curve()
    k, batch_size, n_steps = task.data.n_components, 256, 4
    first = np.random.default_rng(task.seed).permutation(len(task.train))[:k]
    start = np.asfortranarray(task.data.problem.constraint.fill(task.train[first]).T)
    while not curve.seconds or 2 * curve.seconds[-1] < task.data.seconds:
        watch = Stopwatch()
        watch.start()
        atoms = peer.trainDL(
            by_column, D=start.copy(order="F"), lambda1=task.data.problem.alpha, mode=2, modeParam=0,
            batchsize=batch_size, iter=n_steps, numThreads=1, verbose=False,
        )  # fmt: skip
        watch.stop()
        curve.add(watch.seconds, n_steps * batch_size, task.judge(atoms.T))
        n_steps *= 2
    return curve


def batches(task: Task, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the rows of batches in random order, pass after pass."""
    for number in itertools.count():
        order = np.random.default_rng((task.seed, number)).permutation(len(task.train))
        for start in range(0, len(order) - min(batch_size, len(order)) + 1, batch_size):
            yield order[start : start + batch_size]


class Stopwatch:
    """CPU time between starts and stops."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def start(self) -> None:
        self._started = time.process_time()

    def stop(self) -> None:
        self.seconds += time.process_time() - self._started


NEW, BEFORE = "default", "paper's schedule, batches of 40"

OURS: dict[str, Contestant] = {NEW: ours(), BEFORE: ours(patient=True, batch_size=40, forgetting=0.9)}
"""The default, and the default of version 0.1."""

GRID = {
    f"batch {batch}, exponent {exponent}": ours(batch_size=batch, forgetting=exponent)
    for batch in ("0.5k", "1k", "2k", "4k")
    for exponent in (0.51, 0.6, 0.7, 0.9)
}
"""The default should be as good as the best of these."""


def contestants(data: DataSet) -> dict[str, Contestant]:
    """Return the contestants on a data set."""
    found = dict(OURS)
    problem = data.problem
    if problem.penalty.positive:
        found["scikit-learn MiniBatchNMF"] = scikit_learn
    elif problem.penalty.l1_ratio == 1:
        found["scikit-learn MiniBatchDictionaryLearning"] = scikit_learn
        if find_spec("spams") is not None:
            found["SPAMS"] = spams
    return found
