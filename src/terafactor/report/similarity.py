"""Cosines between atoms, with bounded work."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array, Indices

MAX_PRODUCTS = 10**10
"""Multiplications that a report may spend on cosines: a fraction of a second."""

FEATURES_AT_ONCE = 2**14
"""Features copied at a time."""


@dataclass(frozen=True)
class Similarity:
    """Cosines between some atoms."""

    atoms: Indices
    """Numbers of the atoms (m,), in the order shown."""

    cosines: Array
    """Cosines (m, m), zero on the diagonal and for atoms that are zero."""

    def closest(self, n_pairs: int) -> list[tuple[int, int, float]]:
        """Return the pairs with the largest absolute cosines, as two atoms and the cosine."""
        first, second = np.triu_indices(len(self.atoms), 1)
        values = self.cosines[first, second]
        order = np.argsort(-np.abs(values), kind="stable")[:n_pairs]
        return [(int(self.atoms[first[i]]), int(self.atoms[second[i]]), float(values[i])) for i in order]


def similarity(components: Array, order: Indices) -> Similarity:
    """Return the cosines between atoms (k, p) in the given order; only of the first ones if all take too long."""
    n_features = components.shape[1]
    atoms = order[: max(2, math.isqrt(MAX_PRODUCTS // max(1, n_features)))]
    products = np.zeros((len(atoms), len(atoms)))
    for start in range(0, n_features, FEATURES_AT_ONCE):
        part = components[atoms, start : start + FEATURES_AT_ONCE]
        products += part @ part.T
    norms = np.sqrt(np.diag(products))
    cosines = products / np.outer(norms, norms).clip(min=np.finfo(float).tiny)
    np.fill_diagonal(cosines, 0)
    return Similarity(atoms, cosines)
