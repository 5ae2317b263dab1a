"""Steps whose constraint updates the atoms itself, such as :class:`~terafactor.problem.SmoothBall`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.errors import ParameterError
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.projection import ball_size
from terafactor.problem import Problem, StructuredBall
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import UpdateAtoms


def update_by_constraint(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Let the constraint update one atom after another, with entries outside the mask fixed."""
    constraint: Any = problem.constraint
    code_gram = state.code_gram.astype(atoms.dtype)
    l1_weight, l2_weight, _, _ = constraint.as_scalars()
    features = np.arange(state.dictionary.shape[1]) if columns is None else columns
    energies = state.code_gram.diagonal()
    for j in np.flatnonzero(energies > UNUSED * energies.sum()):
        target = atoms[j] + (data_code[j] - code_gram[j] @ atoms) / code_gram[j, j]
        outside = 0.0 if columns is None else max(state.sizes[j] - ball_size(atoms[j], l1_weight, l2_weight), 0.0)
        constraint.update_atom(state.dictionary[j], features, target, energies.mean() / energies[j], outside)
        atoms[j] = state.dictionary[j, features]
        state.sizes[j] = outside + ball_size(atoms[j], l1_weight, l2_weight)


class StructuredLearner(BatchLearner):
    """One step per batch; ``constraint.update_atom`` replaces the sweep of the backend."""

    order: ClassVar[Literal["C", "F"] | None] = "C"
    update: ClassVar[UpdateAtoms] = staticmethod(update_by_constraint)

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        if not isinstance(problem.constraint, StructuredBall):
            return False
        name = type(problem.constraint).__name__
        if problem.constraint.needs_whole_rows and (options.reduction > 1 or options.missing):
            raise ParameterError(f"{name} needs whole rows: use reduction=1, and data without missing values")
        if options.exact:
            raise ParameterError(f"{name} needs projection='masked', got 'exact'")
        return True
