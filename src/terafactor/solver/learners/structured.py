"""Steps whose constraint updates the atoms itself, such as :class:`~terafactor.problem.SmoothBall`."""

from __future__ import annotations

from typing import ClassVar, Literal

from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State


def update_by_constraint(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Let the constraint update the whole atoms."""
    problem.constraint.update_atoms(atoms, data_code, state.code_gram)  # type: ignore[attr-defined]
    state.sizes = problem.constraint.psi(state.dictionary)


class StructuredLearner(BatchLearner):
    """One step per batch of whole rows; ``constraint.update_atoms`` replaces the sweep of the backend."""

    order: ClassVar[Literal["C", "F"] | None] = "C"
    update = staticmethod(update_by_constraint)

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        if not hasattr(problem.constraint, "update_atoms"):
            return False
        if options.reduction > 1 or options.missing:
            name = type(problem.constraint).__name__
            raise ParameterError(f"{name} needs whole rows: use reduction=1, and data without missing values")
        return True
