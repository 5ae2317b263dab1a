"""``partial_fit``: learning from rows as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor.data import MatrixSource
from terafactor.data.views.rows import SelectedRows
from terafactor.dictionary.parameters import check_usable, options_to_go_on, problem_of, starting_atoms
from terafactor.dictionary.rows import rows_of
from terafactor.dictionary.task import DictionaryTask, FitSetup
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.training.task import Start


class PartialFitTask(DictionaryTask):
    """Learns from more rows, in the order given: ``partial_fit``."""

    @property
    def is_first(self) -> bool:
        """Whether nothing was learned before."""
        return not hasattr(self.estimator, "_state")

    def seed(self) -> int:
        return super().seed() if self.is_first else self.estimator._seed

    def open_data(self, X: Any) -> MatrixSource:
        problem_of(self.estimator)
        return rows_of(self.estimator, X, reset=self.is_first)

    def prepare(self, data: MatrixSource, start: Start) -> None:
        model, problem = self.estimator, problem_of(self.estimator)
        if not self.is_first:
            check_usable(model)
        if not self.is_first and len(model.components_) != model.n_components:
            raise ParameterError(
                f"n_components is {model.n_components!r} but the model has {len(model.components_)} atoms: "
                "call fit to start anew"
            )
        options = options_to_go_on(
            model, data, seed=start.seed, n_epochs=1, tol=0.0, max_time=None, shuffle=False
        )  # fmt: skip
        model.reduction_path_ = getattr(model, "reduction_path_", [])
        if self.is_first:
            problem, state = self._first_state(data, problem, options)
        else:
            state = self._further_state(data, problem)
            model.alpha_, model.batch_size_ = float(problem.alpha), options.batch_size
        self._begin(data, FitSetup(problem, options, state, sample=None))

    def _first_state(self, data: MatrixSource, problem: Problem, options: SolverOptions) -> tuple[Problem, State]:
        """Return where a stream of rows begins: "auto" follows its first batch alone, however the stream is cut."""
        atoms = starting_atoms(self.estimator, data, problem, options)
        batch = SelectedRows(data, np.arange(min(options.batch_size, data.shape[0])))
        problem = self._with_alpha(problem, batch, atoms, options)
        return problem, State.start(atoms, problem, masked=options.masked)

    def _further_state(self, data: MatrixSource, problem: Problem) -> State:
        """Return the state to go on from, with atoms inside the ball."""
        model = self.estimator
        state = model._state if self._is_sure(data, problem) else model._state.copy()
        if problem.constraint != model._constraint:
            state.dictionary[:] = problem.constraint.project(state.dictionary)
            state.sizes = problem.constraint.psi(state.dictionary)
        return state

    def _is_sure(self, data: MatrixSource, problem: Problem) -> bool:
        """Whether steps can be done on the state itself, since nothing may fail after some of them.

        What is not in memory is checked as it is read, and may turn out bad then; so may a callback. Arrays that came
        from a memory map cannot be written to.
        """
        model, state = self.estimator, self.estimator._state
        at_hand = data.in_memory and data.dtype == state.dictionary.dtype and state.feature_counts.flags.writeable
        return at_hand and problem.constraint == model._constraint and not model.callbacks
