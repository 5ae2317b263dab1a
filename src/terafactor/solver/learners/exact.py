"""Steps that project whole atoms, entries outside the mask included: the paper's exact projection, eagerly.

A projection of all p entries costs k p per step, whatever the mask. That is no more than the sweep on the mask costs,
k^2 p / reduction, as soon as there are more atoms than ``reduction``: putting entries off until their next visit, as
the paper proposes, would save little and needs the history of every projection.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from terafactor._threads import n_tiles
from terafactor._typing import Array
from terafactor.data import Batch, MatrixSource
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.projection import project
from terafactor.problem import NormBall, Problem
from terafactor.solver.coding import encode_rows
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import blend_codes, blend_data


class ExactLearner(BatchLearner):
    """One step per batch; after its move on the mask, each atom is projected as a whole."""

    order: ClassVar[Literal["C", "F"] | None] = "C"

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        return options.exact

    def step(self, state: State, batch: Batch) -> Array:
        if batch.columns is None or batch.values.shape[1] == 0:
            return super().step(state, batch)
        state.n_batches += 1
        problem, backend = self.problem, self.backend
        atoms = backend.gather(state.dictionary, batch.columns)
        codes = encode_rows(batch.values, atoms, problem, backend, state.dictionary.shape[1], batch.observed)
        n_visits = batch.mean_visits(state.feature_counts)
        gain = blend_codes(state, codes, batch.n_observed_rows, n_visits, problem, self.options.schedule)
        data_code = blend_data(state, batch, codes, gain, backend)
        sweep_whole_atoms(state.dictionary, batch.columns, atoms, data_code, state.code_gram, problem.constraint)
        state.sizes = problem.constraint.psi(state.dictionary)
        return codes


def sweep_whole_atoms(
    dictionary: Array, columns: Array, atoms: Array, data_code: Array, code_gram: Array, constraint: NormBall
) -> None:
    """Move each atom on the mask to its minimizer given the others, and project all of it; in place.

    dictionary (k, p) and its part ``atoms`` (k, s) at ``columns``, both in order C; data_code (k, s); code_gram (k, k).
    """
    l1_weight, l2_weight, limit, positive = constraint.lower()
    scratch, weights = np.empty((2, n_tiles(dictionary.shape[1]), 4)), code_gram.astype(atoms.dtype)
    for j in np.flatnonzero(code_gram.diagonal() > UNUSED * code_gram.trace()):
        whole = dictionary[j]
        whole[columns] = atoms[j] + (data_code[j] - weights[j] @ atoms) / weights[j, j]
        project(whole, l1_weight, l2_weight, limit, positive, scratch)
        atoms[j] = whole[columns]
