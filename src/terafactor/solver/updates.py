"""Ways to update the atoms in a step, given its statistics: on the mask, as a whole, or by the constraint itself."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import ParameterError
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.projection import ball_size
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State


class UpdateAtoms(Protocol):
    """Updates the atoms of a state, given its statistics."""

    def __call__(
        self, state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
    ) -> None:
        """atoms, data_code (k, s): D and B on the mask; columns (s,): its features, None for all."""


def update_on_mask(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Sweep once over the atoms with entries outside the mask fixed (Procedure 2 of the paper); write them back."""
    backend.sweep(
        atoms, data_code, state.code_gram, problem.constraint.as_scalars(), state.sizes, state.multipliers,
        whole=columns is None,
    )  # fmt: skip
    backend.scatter(atoms, columns, state.dictionary)


def update_whole_atoms(
    state: State, atoms: Array, data_code: Array, columns: Indices | None, problem: Problem, backend: Backend
) -> None:
    """Move each atom on the mask to its minimizer given the others, and project the whole atom.

    This is the exact projection of the paper, done at once. Projecting all p entries costs k p per step, whatever the
    mask. With more atoms than ``reduction``, the sweep on the mask costs more than that, k^2 p / reduction. So the lazy
    updates that the paper proposes, which delay an entry until its next visit, would save little, and they need the
    history of all projections.
    """
    if columns is None:
        update_on_mask(state, atoms, data_code, columns, problem, backend)
        return
    ball = problem.constraint.as_scalars()
    backend.sweep_whole_atoms(atoms, data_code, state.code_gram, ball, columns, state.dictionary, state.sizes)


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


def choose_update(problem: Problem, options: SolverOptions) -> UpdateAtoms:
    """Return the update that constraint and projection need; raise ParameterError if they do not fit each other."""
    constraint: Any = problem.constraint
    if not constraint.updates_atoms:
        return update_whole_atoms if options.exact else update_on_mask
    name = type(constraint).__name__
    if constraint.needs_whole_rows and (options.reduction > 1 or options.missing):
        raise ParameterError(f"{name} needs whole rows: use reduction=1, and data without missing values")
    if options.exact:
        raise ParameterError(f"{name} needs projection='masked', got 'exact'")
    return update_by_constraint
