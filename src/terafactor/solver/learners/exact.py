"""Steps that project whole atoms, entries outside the mask included: the paper's exact projection, eagerly.

A projection of all p entries costs k p per step, whatever the mask. That is no more than the sweep on the mask costs,
k^2 p / reduction, as soon as there are more atoms than ``reduction``: putting entries off until their next visit, as
the paper proposes, would save little and needs the history of every projection.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from terafactor._threads import n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import Batch, MatrixSource
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.projection import project
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import step, update_on_mask


class ExactLearner(BatchLearner):
    """One step per batch; after its move on the mask, each atom is projected as a whole."""

    order: ClassVar[Literal["C", "F"] | None] = "C"

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        return options.exact

    def step(self, state: State, batch: Batch) -> Array:
        return step(state, batch, self.problem, self.options.schedule, self.backend, update_whole_atoms)


def update_whole_atoms(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Move each atom on the mask to its minimizer given the others, and project all of it."""
    if columns is None:
        update_on_mask(state, atoms, data_code, columns, problem, backend)
        return
    l1_weight, l2_weight, limit, positive = problem.constraint.as_scalars()
    code_gram, scratch = state.code_gram, np.empty((2, n_tiles(state.dictionary.shape[1]), 4))
    weights = code_gram.astype(atoms.dtype)
    for j in np.flatnonzero(code_gram.diagonal() > UNUSED * code_gram.trace()):
        whole = state.dictionary[j]
        residual = (data_code[j] - weights[j] @ atoms).astype(np.float64)
        whole[columns] = atoms[j] + residual / code_gram[j, j]
        project(whole, l1_weight, l2_weight, limit, positive, scratch)
        atoms[j] = whole[columns]
    state.sizes = problem.constraint.psi(state.dictionary)
