"""Ways to look at fewer features per step, each behind one interface: ``method(task) -> Curve``.

``package`` runs terafactor itself. ``grouped``, ``nested`` and ``somf`` are not in the package: they are written here
from the same parts, so that a step costs what it would cost there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.learning.data import DataSet
from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor.dictionary import defaults
from terafactor.problem import GrowingWindow
from terafactor.solver import Snapshot, objective, starting_atoms
from terafactor.solver.backends import Backend, make_backend
from terafactor.solver.coding import encode_rows
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import blend_codes, feature_weights

GROWTH = 1.25
"""Ratio of rows from one evaluation to the next."""

PASSES = 10
"""Passes of r = 1, whose end is the level to reach."""

PATIENCE = 1.5
"""Others may take this multiple of the time that r = 1 took."""

WARM_UP = 10
"""Rows per atom from which the atoms of new features are computed."""

FIRST_SWEEPS = 5
"""Sweeps over new features, which start at zero."""


@dataclass
class Curve:
    """Progress of a fit."""

    seconds: list[float] = field(default_factory=list)
    """CPU time spent learning, with reading, gathering and copies, without evaluations."""

    clock: list[float] = field(default_factory=list)
    """The same by the clock."""

    rows: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    """Bytes of the features and rows used, each time they are used."""

    objective: list[float] = field(default_factory=list)
    """On held-out rows, all features."""


@dataclass
class Task:
    """A data set with one seed."""

    data: DataSet
    train: np.ndarray
    test: np.ndarray
    seed: int
    seconds: float = np.inf
    """CPU time after which to stop."""

    rows: float = np.inf
    """Rows after which to stop."""

    store: Path | None = None
    """Packed copy of the training rows, which the package reads from a cold cache."""

    def __post_init__(self) -> None:
        self.curve = Curve()
        self._used, self._due, self._started = np.zeros(2), 1.0, np.zeros(2)

    def start(self) -> None:
        """Start the watch, from a cold cache."""
        if self.store is not None:
            drop_from_cache(self.store)
        self._started = now()

    def note(self, n_rows: int, n_bytes: int, atoms: Callable[[], np.ndarray]) -> bool:
        """Evaluate the atoms if it is due; return whether to stop."""
        self._used += now() - self._started
        ended = bool(self._used[0] > self.seconds or n_rows >= self.rows)
        if n_rows >= self._due or ended:
            self._due = GROWTH * n_rows
            problem = self.data.problem
            value = objective(ArraySource(self.test), problem.constraint.fill(atoms()), problem, 1)
            points = (*self._used, n_rows, n_bytes, value)
            for values, point in zip(vars(self.curve).values(), points, strict=True):
                values.append(float(f"{point:.7g}"))
        self.start()
        return ended


def now() -> np.ndarray:
    """Return CPU time and clock, in seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def drop_from_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, so that they are read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size > 2**16:
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


Method = Callable[[Task], Curve]


def package(reduction: float = 1, statistics: Literal["auto", "full", "masked"] = "auto", **parameters: Any) -> Method:
    """Return terafactor with some parameters."""

    def learn(task: Task) -> Curve:
        problem = task.data.problem

        def note(snapshot: Snapshot) -> bool:
            return task.note(snapshot.n_samples, snapshot.bytes_read, lambda: np.array(snapshot.components))

        estimator = MaskedDictionaryLearning(
            task.data.n_components, alpha=problem.alpha, penalty=problem.penalty, constraint=problem.constraint,
            n_epochs=1e6, n_threads=1, random_state=task.seed, callbacks=[note],
            reduction=RandomMasks(reduction, statistics), **parameters,
        )  # fmt: skip
        task.start()
        estimator.fit(task.train if task.store is None else task.store)
        return task.curve

    return learn


class Learner:
    """Steps on a part of the features, with a ball over all of them."""

    def __init__(self, task: Task, backend: Backend) -> None:
        self.problem, self.backend = task.data.problem, backend
        n_rows, self.n_features = task.train.shape
        k = task.data.n_components
        self.options = SolverOptions(k, seed=task.seed, batch_size=defaults.batch_size(k, self.n_features))
        self.schedule: GrowingWindow = defaults.schedule(self.options, n_rows)
        self.first_atoms = starting_atoms(ArraySource(task.train), self.problem, self.options)

    def batches(self, task: Task) -> Iterator[np.ndarray]:
        """Yield row numbers, pass after pass."""
        random, size = np.random.default_rng((task.seed, 1)), self.options.batch_size
        while True:
            order = random.permutation(len(task.train))
            for start in range(0, max(1, len(order) - size + 1), size):
                yield order[start : start + size]

    def state(self, atoms: np.ndarray) -> State:
        return State.start(np.ascontiguousarray(atoms), self.problem, masked=False)

    def encode(self, values: np.ndarray, atoms: np.ndarray) -> np.ndarray:
        return encode_rows(values, atoms, self.problem, self.backend, self.n_features, None)

    def step(self, state: State, values: np.ndarray, sizes: np.ndarray) -> None:
        """Do one step on the features of a state. sizes (k,): psi of the atoms over all features, updated."""
        self.learn(state, values, self.encode(values, state.dictionary), sizes)

    def learn(self, state: State, values: np.ndarray, codes: np.ndarray, sizes: np.ndarray) -> None:
        """Update statistics and atoms of a state from rows and their codes."""
        n_rows = len(values)
        gain = blend_codes(state, codes, n_rows, state.n_samples + n_rows, self.problem, self.schedule)
        self.backend.blend(state.data_code, codes, values, *feature_weights(state, None, n_rows, gain))
        self.sweep(state.dictionary, state.data_code, state, sizes)

    def sweep(self, atoms: np.ndarray, data_code: np.ndarray, state: State, sizes: np.ndarray) -> None:
        ball = self.problem.constraint.as_scalars()
        self.backend.sweep(atoms, data_code, state.code_gram, ball, sizes, state.multipliers, whole=False)


