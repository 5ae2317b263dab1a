"""Mini-batches of users, with their ratings sorted by user and by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.rating_order import count_keys, sort_by_item, sort_by_user
from terafactor.ratings.table.history import RatingUpdate


@dataclass(frozen=True)
class RatingBatch:
    """The ratings of some users, sorted by user for their codes and again by item for the statistics of items.

    In an update of known users, the arrays sorted by item hold new ratings only.
    """

    users: Indices
    """Numbers of the users (b,)."""

    starts: Indices
    """Start of the ratings of each user (b + 1,)."""

    items: Array
    """Item of each rating (n,), by user, int32."""

    values: Array
    """The ratings (n,), by user, float32."""

    present: Indices
    """Items rated in the batch, ascending (q,)."""

    item_starts: Indices
    """Start of the ratings of each of these items (q + 1,)."""

    item_users: Array
    """User of each rating (n,), by item, numbered within the batch, int32."""

    item_values: Array
    """The ratings (n,), by item, float32."""

    changes: Array | None = None
    """In an update, new minus old rating (n,), by user; zero for new and for unchanged pairs."""

    @property
    def n_bytes(self) -> int:
        """Bytes that a step reads."""
        return 2 * (self.items.nbytes + self.values.nbytes)


def make_batches(
    users: Array, items: Array, values: Array, groups: Sequence[Indices], n_items: int, threads: Threads
) -> list[RatingBatch]:
    """Return one batch per group of users; groups without ratings are dropped.

    users, items (n,) integers; values (n,); every user with a rating is in one group.
    """
    ranks, counts = _ranks(users, groups)
    starts = np.concatenate([[0], np.cumsum(counts)])
    sorted_items, sorted_values = np.empty(len(items), np.int32), np.empty(len(items), np.float32)
    sort_by_user(ranks, users, items, values, starts[:-1].copy(), sorted_items, sorted_values)
    borders = np.cumsum([0, *(len(group) for group in groups)])
    batches: list[RatingBatch | None] = [None] * len(groups)

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            low, high = borders[number], borders[number + 1]
            part = slice(starts[low], starts[high])
            batches[number] = _batch(
                groups[number], starts[low : high + 1], sorted_items[part], sorted_values[part], n_items
            )

    threads.split(fill, len(groups))
    return [batch for batch in batches if batch is not None and len(batch.items)]


def make_update_batches(
    update: RatingUpdate, values: Array, changes: Array, groups: Sequence[Indices]
) -> list[RatingBatch]:
    """Return one batch per group of users with new or changed ratings; values, changes (n,): standardized."""
    starts, items, _ = update.rows.by_user()
    n_new = np.concatenate([[0], np.cumsum(update.is_new)])
    batches = []
    for group in groups:
        borders = np.append(starts[group], starts[group[-1] + 1])
        part = slice(borders[0], borders[-1])
        is_new, changed = update.is_new[part], items[part][changes[part] != 0]
        counted = _batch(
            group, n_new[borders], items[part][is_new], values[part][is_new], update.rows.shape[1], changed
        )
        whole = {"starts": borders - borders[0], "items": items[part], "values": values[part]}
        batches.append(replace(counted, changes=changes[part], **whole))
    return batches


def _ranks(users: Array, groups: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Return the rank of each user in the order of the groups, and the number of ratings of each rank."""
    order = np.concatenate(groups)
    ranks = np.full(int(order.max(initial=-1)) + 1, -1)
    ranks[order] = np.arange(len(order))
    per_user = np.zeros(len(ranks), np.int64)
    count_keys(users, per_user)
    return ranks, per_user[order]


def _batch(
    users: Indices, starts: Indices, items: Array, values: Array, n_items: int, changed: Array | None = None
) -> RatingBatch:
    per_item = np.zeros(n_items, np.int64)
    count_keys(items, per_item)
    next_place = np.cumsum(per_item) - per_item
    item_users, item_values = np.empty(len(items), np.int32), np.empty(len(items), np.float32)
    is_present = per_item > 0
    if changed is not None:
        is_present[changed] = True
    present = np.flatnonzero(is_present)
    item_starts = np.append(next_place[present], len(items))
    starts = starts - starts[0]
    sort_by_item(starts, items, values, next_place, item_users, item_values)
    return RatingBatch(users, starts, items, values, present, item_starts, item_users, item_values)
