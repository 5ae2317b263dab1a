"""Masks: the features that a step uses."""

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
    """Masks that cover every feature once per cycle.

    A cycle is a random permutation of the features cut into ``ceil(reduction)`` parts; each cycle has its own
    permutation. Where a mask holds many of the source's tiles, the permutation is of tiles rather than features. Mask
    number i is a pure function of the parameters and i.

    Parameters
    ----------
    n_features : int
    reduction : float
        A step uses 1 / reduction of the features.
    seed : int
    tiles : FeatureTiles
        Features that are cheap to read together.
    """

    by_record: bool = False
    """Whether masks depend on the record, and are numbered by the reads of records that share them."""

    shared_with: Sequence[int] = ()
    """For masks by record: for each record, the first record that shares its masks."""

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
        """Return the features of mask ``number`` (s,), in the order that is cheapest to read; None for all features.

        Masks by record depend on ``record`` and ``visit`` instead: the number of earlier reads of records that share
        these masks.
        """
        if self.cycle_length == 1:
            return None
        cycle, part = divmod(number, self.cycle_length)
        n_tiles = -(-self.n_features // self.tiles.width)
        permutation = _permutation(n_tiles, self.seed, cycle)
        return self.tiles.members(permutation[_part(n_tiles, self.cycle_length, part)], self.n_features)

    def fewest_visits(self, counts: Sequence[int]) -> int:
        """Return how often the least used feature is in the first ``counts[i]`` masks of group i of records."""
        return sum(count // self.cycle_length for count in counts)


class RunMasks(Masks):
    """Masks that are runs of adjacent tiles, for sources that read such a run at once.

    In records with the same order of features, ``ceil(reduction)`` consecutive reads use every feature once: the tiles,
    from a random first one and wrapping around, are cut into as many runs. Each cycle draws its own first tile. Only
    because records have several orders of features does this learn as well as random features do.

    Parameters
    ----------
    source : MatrixSource
        Defines the tiles of each record.
    reduction : float
        A step uses 1 / reduction of the features.
    seed : int
    """

    by_record = True

    def __init__(self, source: MatrixSource, reduction: float, seed: int) -> None:
        super().__init__(source.shape[1], reduction, seed)
        self.source = source
        orders = [source.tiles(record).order for record in range(len(source.records))]  # kept alive: ids stay distinct
        firsts: dict[int, int] = {}
        self.shared_with = [firsts.setdefault(id(order), record) for record, order in enumerate(orders)]
        largest = largest_reduction(source)
        if self.cycle_length > largest:
            raise ParameterError(
                f"reduction must be at most {largest}, got {reduction!r}: {source.record_name(0)} stores its features "
                f"in {largest} groups that are read whole"
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

    def fewest_visits(self, counts: Sequence[int]) -> int:
        visits = np.zeros(self.n_features, np.int64)  # of cycles that are not complete
        for record, count in enumerate(counts):
            for visit in range(count - count % self.cycle_length, count):
                visits[self.mask(0, record, visit)] += 1
        return super().fewest_visits(counts) + int(visits.min())


def masks_of(source: MatrixSource, reduction: float, seed: int) -> Masks:
    """Return the masks that suit a source: runs of tiles if it stores its features in a given order."""
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
    """Return one part of a range, as ``np.array_split`` cuts it: the first ``length % n_parts`` are longer by one."""
    width, n_longer = divmod(length, n_parts)
    start = part * width + min(part, n_longer)
    return slice(start, start + width + (part < n_longer))


@lru_cache(maxsize=2)
def _permutation(length: int, seed: int, cycle: int) -> Indices:
    """Return the order of tiles in one cycle, cached for fits that consist of many short calls."""
    order = np.arange(length)
    shuffle(generator(seed, Purpose.MASKS, cycle).bit_generator.random_raw(length // 2 + 1).view(np.uint32), order)
    return order


@lru_cache(maxsize=2**14)
def _first_tile(n_tiles: int, seed: int, record: int, cycle: int) -> int:
    """Return the first tile of a cycle, cached because reads of other records come in between."""
    return int(generator(seed, Purpose.MASKS, record, cycle).integers(n_tiles))
