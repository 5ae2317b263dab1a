"""Top-n recommendation, and nearest items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.kernels.blas import address
from terafactor.kernels.ranking import recommend_users
from terafactor.kernels.rating_order import count_keys, sort_by_user
from terafactor.ratings.serving.model import RatingModel
from terafactor.ratings.table.table import RatingTable


@dataclass(frozen=True)
class Seen:
    """Which items each user rated."""

    starts: Indices
    """Start of the items of each user (n + 1,)."""

    items: Array
    """Numbers of items, ascending for each user, int32."""

    @classmethod
    def of(cls, table: RatingTable) -> Seen:
        """Return the pairs of a table. Sorting by item first leaves the items of each user in ascending order."""
        by_item = table.transposed().by_user()
        counts = np.diff(by_item[0])
        items = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        return cls.from_pairs(by_item[1], items, table.shape[0])

    @classmethod
    def from_pairs(cls, users: Array, items: Array, n_users: int) -> Seen:
        """Group pairs (n,), sorted by item, by user."""
        counts = np.zeros(n_users, np.int64)
        count_keys(users, counts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        by_user, unused = np.empty_like(items), np.empty(len(items), np.int8)
        sort_by_user(np.arange(n_users), users, items, unused, starts[:-1].copy(), by_user, unused)
        return cls(starts, by_user)

    @classmethod
    def empty(cls, n_users: int) -> Seen:
        """Return users without ratings."""
        return cls(np.zeros(n_users + 1, np.int64), np.zeros(0, np.int32))

    def take(self, users: Indices) -> Seen:
        """Return the items of some users; -1 is an unknown user."""
        known = users >= 0
        lengths = np.where(known, self.starts[users + 1] - self.starts[users], 0) if len(self.starts) > 1 else 0 * users
        starts = np.concatenate([[0], np.cumsum(lengths)])
        offsets = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Seen(starts, self.items[np.repeat(self.starts[np.maximum(users, 0)], lengths) + offsets])

    def contains(self, users: Indices, items: Indices, n_items: int) -> Array:
        """Return which pairs (n,) were rated, given numbers of users and of ``n_items`` items, -1 if unknown."""
        owners = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        width = n_items + 1  # items and -1
        pairs, wanted = owners * width + self.items, users * width + items
        return np.searchsorted(pairs, wanted, "right") > np.searchsorted(pairs, wanted, "left")

    def transposed(self, n_items: int) -> Seen:
        """Return the users who rated each of ``n_items`` items."""
        users = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        return Seen.from_pairs(self.items, users, n_items)

    def with_rows(self, rows: Seen, present: Indices, n_users: int) -> Seen:
        """Return the items of ``n_users`` users, with those of the users ``present`` taken from ``rows``."""
        before = Seen(np.append(self.starts, np.full(n_users + 1 - len(self.starts), self.starts[-1])), self.items)
        old = np.setdiff1d(np.arange(n_users), present, assume_unique=True)
        kept, new = before.take(old), rows.take(present)
        users = np.concatenate([np.repeat(old, np.diff(kept.starts)), np.repeat(present, np.diff(new.starts))])
        return Seen.from_pairs(users, np.concatenate([kept.items, new.items]), n_users)


def best_items(
    model: RatingModel, codes: Array, seen: Seen, n: int, allowed: Indices | None, executor: Executor
) -> tuple[Indices, Array]:
    """Return the numbers of the n best items (b, n) of each user and their scores, padded with -1 and NaN.

    codes (b, width); allowed: numbers of the candidate items, ascending; None for all. Scores omit the bias of the
    user, which does not change the order.
    """
    columns = np.arange(len(model.item_factors)) if allowed is None else allowed
    factors, biases = model.item_factors, model.item_biases
    if allowed is not None:
        factors, biases = factors[allowed], biases[allowed]
    scores, items = np.empty((len(codes), n), np.float32), np.empty((len(codes), n), np.int64)
    gemm = address("gemm", codes.dtype)

    def recommend(start: int, stop: int) -> None:
        recommend_users(gemm, codes, factors, biases, columns, seen.starts, seen.items, start, stop, scores, items)

    executor.split(recommend, len(codes))
    scores[items < 0] = np.nan
    return items, scores


def most_similar(factors: Array, items: Indices, n: int) -> tuple[Indices, Array]:
    """Return the numbers of the n items (b, n) whose factors have the largest cosine with those of ``items`` (b,).

    factors (p, k). The item itself is excluded; ties go to the lower number.
    """
    lengths = np.linalg.norm(factors, axis=1)
    directions = factors / np.where(lengths > 0, lengths, 1)[:, np.newaxis]
    cosines = directions[items] @ directions.T
    cosines[np.arange(len(items)), items] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(n, len(factors) - 1)]
    return order, np.take_along_axis(cosines, order, axis=1)
