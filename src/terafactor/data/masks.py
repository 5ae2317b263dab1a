"""Which features a step sees."""

from __future__ import annotations

import math
from functools import lru_cache

from terafactor._random import Purpose, generator
from terafactor._typing import Indices
from terafactor.data.source import FeatureTiles
from terafactor.errors import ParameterError

TILES_PER_MASK = 64
"""Fewest tiles that a mask is made of; with fewer, neighbours in a tile would stand for too much of the mask."""


class Masks:
    """Masks that visit every feature once per cycle.

    A cycle is a random permutation of the features cut into ``ceil(reduction)`` parts, a fresh permutation each time.
    Where a mask holds many of the source's tiles, whole tiles are permuted rather than single features. Mask number i
    is a pure function of the parameters and i.

    Parameters
    ----------
    n_features : int
    reduction : float
        How many times fewer features than there are a step sees.
    seed : int
    tiles : FeatureTiles
        Features that are cheap to read together.
    """

    def __init__(self, n_features: int, reduction: float, seed: int, tiles: FeatureTiles | None = None) -> None:
        if not 1 <= reduction <= n_features:
            raise ParameterError(
                f"reduction must be between 1 and n_features, got {reduction!r} with n_features={n_features} "
                "(reduction=10 uses a tenth of the features per step)"
            )
        self.n_features = n_features
        self.seed = seed
        self.cycle_length = math.ceil(reduction)
        tiles = tiles or FeatureTiles()
        few = n_features < TILES_PER_MASK * tiles.width * self.cycle_length
        self.tiles = FeatureTiles() if few else tiles

    def mask(self, number: int) -> Indices | None:
        """Return the features of mask ``number`` in ascending order; None when there is nothing to leave out."""
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(number, self.cycle_length)
        n_tiles = -(-self.n_features // self.tiles.width)
        permutation = _permutation(n_tiles, self.seed, cycle)
        # The part that array_split would return: the first n % parts are one longer.
        width, longer = divmod(n_tiles, self.cycle_length)
        start = part * width + min(part, longer)
        return self.tiles.members(permutation[start : start + width + (part < longer)], self.n_features)


@lru_cache(maxsize=2)
def _permutation(length: int, seed: int, cycle: int) -> Indices:
    """Return the order of tiles in one cycle; the last ones are kept for fits that come in many short calls."""
    return generator(seed, Purpose.MASKS, cycle).permutation(length)
