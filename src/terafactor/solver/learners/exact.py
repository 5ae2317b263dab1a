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
from terafactor.kernels.atoms import block_length, sweep_whole_atoms
from terafactor.kernels.blas import address
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
    candidates = np.empty((block_length(len(atoms), atoms.itemsize), len(columns)), atoms.dtype)
    partial = np.empty((2, n_tiles(state.dictionary.shape[1]), 4))
    sweep_whole_atoms(
        address("gemm", atoms.dtype), atoms, data_code, state.code_gram, *problem.constraint.as_scalars(), columns,
        candidates, partial, state.dictionary, state.sizes,
    )  # fmt: skip
