"""The arithmetic of a step in plain NumPy: the reference for other backends."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.statistics import ROUNDING


class NumpyBackend(Threads):
    """Whole arrays, without tiles. Only loops over blocks of rows are split between threads."""

    def gather(self, matrix: Array, columns: Indices | None) -> Array:
        return np.ascontiguousarray(matrix if columns is None else matrix[:, columns])

    def scatter(self, values: Array, columns: Indices | None, matrix: Array) -> None:
        if values is not matrix:
            matrix[:, slice(None) if columns is None else columns] = values

    def correlate(self, values: Array, atoms: Array) -> tuple[Array, Array]:
        precise = atoms.astype(np.float64)
        return _definite(precise @ precise.T, atoms.dtype), self.products(values, atoms)

    def products(self, values: Array, atoms: Array) -> Array:
        return values.astype(np.float64) @ atoms.astype(np.float64).T

    def row_grams(self, features: Array, observed: Array, gram: Array) -> Array:
        precise = features.astype(np.float64)
        return np.stack([_definite(precise[seen].T @ precise[seen], features.dtype) for seen in observed])

    def blend(self, data_code: Array, codes: Array, values: Array, keep: Array, take: Array) -> None:
        data_code *= keep
        data_code += take * (codes.T @ values)

    def sweep(
        self, atoms: Array, data_code: Array, code_gram: Array, ball: Any, sizes: Array, multipliers: Array, whole: bool
    ) -> None:
        for j in np.flatnonzero(code_gram.diagonal() > UNUSED * code_gram.trace()):
            outside = 0.0 if whole else max(sizes[j] - _psi(atoms[j], ball), 0.0)
            moved = atoms[j] + (data_code[j] - code_gram[j] @ atoms) / code_gram[j, j]
            atoms[j] = _project(moved, ball, outside)
            sizes[j] = outside + _psi(atoms[j], ball)

    def sweep_whole_atoms(
        self,
        atoms: Array,
        data_code: Array,
        code_gram: Array,
        ball: Any,
        columns: Indices,
        dictionary: Array,
        sizes: Array,
    ) -> None:
        for j in np.flatnonzero(code_gram.diagonal() > UNUSED * code_gram.trace()):
            moved = dictionary[j].astype(np.float64)
            moved[columns] = atoms[j] + (data_code[j] - code_gram[j] @ atoms) / code_gram[j, j]
            dictionary[j] = _project(moved, ball, 0.0)
            atoms[j] = dictionary[j, columns]
            sizes[j] = _psi(dictionary[j], ball)


def _definite(gram: Array, dtype: np.dtype[Any]) -> Array:
    """Return a Gram matrix with its rounding error added to the diagonal."""
    return gram + ROUNDING * np.finfo(dtype).eps * np.linalg.norm(gram) * np.eye(len(gram))


def _psi(atom: Array, ball: Any) -> float:
    l1_weight, l2_weight, _, _ = ball
    return float(l1_weight * np.abs(atom).sum() + l2_weight / 2 * (atom**2).sum())


def _project(atom: Array, ball: Any, outside: float) -> Array:
    """Return the projection on the ball by bisection. outside: psi of the entries outside the mask, which are fixed."""
    l1_weight, l2_weight, limit, positive = ball
    atom = np.maximum(atom, 0) if positive else atom
    budget, magnitude = limit - outside, np.abs(atom)

    def shrunk(multiplier: float) -> Array:
        return np.maximum(magnitude - multiplier * l1_weight, 0) / (1 + multiplier * l2_weight)

    if _psi(atom, ball) <= budget:
        return atom
    if budget <= 0:
        return np.zeros_like(atom)
    low, high = 0.0, 1.0
    while _psi(shrunk(high), ball) > budget:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:  # neighbors: nothing changes any more
            break
        low, high = (middle, high) if _psi(shrunk(middle), ball) > budget else (low, middle)
    return np.sign(atom) * shrunk(high)
