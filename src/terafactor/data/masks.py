"""Which features a step sees."""

from __future__ import annotations

import math

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Indices
from terafactor.errors import ParameterError


class Masks:
    """Masks that visit every feature once per cycle.

    A cycle is a random permutation of the features cut into ``ceil(reduction)`` parts, a fresh permutation each time.
    Mask number i is a pure function of (seed, i).

    Parameters
    ----------
    n_features : int
    reduction : float
        How many times fewer features than there are a step sees.
    seed : int
    """

    def __init__(self, n_features: int, reduction: float, seed: int) -> None:
        if not 1 <= reduction <= n_features:
            raise ParameterError(
                f"reduction must be between 1 and the number of features, got {reduction!r} with n_features={n_features} "
                "(reduction=10 uses a tenth of the features per step)"
            )
        self.n_features = n_features
        self.seed = seed
        self.cycle_length = math.ceil(reduction)
        self._cycle = -1
        self._parts: list[Indices] = []

    def mask(self, number: int) -> Indices | None:
        """Return the features of mask ``number`` in ascending order; None when there is nothing to leave out."""
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(number, self.cycle_length)
        if cycle != self._cycle:
            permutation = generator(self.seed, Purpose.MASKS, cycle).permutation(self.n_features)
            self._parts = np.array_split(permutation, self.cycle_length)
            self._cycle = cycle
        return np.sort(self._parts[part])
