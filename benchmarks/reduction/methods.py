"""Ways to look at fewer features per step, each behind one interface: ``method(task) -> Curve``.

``package`` runs terafactor itself. ``grouped``, ``nested`` and ``somf`` are not in the package: they are written here
from the same parts, so that a step costs what it would cost there.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.learning.data import DataSet
from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor.data import Batch
from terafactor.dictionary import defaults
from terafactor.problem import GrowingWindow
from terafactor.solver import Snapshot, objective, starting_atoms
from terafactor.solver.backends import Backend, make_backend
from terafactor.solver.coding import encode_rows
from terafactor.solver.fit import make_stream
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import blend_codes, blend_data, count_rows, feature_weights

GROWTH = 1.25
"""Ratio of rows from one evaluation to the next, and of passes from one evaluation at the end of a pass to the next."""

PASSES = 10
"""Passes of r = 1, whose lowest objective is the level to reach."""

LATEST = 10.0
"""Others stop at this multiple of the time at which r = 1 is lowest, or after the time of all of its passes."""

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


class Grid:
    """Rows at which fits are evaluated: spaced geometrically, and at ends of passes, where the objective is lower."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._due, self._due_pass = 1.0, 1.0

    def is_due(self, n_rows: float) -> bool:
        """Return whether to evaluate after this number of rows; numbers never fall from call to call."""
        passes, part = divmod(n_rows, self._n_rows)
        is_due, ends_pass = n_rows >= self._due, part == 0 and passes >= self._due_pass
        if is_due:
            self._due = GROWTH * n_rows
        if ends_pass:
            self._due_pass = GROWTH * passes
        return is_due or ends_pass


def on_grid(curve: Mapping[str, list[float]], n_rows: int) -> dict[str, list[float]]:
    """Return a curve without the evaluation at its stop: an extra one at the end of a pass favors the one that has it.

    n_rows: rows of a pass.
    """
    grid = Grid(n_rows)
    keep = [grid.is_due(rows) for rows in curve["rows"]]
    return {what: list(itertools.compress(values, keep)) for what, values in curve.items()}


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
        self.curve, self.atoms = Curve(), np.zeros((0, 0))
        self._used, self._started = np.zeros(2), np.zeros(2)
        self._grid = Grid(len(self.train))

    def start(self) -> None:
        """Start the watch, from a cold cache."""
        if self.store is not None:
            drop_from_cache(self.store)
        self._started = now()

    def note(self, n_rows: int, n_bytes: int, atoms: Callable[[], np.ndarray]) -> bool:
        """Evaluate the atoms if it is due, and at the stop; return whether to stop."""
        self._used += now() - self._started
        ended = bool(self._used[0] > self.seconds or n_rows >= self.rows)
        if self._grid.is_due(n_rows) or ended:
            problem = self.data.problem
            self.atoms = problem.constraint.fill(atoms())
            value = objective(ArraySource(self.test), self.atoms, problem, 1)
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

    def batches(self, task: Task, first_pass: int = 0) -> Iterator[np.ndarray]:
        """Yield the row numbers of the batches that the package visits with this seed, from some pass on."""
        stream = make_stream(ArraySource(task.train), self.options)
        return (stream.rows(number) for number in itertools.count(first_pass * stream.batches_per_epoch))

    def state(self, atoms: np.ndarray) -> State:
        return State.start(np.ascontiguousarray(atoms), self.problem)

    def encode(self, values: np.ndarray, atoms: np.ndarray) -> np.ndarray:
        return encode_rows(values, atoms, self.problem, self.backend, self.n_features, None)

    def step(self, state: State, values: np.ndarray, sizes: np.ndarray) -> None:
        """Do one step on the features of a state. sizes (k,): psi of the atoms over all features, updated."""
        self.learn(state, values, self.encode(values, state.dictionary), sizes)

    def learn(self, state: State, values: np.ndarray, codes: np.ndarray, sizes: np.ndarray) -> None:
        """Update statistics and atoms of a state from rows and their codes."""
        self.blend(state, values, codes)
        self.sweep(state.dictionary, state.data_code, state, sizes)

    def blend(self, state: State, values: np.ndarray, codes: np.ndarray) -> None:
        """Update the statistics of a state from rows and their codes."""
        batch = Batch(np.arange(len(values)), None, values)
        count_rows(state, batch)
        gain = self.schedule.gain(state.n_steps, state.n_samples)
        blend_codes(state, codes, len(values), gain, self.problem)
        blend_data(state, batch, codes, gain, self.backend)

    def sweep(self, atoms: np.ndarray, data_code: np.ndarray, state: State, sizes: np.ndarray) -> None:
        ball = self.problem.constraint.as_scalars()
        self.backend.sweep(atoms, data_code, state.code_gram, ball, sizes, state.multipliers, whole=False)


