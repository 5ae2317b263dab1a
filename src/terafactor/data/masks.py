"""Which features a step sees."""

from __future__ import annotations

import math
from functools import lru_cache

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
                f"reduction must be between 1 and n_features, got {reduction!r} with n_features={n_features} "
                "(reduction=10 uses a tenth of the features per step)"
            )
        self.n_features = n_features
        self.seed = seed
        self.cycle_length = math.ceil(reduction)

    def mask(self, number: int) -> Indices | None:
        """Return the features of mask ``number`` in ascending order; None when there is nothing to leave out."""
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(number, self.cycle_length)
        permutation = _permutation(self.n_features, self.seed, cycle)
        # The part that array_split would return: the first n % parts are one longer.
        width, longer = divmod(self.n_features, self.cycle_length)
        start = part * width + min(part, longer)
        return np.sort(permutation[start : start + width + (part < longer)])


@lru_cache(maxsize=2)
def _permutation(n_features: int, seed: int, cycle: int) -> Indices:
    """Return the order of features in one cycle; the last ones are kept for fits that come in many short calls."""
    return generator(seed, Purpose.MASKS, cycle).permutation(n_features)
