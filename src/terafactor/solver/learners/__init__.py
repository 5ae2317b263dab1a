"""Ways of stepping: one file each. Whatever a way keeps between its steps lives and dies inside ``advance``."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, Literal, Protocol

from terafactor.data import BatchStream, MatrixSource
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.learners.exact import ExactLearner
from terafactor.solver.learners.sparse import SparseLearner
from terafactor.solver.maintain import Evidence
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State


class Learner(Protocol):
    """One way of stepping. It depends on state and data only: a worker of a cluster gets copies of these."""

    order: ClassVar[Literal["C", "F"] | None]
    """Memory order of the state that it needs; None: F for masked statistics, else C."""

    def __init__(self, problem: Problem, options: SolverOptions, backend: Backend) -> None: ...

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        """Whether it can learn from a source."""

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[Any, None, None]:
        """Yield, for the batches from ``start`` to ``stop``, what each :meth:`advance` learns from."""

    def advance(self, state: State, data: Any) -> Evidence:
        """Do one step for each batch of ``data``, what :meth:`read` gave; change ``state`` only."""


LEARNERS: list[type[Learner]] = [SparseLearner, ExactLearner, BatchLearner]
"""The first that applies is used. Add one's own in front."""


def choose_learner(
    source: MatrixSource, problem: Problem, options: SolverOptions, state: State, backend: Backend
) -> Learner:
    """Return the way of stepping that suits a source, with the state in the memory order that it needs."""
    kind = next(kind for kind in LEARNERS if kind.applies(source, problem, options))
    state.set_order(kind.order or ("F" if options.masked else "C"))
    return kind(problem, options, backend)
