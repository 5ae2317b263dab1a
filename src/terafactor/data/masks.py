"""Which features a step sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Indices
from terafactor.data.source import FeatureTiles, MatrixSource
from terafactor.errors import ParameterError
from terafactor.kernels.shuffle import shuffle


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

    by_record: bool = False
    """Whether masks depend on the record, and are counted by visits to those that share them."""

    shared_with: Sequence[int] = ()
    """Of masks by record: the first record that shares them, for each."""

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
        few = n_features < tiles.fewest * tiles.width * self.cycle_length
        self.tiles = FeatureTiles() if few else tiles

    def mask(self, number: int, record: int = 0, visit: int = 0) -> Indices | None:
        """Return the features of mask ``number`` as they are read best; None when there is nothing to leave out.

        ``record`` and ``visit``, how often those that share its masks were visited before, are for masks by record.
        """
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(number, self.cycle_length)
        n_tiles = -(-self.n_features // self.tiles.width)
        permutation = _permutation(n_tiles, self.seed, cycle)
        return self.tiles.members(permutation[_part(n_tiles, self.cycle_length, part)], self.n_features)


class RunMasks(Masks):
    """Masks that are runs of neighbouring tiles, for sources where a run comes in one read.

    Of records with the same order of features, ``ceil(reduction)`` visits in a row see every feature once: the tiles,
    from a random one on and around the end, are cut into as many runs. The first tile is drawn anew for each cycle.
    This learns as well as single features at random do only because there are several orders.

    Parameters
    ----------
    source : MatrixSource
        Gives the tiles of each record.
    reduction : float
        How many times fewer features than there are a step sees.
    seed : int
    """

    by_record = True

    def __init__(self, source: MatrixSource, reduction: float, seed: int) -> None:
        super().__init__(source.shape[1], reduction, seed)
        self.source = source
        orders = [source.tiles(record).order for record in range(len(source.records))]  # kept, so that ids differ
        firsts: dict[int, int] = {}
        self.shared_with = [firsts.setdefault(id(order), record) for record, order in enumerate(orders)]
        fewest = largest_reduction(source)
        if self.cycle_length > fewest:
            raise ParameterError(
                f"reduction must be at most {fewest}, got {reduction!r}: {source.record_name(0)} stores its features "
                f"in {fewest} groups that are read whole"
            )

    def mask(self, number: int, record: int = 0, visit: int = 0) -> Indices | None:
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(visit, self.cycle_length)
        tiles = self.source.tiles(record)
        n_tiles = -(-self.n_features // tiles.width)
        run = _part(n_tiles, self.cycle_length, part)
        first = (_first_tile(n_tiles, self.seed, self.shared_with[record], cycle) + run.start) % n_tiles
        return tiles.run(first, run.stop - run.start, self.n_features)


def masks_of(source: MatrixSource, reduction: float, seed: int) -> Masks:
    """Return the masks that suit a source: runs where its tiles have an order of their own."""
    tiles = source.tiles(0)
    if tiles.order is not None:
        return RunMasks(source, reduction, seed)
    return Masks(source.shape[1], reduction, seed, tiles)


def largest_reduction(source: MatrixSource) -> int:
    """Return the largest reduction for which a source has masks."""
    tiles = source.tiles(0)
    if tiles.order is None:
        return source.shape[1]
    return min(-(-source.shape[1] // source.tiles(record).width) for record in range(len(source.records)))


def _part(length: int, n_parts: int, part: int) -> slice:
    """Return the part that array_split would: the first ``length % n_parts`` are one longer."""
    width, longer = divmod(length, n_parts)
    start = part * width + min(part, longer)
    return slice(start, start + width + (part < longer))


@lru_cache(maxsize=2)
def _permutation(length: int, seed: int, cycle: int) -> Indices:
    """Return the order of tiles in one cycle; the last ones are kept for fits that come in many short calls."""
    order = np.arange(length)
    shuffle(generator(seed, Purpose.MASKS, cycle).bit_generator.random_raw(length // 2 + 1).view(np.uint32), order)
    return order


@lru_cache(maxsize=2**14)
def _first_tile(n_tiles: int, seed: int, record: int, cycle: int) -> int:
    """Return the tile where a cycle of records begins, kept because visits to others come between."""
    return int(generator(seed, Purpose.MASKS, record, cycle).integers(n_tiles))