def grouped(reduction: int, n_groups: int = 96) -> Method:
    """Return masks made of fixed groups of features, with one code Gram matrix for each group.

    The statistics of a group then average over the same rows as its Gram matrix.
    """

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, random = Learner(task, backend), np.random.default_rng(task.seed)
            parts = np.array_split(random.permutation(learner.n_features), min(n_groups, learner.n_features // 2))
            groups = [np.sort(part) for part in parts]
            states = [learner.state(learner.first_atoms[:, group]) for group in groups]
            sizes = learner.problem.constraint.psi(learner.first_atoms)
            n_rows = n_bytes = 0

            def atoms() -> np.ndarray:
                whole = np.empty_like(learner.first_atoms)
                for group, state in zip(groups, states, strict=True):
                    whole[:, group] = state.dictionary
                return whole

            masks: list[np.ndarray] = []
            for rows in learner.batches(task):
                masks = masks or np.array_split(random.permutation(len(groups)), reduction)
                mask = masks.pop()
                values = task.train[np.ix_(rows, np.concatenate([groups[group] for group in mask]))]
                codes = learner.encode(values, np.hstack([states[group].dictionary for group in mask]))
                stops = np.cumsum([len(groups[group]) for group in mask])
                for group, part in zip(mask, np.split(values, stops[:-1], axis=1), strict=True):
                    learner.learn(states[group], np.ascontiguousarray(part), codes, sizes)
                n_rows, n_bytes = n_rows + len(rows), n_bytes + values.nbytes
                if task.note(n_rows, n_bytes, atoms):
                    return task.curve
        raise AssertionError("batches never end")

    return learn


def nested(reduction: int, rows_per_atom: int) -> Method:
    """Return the fit that learns from 1 / reduction of the features first, and from all after some rows per atom.

    At the change, codes found from the first features give the atoms of the others by regression, and the statistics
    of the first ones are moved to the new code Gram matrix, their gradients kept.
    """

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, k = Learner(task, backend), task.data.n_components
            order = np.random.default_rng(task.seed).permutation(learner.n_features)
            n_first = learner.n_features // reduction
            inverse, share = np.argsort(order), n_first / learner.n_features
            constraint = learner.problem.constraint
            state = learner.state(constraint.fill(learner.first_atoms[:, order[:n_first]], share))
            sizes = constraint.psi(state.dictionary) + (1 - share)
            ordered = np.ascontiguousarray(task.train[:, order[:n_first]])  # the copy counts
            batches, n_rows, n_bytes = learner.batches(task), 0, 0
            whole = np.zeros_like(learner.first_atoms)

            def atoms() -> np.ndarray:
                whole[:, : state.dictionary.shape[1]] = state.dictionary
                return np.ascontiguousarray(whole[:, inverse])

            while n_rows < rows_per_atom * k:
                values = ordered[next(batches)]
                learner.step(state, values, sizes)
                n_rows, n_bytes = n_rows + len(values), n_bytes + values.nbytes
                if task.note(n_rows, n_bytes, atoms):
                    return task.curve
            warm_up = [next(batches) for _ in range(-(-WARM_UP * k // learner.options.batch_size))]
            state = join(learner, state, [task.train[rows][:, order] for rows in warm_up])
            n_rows, n_bytes = n_rows + sum(map(len, warm_up)), n_bytes + sum(map(len, warm_up)) * learner.n_features * 4
            sizes = constraint.psi(state.dictionary)
            while not task.note(n_rows, n_bytes, atoms):
                values = task.train[next(batches)][:, order]
                learner.step(state, values, sizes)
                n_rows, n_bytes = n_rows + len(values), n_bytes + values.nbytes
        return task.curve

    return learn


def join(learner: Learner, first: State, parts: list[np.ndarray]) -> State:
    """Return a state over all features from one over the first; parts: rows with all features."""
    n_first, k = first.dictionary.shape[1], len(first.dictionary)
    joined = learner.state(np.hstack([first.dictionary, np.zeros((k, learner.n_features - n_first), np.float32)]))
    new = np.zeros((k, learner.n_features - n_first), np.float32)
    for values in parts:
        codes = learner.encode(np.ascontiguousarray(values[:, :n_first]), first.dictionary)
        joined.n_samples += len(values)
        joined.code_gram += codes.T.astype(np.float64) @ codes
        new += codes.T @ values[:, n_first:]
    joined.code_gram /= joined.n_samples
    new /= joined.n_samples
    joined.n_steps, joined.feature_counts[:] = len(parts), joined.n_samples
    moved = (joined.code_gram - first.code_gram).astype(np.float32) @ first.dictionary
    joined.data_code[:, :n_first] = first.data_code + moved
    joined.data_code[:, n_first:] = new
    atoms, sizes = np.zeros_like(new), learner.problem.constraint.psi(first.dictionary)
    for _ in range(FIRST_SWEEPS):
        learner.sweep(atoms, new, joined, sizes)
    joined.dictionary[:, n_first:] = atoms
    return joined
