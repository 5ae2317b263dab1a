"""Ratings cut into batches of users, each held by user and by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.kernels.rating_order import count_keys, place_by_item, place_by_user


@dataclass(frozen=True)
class RatingBatch:
    """All the ratings of some users, twice: by user and by item."""

    users: Indices
    """Numbers of the users (b,)."""

    starts: Indices
    """Where the ratings of each user begin (b + 1,)."""

    items: Array
    """Item of each rating, by user, int32."""

    values: Array
    """The ratings, by user, float32."""

    present: Indices
    """Items that have a rating in the batch, ascending (q,)."""

    item_starts: Indices
    """Where the ratings of each of these begin (q + 1,)."""

    item_users: Array
    """User of each rating, by item, counted from the first of the batch, int32."""

    item_values: Array
    """The ratings, by item, float32."""

    @property
    def n_bytes(self) -> int:
        """Bytes of ratings that a step reads."""
        return 2 * (self.items.nbytes + self.values.nbytes)


def cut_into_batches(
    users: Array, items: Array, values: Array, groups: Sequence[Indices], n_items: int, executor: Executor
) -> list[RatingBatch]:
    """Return one batch per group of users, without users that have no rating.

    users, items (n,) integers, values (n,); every user that has a rating is in one group.
    """
    ranks, counts = _ranks(users, groups)
    starts = np.concatenate([[0], np.cumsum(counts)])
    placed_items, placed_values = np.empty(len(items), np.int32), np.empty(len(items), np.float32)
    place_by_user(ranks, users, items, values, starts[:-1].copy(), placed_items, placed_values)
    borders = np.cumsum([0, *(len(group) for group in groups)])
    batches: list[RatingBatch | None] = [None] * len(groups)

    def cut(first: int, last: int) -> None:
        for number in range(first, last):
            low, high = borders[number], borders[number + 1]
            part = slice(starts[low], starts[high])
            batches[number] = _batch(
                groups[number], starts[low : high + 1], placed_items[part], placed_values[part], n_items
            )

    executor.split(cut, len(groups))
    return [batch for batch in batches if batch is not None and len(batch.items)]


def _ranks(users: Array, groups: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Return the place of each user in the order of the groups, and the number of ratings at each place."""
    order = np.concatenate(groups)
    ranks = np.full(int(order.max(initial=-1)) + 1, -1)
    ranks[order] = np.arange(len(order))
    per_user = np.zeros(len(ranks), np.int64)
    count_keys(users, per_user)
    return ranks, per_user[order]


def _batch(users: Indices, starts: Indices, items: Array, values: Array, n_items: int) -> RatingBatch:
    per_item = np.zeros(n_items, np.int64)
    count_keys(items, per_item)
    ends = np.cumsum(per_item) - per_item
    placed_users, placed_values = np.empty(len(items), np.int32), np.empty(len(items), np.float32)
    present = np.flatnonzero(per_item)
    item_starts = np.append(ends[present], len(items))
    starts = starts - starts[0]
    place_by_item(starts, items, values, ends, placed_users, placed_values)
    return RatingBatch(users, starts, items, values, present, item_starts, placed_users, placed_values)
