"""The ratings of each user that a model has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import DataError
from terafactor.kernels.rating_order import count_keys, sort_by_user
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.state_dict import StateDict

MAX_LEVELS = 256
"""Files store one byte per rating if there are at most this many distinct ratings."""


@dataclass(frozen=True)
class RatingHistory:
    """Ratings by user, in compressed rows.

    ``recommend`` excludes these items, and ``partial_fit`` computes codes from old and new ratings.
    """

    starts: Indices
    """Start of the ratings of each user (n_users + 1,)."""

    items: Array
    """Item numbers (n,), ascending for each user, int32."""

    values: Array
    """The ratings (n,), float32; NaN if the model file does not hold them."""

    held_out: Array
    """Which ratings the model has not learned from (n,), bool."""

    complete: bool = True
    """Whether the history holds the ratings of all users; False for checkpoints and models of earlier versions."""

    @classmethod
    def of(cls, train: RatingTable, held_out: RatingTable | None = None) -> RatingHistory:
        """Return the history of a model that has learned from ``train``."""
        users, items, values = train.users, train.items, train.values
        if held_out is not None:
            users, items = np.concatenate([users, held_out.users]), np.concatenate([items, held_out.items])
            values = np.concatenate([values, held_out.values])
        _, by_item = stable_order(items, train.shape[1])
        starts, by_user = stable_order(users[by_item], train.shape[0])
        order = by_item[by_user]
        return cls(starts, items[order], values[order], order >= len(train))

    @classmethod
    def empty(cls, n_users: int, *, complete: bool = True) -> RatingHistory:
        """Return the history of users without ratings."""
        arrays = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, bool)
        return cls(np.zeros(n_users + 1, np.int64), *arrays, complete)

    @classmethod
    def of_items(cls, items: Indices) -> RatingHistory:
        """Return the history of users with one item each (b,)."""
        n = len(items)
        return cls(np.arange(n + 1), items.astype(np.int32), np.full(n, np.nan, np.float32), np.zeros(n, bool))

    @property
    def users(self) -> Array:
        """User of each rating (n,), int32."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))

    def take(self, users: Indices) -> RatingHistory:
        """Return the rows of some users; -1 is an unknown user."""
        known = users >= 0
        lengths = np.where(known, self.starts[users + 1] - self.starts[users], 0) if len(self.starts) > 1 else 0 * users
        starts = np.concatenate([[0], np.cumsum(lengths)])
        chosen = np.arange(starts[-1]) + np.repeat(self.starts[np.maximum(users, 0)] - starts[:-1], lengths)
        return self._select(chosen, starts)

    def learned(self) -> RatingHistory:
        """Return the ratings that are not held out."""
        starts = np.concatenate([[0], np.cumsum(~self.held_out)])[self.starts]
        return self._select(np.flatnonzero(~self.held_out), starts)

    def contains(self, users: Indices, items: Indices, n_items: int) -> Array:
        """Return which pairs (n,) have a rating, given numbers of users and of ``n_items`` items, -1 if unknown."""
        width = n_items + 1  # items and -1
        pairs, wanted = self.users * np.int64(width) + self.items, users * width + items
        return np.searchsorted(pairs, wanted, "right") > np.searchsorted(pairs, wanted, "left")

    def transposed(self, n_items: int) -> RatingHistory:
        """Return the ratings of each of ``n_items`` items by users."""
        starts, order = stable_order(self.items, n_items)
        return replace(self._select(order, starts), items=self.users[order])

    def updated(self, given: RatingTable) -> RatingUpdate:
        """Return the history after further ratings, which replace earlier ratings of the same pairs.

        New users and items of ``given`` have the last numbers.
        """
        n_users, n_items = given.shape
        padding = np.full(n_users + 1 - len(self.starts), self.starts[-1])
        before = replace(self, starts=np.concatenate([self.starts, padding]))
        present = np.unique(given.users)
        old = before.take(present)
        owners = present[old.users].astype(np.int64)

        # Earlier and further ratings sorted by pair; a further rating follows the earlier one that it replaces.
        pairs = np.concatenate([owners, given.users]) * n_items + np.concatenate([old.items, given.items])
        order = np.argsort(pairs, kind="stable")
        pairs, is_given = pairs[order], order >= len(owners)
        values = np.concatenate([old.values, given.values])[order]
        held_out = np.concatenate([old.held_out, np.zeros(len(given), bool)])[order]
        repeated = pairs[1:] == pairs[:-1]
        replaces, is_last = np.append(False, repeated), np.append(~repeated, True)
        learned = np.where(is_given, replaces & ~np.roll(held_out, 1), ~held_out)
        change = np.where(is_given & learned, values - np.roll(values, 1), np.float32(0))
        changed = np.unique(pairs[is_given & (~learned | (change != 0))] // n_items)

        merged = np.flatnonzero(is_last & np.isin(pairs // n_items, changed))
        users, items = (numbers.astype(np.int32) for numbers in np.divmod(pairs[merged], n_items))
        after = before._with_rows(changed, users, items, values[merged], held_out[merged])
        usable = ~held_out[merged] & ~np.isnan(values[merged])
        rows = RatingTable(users, items, values[merged], given.user_ids, given.item_ids).take(usable)
        absent = np.setdiff1d(changed, owners[~np.isnan(old.values)])
        return RatingUpdate(
            history=after,
            rows=rows,
            is_new=~learned[merged][usable],
            change=np.nan_to_num(change[merged][usable]),
            n_new_users=len(np.setdiff1d(changed, owners[~old.held_out])),
            n_without_ratings=0 if self.complete else int(np.count_nonzero(absent < len(self.starts) - 1)),
        )

    def _with_rows(self, changed: Indices, users: Array, items: Array, values: Array, held_out: Array) -> RatingHistory:
        """Return the history with the rows of the users ``changed`` replaced."""
        is_changed = np.zeros(len(self.starts) - 1, bool)
        is_changed[changed] = True
        owners = self.users
        kept = ~is_changed[owners]
        starts, order = stable_order(np.concatenate([owners[kept], users]), len(is_changed))
        return RatingHistory(
            starts,
            np.concatenate([self.items[kept], items])[order],
            np.concatenate([self.values[kept], values])[order],
            np.concatenate([self.held_out[kept], held_out])[order],
            self.complete,
        )

    def _select(self, chosen: Indices, starts: Indices) -> RatingHistory:
        return replace(
            self, starts=starts, items=self.items[chosen], values=self.values[chosen], held_out=self.held_out[chosen]
        )

    def state_dict(self) -> StateDict:
        """Return the content of a model file; few distinct ratings are stored as one byte each."""
        arrays = {"starts": self.starts, "items": self.items, "held_out": np.packbits(self.held_out)}
        levels = np.unique(self.values[: 4 * MAX_LEVELS])
        if len(levels) <= MAX_LEVELS:  # otherwise sorting all ratings is useless
            levels = np.unique(self.values)
        if len(levels) <= MAX_LEVELS:
            arrays |= {"levels": levels, "level": np.searchsorted(levels, self.values).astype(np.uint8)}
        else:
            arrays |= {"values": self.values}
        return StateDict({"complete": self.complete}, arrays)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict, n_users: int, n_items: int) -> RatingHistory:
        """Return the history of a model file; those of earlier versions hold neither ratings nor held-out pairs."""
        starts = state_dict.array("starts", (n_users + 1,), np.int64)
        items = state_dict.array("items", (None,), np.int32)
        n = len(items)
        if starts[0] != 0 or np.any(np.diff(starts) < 0) or starts[-1] != n:
            raise DataError("invalid seen.starts in the model file: not written by terafactor, or corrupted")
        if n and not (items.min() >= 0 and items.max() < n_items):
            raise DataError("invalid seen.items in the model file: not written by terafactor, or corrupted")
        if "held_out" not in state_dict.arrays:
            return cls(starts, items, np.full(n, np.nan, np.float32), np.zeros(n, bool), complete=False)
        held_out = np.unpackbits(state_dict.array("held_out", (-(-n // 8),), np.uint8), count=n).astype(bool)
        return cls(starts, items, _read_values(state_dict, n), held_out, bool(state_dict.numbers.get("complete")))


@dataclass(frozen=True)
class RatingUpdate:
    """What further ratings change."""

    history: RatingHistory
    """All ratings after the update."""

    rows: RatingTable
    """Earlier and further ratings of the users with new or changed ratings, sorted by user and item."""

    is_new: Array
    """Which of these pairs the model has not learned from (n,), bool."""

    change: Array
    """Further rating minus earlier rating (n,), float32; zero for new and for unchanged pairs."""

    n_new_users: int
    """Users without earlier ratings."""

    n_without_ratings: int
    """Known users whose earlier ratings the model does not hold."""


def stable_order(keys: Array, n_keys: int) -> tuple[Indices, Array]:
    """Return the start of each key (n_keys + 1,) and the stable order (n,) of ``keys``, by counting."""
    counts = np.zeros(n_keys, np.int64)
    count_keys(keys, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(len(keys), dtype=np.int32 if len(keys) < 2**31 else np.int64)
    order, unused = np.empty_like(places), np.empty(len(keys), np.float32)  # float32 as elsewhere: already compiled
    sort_by_user(np.arange(n_keys), keys, places, unused, starts[:-1].copy(), order, unused)
    return starts, order


def _read_values(state_dict: StateDict, n: int) -> Array:
    if "values" in state_dict.arrays:
        return state_dict.array("values", (n,), np.float32)
    levels, level = state_dict.array("levels", (None,), np.float32), state_dict.array("level", (n,), np.uint8)
    if n and level.max() >= len(levels):
        raise DataError("invalid seen.level in the model file: not written by terafactor, or corrupted")
    return levels[level]
