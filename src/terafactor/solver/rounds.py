"""Rounds: shards learn on their own from copies of one state, which are then merged.

A round takes the next ``shards * round_steps`` batches of an epoch and deals them to the shards. Each shard does
ordinary steps from a copy of the state; a tree of merges, whose shape depends on the number of shards only, combines
the copies, and one more sweep restores what averaging blurs. So the result depends on the two numbers, like on the
batch size, but not on where shards run: one after the other, on threads, or on the workers of a cluster, of which any
may fail and be replaced.

A batch of a shard stands for those of the other shards, too, and has a larger weight in the statistics than in a fit
without shards: see :class:`~terafactor.problem.schedule.ShardSchedule`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from terafactor.data import BatchStream
from terafactor.data.stream import end_of_group
from terafactor.problem import Problem
from terafactor.problem.schedule import ShardSchedule
from terafactor.solver.backends import make_backend
from terafactor.solver.learners import Learner, choose_learner
from terafactor.solver.maintain import Evidence, WorstRows, check_atoms
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State, merge

T = TypeVar("T")


@dataclass(frozen=True)
class ShardResult:
    """A state after some steps, and what they reported."""

    state: State
    evidence: Evidence


class Shard:
    """Does the steps of one shard; as many shards as needed may run at the same time.

    Parameters
    ----------
    stream : BatchStream
        The batches of the whole fit; this shard uses it alone.
    problem : Problem
    options : SolverOptions
        ``n_threads`` is the number of threads of this shard.
    """

    def __init__(self, stream: BatchStream, problem: Problem, options: SolverOptions) -> None:
        self.stream = stream
        self.problem = problem
        self.options = replace(options, schedule=ShardSchedule(options.schedule, options.shards))

    def advance(self, state: State, numbers: range) -> ShardResult:
        """Learn from the batches with these numbers, on a copy of the state. The result depends on nothing else."""
        advanced, reports = state.copy(), []
        with make_backend(self.options.n_threads) as backend:
            learner = choose_learner(self.stream.source, self.problem, self.options, advanced, backend)
            with contextlib.closing(learner.read(self.stream, numbers.start, numbers.stop)) as parts:
                for data in parts:
                    reports.append(learner.advance(advanced, data))
                    check_atoms(advanced)
        return ShardResult(advanced, merge_evidence(reports))


def merge_results(problem: Problem, before: State, left: ShardResult, right: ShardResult) -> ShardResult:
    """Merge two results that started from the same state, ``before``."""
    state = merge(left.state, right.state, before, problem)
    return ShardResult(state, merge_evidence([left.evidence, right.evidence]))


def merge_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Combine reports, without codes. If rows have different features, the report with the worst row supplies them."""
    worst = [part.worst_rows for part in parts if part.worst_rows is not None]
    return Evidence(
        n_batches=sum(part.n_batches for part in parts),
        n_bytes=sum(part.n_bytes for part in parts),
        worst_rows=_merge_worst(worst) if worst else None,
    )


def _merge_worst(parts: Sequence[WorstRows]) -> WorstRows:
    if any(part.columns is not None for part in parts):
        return max(parts, key=lambda part: part.errors[0])
    errors = np.concatenate([part.errors for part in parts])
    worst = np.argsort(-errors, kind="stable")[: max(len(part.errors) for part in parts)]
    return WorstRows(np.concatenate([part.values for part in parts])[worst], errors[worst], None)


def reduce_in_pairs(combine: Callable[[T, T], T], items: Iterable[T]) -> T:
    """Combine neighbors, then neighboring results, until one is left: a tree whose shape depends on the number only."""
    level = list(items)
    while len(level) > 1:
        pairs = [level[start : start + 2] for start in range(0, len(level), 2)]
        level = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


class Executor(Protocol):
    """Decides where the shards of a round run, and nothing else."""

    def start(self, stream: BatchStream, problem: Problem, options: SolverOptions) -> None:
        """Prepare a fit on the batches of a stream."""

    def advance(self, state: State, parts: Sequence[range]) -> ShardResult:
        """Advance a copy of the state on each part, and merge the copies by :func:`reduce_in_pairs`."""

    def close(self) -> None:
        """Release what the fit used."""


class LocalExecutor:
    """Runs shards in this process: one after the other, or on threads.

    Parameters
    ----------
    n_threads : int
        Shards that run at the same time. With 1, each shard uses the threads of the solver options.
    """

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads

    def start(self, stream: BatchStream, problem: Problem, options: SolverOptions) -> None:
        if self.n_threads > 1:
            options = replace(options, n_threads=1)
        self.problem = problem
        n_shards = min(options.shards, stream.batches_per_epoch)  # the others would have no batches
        self.shards = [Shard(copy(stream), problem, options) for _ in range(n_shards)]

    def advance(self, state: State, parts: Sequence[range]) -> ShardResult:
        shards = self.shards[: len(parts)]
        if self.n_threads == 1:
            advanced = [shard.advance(state, numbers) for shard, numbers in zip(shards, parts, strict=True)]
        else:
            with ThreadPoolExecutor(self.n_threads, "terafactor-shard") as pool:
                advanced = list(pool.map(Shard.advance, shards, [state] * len(shards), parts))
        return reduce_in_pairs(partial(merge_results, self.problem, state), advanced)

    def close(self) -> None:
        self.shards = []


class RoundLearner:
    """Advances a state by one round at a time; used in place of the learner that the shards use.

    Parameters
    ----------
    learner : Learner
        The learner of the shards, for the sweep after a merge.
    executor : Executor
    problem : Problem
    options : SolverOptions
    """

    def __init__(self, learner: Learner, executor: Executor, problem: Problem, options: SolverOptions) -> None:
        self.learner = learner
        self.executor = executor
        self.problem = problem
        self.options = options

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[list[range], None, None]:
        """Yield the batch numbers of each shard, round by round; the executor reads the batches."""
        self.executor.start(stream, self.problem, self.options)
        try:
            yield from rounds(start, stop, stream.batches_per_epoch, self.options)
        finally:
            self.executor.close()

    def advance(self, state: State, data: Any) -> Evidence:
        advanced = self.executor.advance(state, data)
        self.learner.sweep(advanced.state)
        state.become(advanced.state)
        return advanced.evidence


def rounds(start: int, stop: int, batches_per_epoch: int, options: SolverOptions) -> Generator[list[range], None, None]:
    """Yield the batches of each shard in each round. Rounds end with the epoch: its last one may be shorter.

    Shards take consecutive batches, which often share a read. An interrupted fit that is resumed has the rounds of an
    uninterrupted one. ``stop`` cuts a round in two if it is within an epoch.
    """
    while start < stop:
        end = min(end_of_group(start, options.shards * options.round_steps, batches_per_epoch), stop)
        shares = np.linspace(start, end, min(options.shards, end - start) + 1).astype(int).tolist()
        yield [range(first, last) for first, last in itertools.pairwise(shares)]
        start = end
