"""Ratings split in two: to learn from and to test on."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, is_number
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.table.table import RatingTable

Splitter = Callable[[RatingTable, float, int], tuple[RatingTable, RatingTable]]
"""Takes a table, the share to test on and a seed; returns ratings to learn from and ratings to test on."""


def split_randomly(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Test on a random share of all ratings."""
    order = generator(seed, Purpose.HOLDOUT).permutation(len(table))
    return _split(table, order[: _count(test_share, len(table))])


def split_per_user(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Test on a random share of the ratings of each user, rounded down: all users stay known."""
    _count(test_share, len(table))
    order = generator(seed, Purpose.HOLDOUT).permutation(len(table))
    order = order[np.argsort(table.users[order], kind="stable")]
    counts = np.bincount(table.users, minlength=table.shape[0])
    place = np.arange(len(table)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _split(table, order[place < np.floor(test_share * np.repeat(counts, counts))])


def split_by_time(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Test on the latest ratings, as a service that predicts the future would be; the seed is not used."""
    if table.times is None:
        raise DataError("the ratings have no times: split_randomly and split_per_user need none")
    order = np.argsort(table.times, kind="stable")
    return _split(table, order[len(table) - _count(test_share, len(table)) :])


SPLITTERS: dict[str, Splitter] = {"random": split_randomly, "per_user": split_per_user, "by_time": split_by_time}


def _count(test_share: float, n_ratings: int) -> int:
    if not (is_number(test_share, Real) and 0 < test_share < 1):
        raise ParameterError(f"test_share must be between 0 and 1, got {test_share!r}")
    return int(test_share * n_ratings)


def _split(table: RatingTable, test: Array) -> tuple[RatingTable, RatingTable]:
    is_test = np.zeros(len(table), bool)
    is_test[test] = True
    return table.take(~is_test), table.take(is_test)
