"""Alternated debiasing: means of users and of items, each after the other was taken away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.ratings.table.table import RatingTable

CONVERGED = 1e-4
"""Change of the biases of items, relative to the spread of ratings, at which alternation ends."""

MOST_ROUNDS = 100


@dataclass(frozen=True)
class Biases:
    """What a table of ratings is centred by: ``offset + users[u] + items[i]``."""

    offset: float
    """Mean of all ratings."""

    users: Array
    """(n,), float32; 0 for a user without ratings."""

    items: Array
    """(p,), float32; 0 for an item without ratings."""

    @classmethod
    def of(cls, table: RatingTable, damping: float = 0.0) -> Biases:
        """Return the biases of a table; those of users are means given those of items, to the last round.

        damping: ratings of the overall mean that every user and item is believed to have had.
        """
        offset = float(table.values.mean(dtype=np.float64))
        return cls(offset, *_alternate(table, offset, np.zeros(table.shape[1]), np.ones(table.shape[1], bool), damping))

    def after(self, rows: RatingTable, rated: Array, damping: float = 0.0) -> Biases:
        """Return the biases after rows of some users came, who are what these rows say from now on.

        rated (p,): items that had ratings before; they keep their bias, with which all statistics were taken.
        """
        items = np.zeros(rows.shape[1])
        items[: len(self.items)] = self.items
        users, items = _alternate(rows, self.offset, items, ~rated, damping)
        absent = np.bincount(rows.users, minlength=len(users))[: len(self.users)] == 0
        users[: len(self.users)][absent] = self.users[absent]
        return Biases(self.offset, users, items)

    def centred(self, table: RatingTable) -> Any:
        """Return the ratings without their biases as compressed rows (users, items)."""
        return replace(table, values=self.remove(table)).as_matrix()

    def remove(self, table: RatingTable) -> Array:
        """Return the ratings without their biases (n,), float32."""
        return np.asarray(table.values - self.offset - self.users[table.users] - self.items[table.items], np.float32)


def _alternate(table: RatingTable, offset: float, items: Array, free: Array, damping: float) -> tuple[Array, Array]:
    """Return the biases of users and items, float32, starting from those of items, of which some are ``free``."""
    centred = table.values - offset
    allowed = CONVERGED * float(centred.std())
    of_user, of_item = table.users.astype(np.intp), table.items.astype(np.intp)
    user_means, item_means = _means(of_user, table.shape[0], damping), _means(of_item, table.shape[1], damping)
    for _ in range(MOST_ROUNDS):
        users = user_means(centred - items[of_item])
        before, items = items, np.where(free, item_means(centred - users[of_user]), items)
        if np.abs(items - before).max() <= allowed:
            break
    return user_means(centred - items[of_item]).astype(np.float32), items.astype(np.float32)


def _means(numbers: Array, length: int, damping: float) -> Callable[[Array], Array]:
    """Return what takes the damped means of ratings by their numbers, which are counted once."""
    counts = np.maximum(np.bincount(numbers, minlength=length) + damping, 1e-12)
    return lambda values: np.asarray(np.bincount(numbers, values, length) / counts)
