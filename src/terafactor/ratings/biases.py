"""Alternated debiasing: means of users and of items, each after the other was taken away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array
from terafactor.ratings.table import RatingTable

SETTLED = 1e-4
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
        centred = table.values - offset
        users, items = (np.zeros(length) for length in table.shape)
        allowed = SETTLED * float(centred.std())
        for _ in range(MOST_ROUNDS):
            users = _means(table.users, centred - items[table.items], len(users), damping)
            before, items = items, _means(table.items, centred - users[table.users], len(items), damping)
            if np.abs(items - before).max() <= allowed:
                break
        users = _means(table.users, centred - items[table.items], len(users), damping)
        return cls(offset, users.astype(np.float32), items.astype(np.float32))

    def remove(self, table: RatingTable) -> Array:
        """Return the ratings without their biases (n,), float32."""
        return np.asarray(table.values - self.offset - self.users[table.users] - self.items[table.items], np.float32)


def _means(numbers: Array, values: Array, length: int, damping: float) -> Array:
    totals, counts = np.bincount(numbers, values, length), np.bincount(numbers, minlength=length)
    return np.asarray(totals / np.maximum(counts + damping, 1e-12))
