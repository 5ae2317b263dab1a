"""``partial_fit``: learn from rows as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from terafactor.data import MatrixSource
from terafactor.data.views.rows import SelectedRows
from terafactor.dictionary import defaults
from terafactor.dictionary.parameters import check_usable, initial_atoms, problem_of, resumed_options
from terafactor.dictionary.rows import rows_of
from terafactor.dictionary.task import DictionaryTask, FitSetup
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver.callbacks import Callback
from terafactor.solver.state import State
from terafactor.solver.warm_up import warm_up
from terafactor.training.task import Start


class PartialFitTask(DictionaryTask):
    """Learns from more rows, in the order given."""

    @property
    def is_first(self) -> bool:
        """Whether this is the first call."""
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
                "call fit to start over"
            )
        options = resumed_options(model, data, seed=start.seed, n_epochs=1, tol=0.0, max_time=None, shuffle=False)
        warm_up(data, problem, options)
        if self.is_first:
            atoms = initial_atoms(model, data, problem, options)
            first_batch = SelectedRows(data, np.arange(min(options.batch_size, data.shape[0])))
            # "auto" depends on the first batch alone, so that it does not matter how a stream is split into calls.
            problem = defaults.with_alpha(model.alpha, problem, first_batch, atoms, options)
            state = State.start(atoms, problem)
        else:
            state = self._state_to_continue(data, problem)
        self.use(FitSetup(problem, options, state, sample=None), data)

    def learn(self, data: MatrixSource, callbacks: Sequence[Callback]) -> None:
        self.setup.state.intact = False  # until commit: if anything fails, some steps may be done, or half done
        super().learn(data, callbacks)

    def commit(self) -> None:
        self.setup.state.intact = True

    def _state_to_continue(self, data: MatrixSource, problem: Problem) -> State:
        """Return the state of the model with atoms inside the ball; a copy if a failure could leave it half changed."""
        model = self.estimator
        state = model._state if self._cannot_fail(data, problem) else model._state.copy()
        if problem.constraint != model._constraint:
            state.dictionary[:] = problem.constraint.project(state.dictionary)
            state.sizes = problem.constraint.psi(state.dictionary)
        return state

    def _cannot_fail(self, data: MatrixSource, problem: Problem) -> bool:
        """Return whether steps can change the state in place, because neither data nor callbacks can fail.

        Data that are not in memory are validated as they are read. Memory-mapped arrays are read-only.
        """
        model, state = self.estimator, self.estimator._state
        writable = data.in_memory and data.dtype == state.dictionary.dtype and state.feature_counts.flags.writeable
        return writable and problem.constraint == model._constraint and not model.callbacks
