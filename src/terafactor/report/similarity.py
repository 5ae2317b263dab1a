"""Cosines between atoms, as many as a bounded amount of work gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array, Indices

MAX_PRODUCTS = 10**10
"""Multiplications that a report may spend on cosines: a fraction of a second."""


@dataclass(frozen=True)
class Similarity:
    """How alike some atoms are."""

    atoms: Indices
    """Their numbers (m,), in the order shown."""

    cosines: Array
    """Cosines between them (m, m), zero on the diagonal and for atoms that are zero."""

    def closest(self, n_pairs: int) -> list[tuple[int, int, float]]:
        """Return the pairs with the largest absolute cosines, as two atoms and the cosine."""
        first, second = np.triu_indices(len(self.atoms), 1)
        values = self.cosines[first, second]
        order = np.argsort(-np.abs(values), kind="stable")[:n_pairs]
        return [(int(self.atoms[first[i]]), int(self.atoms[second[i]]), float(values[i])) for i in order]


def similarity(components: Array, order: Indices) -> Similarity:
    """Return the cosines between atoms (k, p) in the order given: the first ones, where all take too long."""
    affordable = math.isqrt(MAX_PRODUCTS // max(1, components.shape[1]))
    atoms = order[: max(2, affordable)]
    chosen = components[atoms]
    norms = np.linalg.norm(chosen, axis=1, keepdims=True)
    unit = chosen / np.where(norms > 0, norms, 1)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, 0)
    return Similarity(atoms, cosines)
