"""One step per batch: Algorithm 1 as in the paper."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

import numpy as np

from terafactor.data import BatchStream, MatrixSource
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.maintain import Evidence, find_worst_rows
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import step
from terafactor.solver.updates import choose_update, update_on_mask


class BatchLearner:
    """Learns from any source, with any penalty and any ball.

    Parameters
    ----------
    problem : Problem
    options : SolverOptions
    backend : Backend
    """

    def __init__(self, problem: Problem, options: SolverOptions, backend: Backend) -> None:
        self.problem = problem
        self.options = options
        self.backend = backend
        self.update = choose_update(problem, options)
        self.order: Literal["C", "F"] = "F" if options.masked and self.update is update_on_mask else "C"

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        return True

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[Any, None, None]:
        return stream.batches(start, stop, ahead=self.options.n_threads > 1)

    def advance(self, state: State, data: Any) -> Evidence:
        codes = step(state, data, self.problem, self.options.schedule, self.backend, self.update)
        return Evidence(1, data.n_bytes, find_worst_rows(state, data, codes, self.options), data.rows, codes)

    def sweep(self, state: State) -> None:
        seen = state.feature_counts > 0  # the others keep their atoms, as in steps
        columns = None if seen.all() else np.flatnonzero(seen)
        atoms, data_code = (self.backend.gather(matrix, columns) for matrix in (state.dictionary, state.data_code))
        self.update(state, atoms, data_code, columns, self.problem, self.backend)
