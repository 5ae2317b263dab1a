"""User and item biases by alternating means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.ratings.table.table import RatingTable

BIAS_TOLERANCE = 1e-4
"""Change of the item biases, relative to the standard deviation of ratings, at which the alternation has converged."""

MAX_ROUNDS = 100


@dataclass(frozen=True)
class Biases:
    """Additive model of ratings: ``offset + users[u] + items[i]``."""

    offset: float
    """Mean of all ratings."""

    users: Array
    """(n,), float32; 0 for a user without ratings."""

    items: Array
    """(p,), float32; 0 for an item without ratings."""

    @classmethod
    def of(cls, table: RatingTable, damping: float = 0.0) -> Biases:
        """Estimate the biases of a table.

        damping: pseudo-ratings equal to the overall mean, added to each user and item.
        """
        offset = float(table.values.mean(dtype=np.float64))
        return cls(offset, *_alternate(table, offset, np.zeros(table.shape[1]), np.ones(table.shape[1], bool), damping))

    def after(self, rows: RatingTable, rated: Array, damping: float = 0.0) -> Biases:
        """Return the biases with those of some users replaced by estimates from their new rows.

        rated (p,): whether items had ratings before. Those keep their bias, because their statistics depend on it.
        """
        items = np.zeros(rows.shape[1])
        items[: len(self.items)] = self.items
        users, items = _alternate(rows, self.offset, items, ~rated, damping)
        absent = np.bincount(rows.users, minlength=len(users))[: len(self.users)] == 0
        users[: len(self.users)][absent] = self.users[absent]
        return Biases(self.offset, users, items)

    def centered(self, table: RatingTable) -> Any:
        """Return the ratings minus their biases as a SciPy CSR array (n_users, n_items)."""
        return replace(table, values=self.remove(table)).as_matrix()

    def remove(self, table: RatingTable) -> Array:
        """Return the ratings minus their biases (n,), float32."""
        return np.asarray(table.values - self.offset - self.users[table.users] - self.items[table.items], np.float32)


def _alternate(table: RatingTable, offset: float, items: Array, free: Array, damping: float) -> tuple[Array, Array]:
    """Return user and item biases, float32, starting from ``items`` (p,); only the ``free`` items change."""
    centered = table.values - offset
    allowed = BIAS_TOLERANCE * float(centered.std())
    of_user, of_item = table.users.astype(np.intp), table.items.astype(np.intp)
    user_means, item_means = _means(of_user, table.shape[0], damping), _means(of_item, table.shape[1], damping)
    for _ in range(MAX_ROUNDS):
        users = user_means(centered - items[of_item])
        before, items = items, np.where(free, item_means(centered - users[of_user]), items)
        if np.abs(items - before).max() <= allowed:
            break
    return user_means(centered - items[of_item]).astype(np.float32), items.astype(np.float32)


def _means(numbers: Array, length: int, damping: float) -> Callable[[Array], Array]:
    """Return a function that averages values by user or item number, with damping; the counts are computed once."""
    counts = np.maximum(np.bincount(numbers, minlength=length) + damping, 1e-12)
    return lambda values: np.asarray(np.bincount(numbers, values, length) / counts)
