"""The loss of rows, and the surrogate."""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE, n_tiles
from terafactor._typing import Array
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.state import State


def row_losses(
    values: Array, atoms: Array, codes: Array, problem: Problem, backend: Backend, observed: Array | None = None
) -> Array:
    """Return l(x) of each row (b,), float64, for given codes.

    values (b, p), zero where missing; atoms (k, p), codes (b, k); observed (b, p): True where there is a value.
    """
    squares = np.zeros((n_tiles(values.shape[1]), len(values)))

    def add(first: int, last: int) -> None:
        for tile in range(first, last):
            part = slice(tile * TILE, (tile + 1) * TILE)
            residual = values[:, part] - codes @ atoms[:, part]
            if observed is not None:
                residual *= observed[:, part]
            squares[tile] = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)

    backend.split(add, len(squares))
    share = 1.0 if observed is None else np.maximum(observed.sum(axis=1), 1) / values.shape[1]
    return problem.losses(squares.sum(axis=0), codes, share)


def surrogate(state: State, problem: Problem, backend: Backend) -> float:
    """Return ``1/2 Tr(D'D C) - Tr(D'B) + alpha * mean of Omega``: the surrogate h_t up to the mean of |x|^2 / 2.

    The paper prints it with half the cross term, which would not have the gradient that it states.
    """
    quadratic, cross = np.zeros((2, n_tiles(state.dictionary.shape[1])))

    def add(first: int, last: int) -> None:
        for tile in range(first, last):
            part = slice(tile * TILE, (tile + 1) * TILE)
            atoms = np.ascontiguousarray(state.dictionary[:, part])
            quadratic[tile] = np.vdot(atoms @ atoms.T, state.code_gram)
            cross[tile] = np.vdot(atoms, np.ascontiguousarray(state.data_code[:, part]))

    backend.split(add, len(cross))
    return float(0.5 * quadratic.sum() - cross.sum() + float(problem.alpha) * state.mean_penalty)