def from_pass(first_pass: int) -> Method:
    """Return r = 1 that starts with the rows of some pass: from the second on, few of its first rows are atoms."""

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, n_rows = Learner(task, backend), 0
            state = learner.state(learner.first_atoms)
            for rows in learner.batches(task, first_pass):
                learner.step(state, task.train[rows], state.sizes)
                n_rows += len(rows)
                if task.note(n_rows, n_rows * task.train[0].nbytes, lambda: state.dictionary):
                    return task.curve
        raise AssertionError("batches never end")

    return learn


def grouped(reduction: int, n_groups: int = 96) -> Method:
    """Return masks made of fixed groups of features, with one code Gram matrix for each group.

    The statistics of a group then average over the same rows as its Gram matrix. A sweep moves all groups of a mask
    together, so that they share the ball: it uses the mean of their Gram matrices, and data moved to that mean, which
    leaves the gradients as they are.
    """

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, random = Learner(task, backend), np.random.default_rng(task.seed)
            parts = np.array_split(random.permutation(learner.n_features), min(n_groups, learner.n_features // 2))
            groups = [np.sort(part) for part in parts]
            state = State.start(learner.first_atoms, learner.problem)
            state.set_order("F")
            grams = np.zeros((len(groups), *state.code_gram.shape))
            masks: list[np.ndarray] = []
            n_rows = n_bytes = 0
            for rows in learner.batches(task):
                masks = masks or np.array_split(random.permutation(len(groups)), reduction)
                mask = masks.pop()
                columns = np.concatenate([groups[group] for group in mask])
                values, atoms = task.train[np.ix_(rows, columns)], backend.gather(state.dictionary, columns)
                codes = learner.encode(values, atoms)
                n_rows, n_bytes = n_rows + len(rows), n_bytes + values.nbytes
                gain = learner.schedule.gain(0, n_rows / reduction)
                state.feature_counts[columns] += len(rows)
                keep, take = feature_weights(state.feature_counts[columns], len(rows), gain, values.dtype)
                data_code = backend.gather(state.data_code, columns)
                backend.blend(data_code, codes, values, keep, take)
                backend.scatter(data_code, columns, state.data_code)
                starts = np.cumsum([0, *(len(groups[group]) for group in mask[:-1])])
                keep, take = (np.broadcast_to(weights, len(columns))[starts, None, None] for weights in (keep, take))
                precise = codes.astype(np.float64)
                grams[mask] = keep * grams[mask] + take * (precise.T @ precise)
                state.code_gram = grams[mask].mean(axis=0)
                for gram, part in zip(grams[mask], np.split(np.arange(len(columns)), starts[1:]), strict=True):
                    where = slice(part[0], part[-1] + 1)
                    data_code[:, where] += (state.code_gram - gram).astype(np.float32) @ atoms[:, where]
                learner.sweep(atoms, data_code, state, state.sizes)
                backend.scatter(atoms, columns, state.dictionary)
                if task.note(n_rows, n_bytes, lambda: np.array(state.dictionary, order="C")):
                    return task.curve
        raise AssertionError("batches never end")

    return learn


def nested(*stages: tuple[int, int]) -> Method:
    """Return the fit that learns from a part of the features first, and from all in the end.

    stages: reduction and rows per atom of each stage before the last. At the end of a stage, codes found from its
    features give the atoms of the features that join by regression, and the statistics of the former are moved to the
    new code Gram matrix, their gradients kept.
    """

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, k = Learner(task, backend), task.data.n_components
            order = np.random.default_rng(task.seed).permutation(learner.n_features)
            parts = [np.sort(order[: learner.n_features // reduction]) for reduction, _ in stages]
            batches, n_rows, n_bytes = learner.batches(task), 0, 0
            features, share = parts[0], len(parts[0]) / learner.n_features
            constraint = learner.problem.constraint
            state = learner.state(constraint.fill(learner.first_atoms[:, features], share))

            def atoms() -> np.ndarray:
                whole = np.zeros_like(learner.first_atoms)
                whole[:, features] = state.dictionary
                return whole

            following = [*parts[1:], np.arange(learner.n_features)]
            for (_, rows_per_atom), joined in zip(stages, following, strict=True):
                # A stage on disk is a contiguous prefix of reordered rows, in memory a copy, which counts.
                values, until = np.ascontiguousarray(task.train[:, features]), n_rows + rows_per_atom * k
                sizes = constraint.psi(state.dictionary) + (1 - len(features) / learner.n_features)
                while n_rows < until:
                    rows = next(batches)
                    learner.step(state, values[rows], sizes)
                    n_rows, n_bytes = n_rows + len(rows), n_bytes + len(rows) * len(features) * values.itemsize
                    if task.note(n_rows, n_bytes, atoms):
                        return task.curve
                rows = np.concatenate([next(batches) for _ in range(-(-WARM_UP * k // learner.options.batch_size))])
                state = join(learner, state, task.train, rows, features, joined)
                n_rows, n_bytes = n_rows + len(rows), n_bytes + len(rows) * len(joined) * values.itemsize
                features = joined
            sizes = constraint.psi(state.dictionary)
            while not task.note(n_rows, n_bytes, lambda: state.dictionary):
                values = task.train[next(batches)]
                learner.step(state, values, sizes)
                n_rows, n_bytes = n_rows + len(values), n_bytes + values.nbytes
        return task.curve

    return learn


def join(
    learner: Learner, first: State, train: np.ndarray, rows: np.ndarray, features: np.ndarray, joined: np.ndarray
) -> State:
    """Return a state over the features ``joined`` from one over ``features``, a part of them, and some rows."""
    is_new = np.isin(joined, features, invert=True)
    atoms = np.zeros((len(first.dictionary), len(joined)), np.float32)
    atoms[:, ~is_new] = first.dictionary
    state, new, batch_size = learner.state(atoms), joined[is_new], learner.options.batch_size
    data_code = np.zeros((len(atoms), len(new)), np.float32)
    for start in range(0, len(rows), batch_size):
        values = train[rows[start : start + batch_size]]
        codes = learner.encode(np.ascontiguousarray(values[:, features]), first.dictionary)
        state.code_gram += codes.T.astype(np.float64) @ codes / len(rows)
        data_code += codes.T @ values[:, new] / np.float32(len(rows))
        state.n_steps += 1
    state.n_samples = len(rows)
    state.feature_counts[:] = len(rows)
    moved = (state.code_gram - first.code_gram).astype(np.float32) @ first.dictionary
    state.data_code[:, ~is_new] = first.data_code + moved
    state.data_code[:, is_new] = data_code
    outside = 1 - len(joined) / learner.n_features
    found, sizes = np.zeros_like(data_code), learner.problem.constraint.psi(first.dictionary) + outside
    for _ in range(FIRST_SWEEPS):
        learner.sweep(found, data_code, state, sizes)
    state.dictionary[:, is_new] = found
    return state
