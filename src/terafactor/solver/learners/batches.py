"""One step per batch: Algorithm 1 as in the paper."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, Literal

from terafactor.data import BatchStream, MatrixSource
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.maintain import Evidence, find_worst_rows
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import UpdateAtoms, step, update_on_mask


class BatchLearner:
    """Learns from any source, with any penalty and any ball.

    Parameters
    ----------
    problem : Problem
    options : SolverOptions
    backend : Backend
    """

    order: ClassVar[Literal["C", "F"] | None] = None
    update: ClassVar[UpdateAtoms] = staticmethod(update_on_mask)
    """How a step updates the atoms: what subclasses replace."""

    def __init__(self, problem: Problem, options: SolverOptions, backend: Backend) -> None:
        self.problem = problem
        self.options = options
        self.backend = backend

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        return True

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[Any, None, None]:
        return stream.batches(start, stop, ahead=self.options.n_threads > 1)

    def advance(self, state: State, data: Any) -> Evidence:
        codes = step(state, data, self.problem, self.options.schedule, self.backend, self.update)
        return Evidence(data.rows, codes, 1, data.n_bytes, find_worst_rows(state, data, codes, self.options))

    def sweep(self, state: State) -> None:
        atoms, data_code = (self.backend.gather(matrix, None) for matrix in (state.dictionary, state.data_code))
        self.update(state, atoms, data_code, None, self.problem, self.backend)
