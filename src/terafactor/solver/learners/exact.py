"""Steps that project whole atoms, including entries outside the mask: the paper's exact projection, done eagerly.

Projecting all p entries costs k p per step, whatever the mask. With more atoms than ``reduction``, the sweep on the
mask costs more than that, k^2 p / reduction. So the lazy updates that the paper proposes, which delay an entry until
its next visit, would save little, and they need the history of all projections.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from terafactor._threads import n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.kernels.atoms import block_length, sweep_whole_atoms
from terafactor.kernels.blas import address
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import update_on_mask


def update_whole_atoms(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Move each atom on the mask to its minimizer given the others, and project the whole atom."""
    if columns is None:
        update_on_mask(state, atoms, data_code, columns, problem, backend)
        return
    candidates = np.empty((block_length(len(atoms), atoms.itemsize), len(columns)), atoms.dtype)
    partial = np.empty((2, n_tiles(state.dictionary.shape[1]), 4))
    sweep_whole_atoms(
        address("gemm", atoms.dtype), atoms, data_code, state.code_gram, *problem.constraint.as_scalars(), columns,
        candidates, partial, state.dictionary, state.sizes,
    )  # fmt: skip


class ExactLearner(BatchLearner):
    """Does one step per batch; atoms move on the mask and are projected as a whole."""

    order: ClassVar[Literal["C", "F"] | None] = "C"
    update = staticmethod(update_whole_atoms)

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        return options.exact
