"""Train/test splits of ratings."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, is_number
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.table.table import RatingTable

Splitter = Callable[[RatingTable, float, int], tuple[RatingTable, RatingTable]]
"""Function of a table, the share of test ratings and a seed that returns training and test ratings."""


def split_randomly(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Return training ratings and a random share of all ratings as test ratings.

    Examples
    --------
    >>> from terafactor import RatingTable
    >>> from terafactor.datasets import make_ratings
    >>> from terafactor.ratings import split_randomly
    >>> train, test = split_randomly(RatingTable.of(*make_ratings()), test_share=0.25)
    >>> len(train) > 2.9 * len(test)
    True
    """
    order = generator(seed, Purpose.HOLDOUT).permutation(len(table))
    return _split(table, order[: _count(test_share, len(table))])


def split_per_user(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Return training ratings and a random share of the ratings of each user, rounded down, as test ratings.

    Every user keeps training ratings.

    Examples
    --------
    >>> from terafactor import RatingTable
    >>> from terafactor.ratings import split_per_user
    >>> train, test = split_per_user(RatingTable.of([1, 1, 1, 2, 2], [1, 2, 3, 1, 2], [3, 4, 5, 3, 4]), test_share=0.5)
    >>> test.users.tolist()
    [0, 1]
    """
    _count(test_share, len(table))
    order = generator(seed, Purpose.HOLDOUT).permutation(len(table))
    order = order[np.argsort(table.users[order], kind="stable")]
    counts = np.bincount(table.users, minlength=table.shape[0])
    place = np.arange(len(table)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _split(table, order[place < np.floor(test_share * np.repeat(counts, counts))])


def split_by_time(table: RatingTable, test_share: float = 0.25, seed: int = 0) -> tuple[RatingTable, RatingTable]:
    """Return training ratings and the latest ratings as test ratings; the seed is not used.

    Examples
    --------
    >>> from terafactor import RatingTable
    >>> from terafactor.ratings import split_by_time
    >>> train, test = split_by_time(RatingTable.of([1, 1, 2, 2], [1, 2, 1, 2], [3, 4, 3, 4], [30, 10, 40, 20]))
    >>> test.times.tolist()
    [40]
    """
    if table.times is None:
        raise DataError("the ratings have no times: use split_randomly or split_per_user")
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
