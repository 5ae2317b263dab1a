"""Learners: implementations of the steps of a fit, one file each. Their caches live within one call of ``advance``."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, Protocol

from terafactor.data import BatchStream, MatrixSource
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.learners.sparse import SparseLearner
from terafactor.solver.maintain import Evidence
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State


class Stepper(Protocol):
    """Advances the state of a fit: a learner, or rounds of learners on shards."""

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[Any, None, None]:
        """Return a generator of the data of each :meth:`advance`, for batches ``start`` to ``stop`` (excluded)."""

    def advance(self, state: State, data: Any) -> Evidence:
        """Run one step per batch of ``data``, an item from :meth:`read`; change ``state`` only."""


class Learner(Stepper, Protocol):
    """An implementation of steps. It depends on state and data only, so a worker can run it on copies of these."""

    order: Literal["C", "F"]
    """Memory order of the state that it needs."""

    def __init__(self, problem: Problem, options: SolverOptions, backend: Backend) -> None: ...

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        """Return whether it can learn from a source."""

    def sweep(self, state: State) -> None:
        """Update all atoms once, on all features, without new rows."""


LEARNERS: list[type[Learner]] = [SparseLearner, BatchLearner]
"""The first learner that applies is used. Insert your own in front."""


def choose_learner(
    source: MatrixSource, problem: Problem, options: SolverOptions, state: State, backend: Backend
) -> Learner:
    """Return the learner for a source, and put the state into the memory order that it needs."""
    kind = next(kind for kind in LEARNERS if kind.applies(source, problem, options))
    learner = kind(problem, options, backend)
    state.set_order(learner.order)
    return learner
