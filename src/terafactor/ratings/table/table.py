"""Ratings in memory, in coordinate form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array, Indices
from terafactor.data.sources.sparse import check_sparse
from terafactor.errors import DataError, ParameterError
from terafactor.kernels.rating_order import count_keys, first_duplicate, sort_by_user
from terafactor.ratings.table.ids import Ids

Duplicates = Literal["error", "last", "mean"]

MAX_SIZE = 2**31 - 1
"""Largest number of users or items: numbers are stored as int32."""

ID_BYTES = 40
"""Memory that opening a matrix takes per user or item, with or without ratings."""

MAX_RATING = float(np.finfo(np.float32).max)
"""Largest absolute value of a rating."""


@dataclass(frozen=True)
class RatingTable:
    """Ratings of items by users, one per pair. Build it with :meth:`of` or :meth:`from_matrix`.

    Examples
    --------
    >>> from terafactor import RatingTable
    >>> table = RatingTable.of(["ann", "bob"], ["dune", "heat"], [5, 4])
    >>> table.as_matrix().toarray()
    array([[5., 0.],
           [0., 4.]], dtype=float32)
    """

    users: Array
    """Number of the user of each rating (n,), int32."""

    items: Array
    """Number of the item (n,), int32."""

    values: Array
    """The ratings (n,), float32."""

    user_ids: Ids
    """Ids of the users, by number."""

    item_ids: Ids
    """Ids of the items, by number."""

    times: Array | None = None
    """Time of each rating (n,), in any unit; None if unknown."""

    @classmethod
    def of(
        cls, users: Any, items: Any, ratings: Any, times: Any = None, *, duplicates: Duplicates = "error"
    ) -> RatingTable:
        """Return a table of three or four sequences of equal length (n,).

        duplicates: what to do if a user rates an item more than once: "error" refuses, "last" keeps the last rating
        (by time if times are given), "mean" averages.
        """
        user_ids, user_numbers = Ids.of(users)
        item_ids, item_numbers = Ids.of(items)
        values = np.asarray(ratings.to_numpy() if hasattr(ratings, "to_numpy") else ratings)
        moments = None if times is None else np.asarray(times)
        lengths = {"users": len(user_numbers), "items": len(item_numbers), "ratings": len(values)}
        if len({*lengths.values(), len(values if moments is None else moments)}) > 1:
            raise DataError(f"users, items, ratings and times must have the same length, got {lengths}")
        table = cls(user_numbers, item_numbers, _as_ratings(values), user_ids, item_ids, moments)
        return table.without_duplicates(duplicates)

    @classmethod
    def from_matrix(cls, matrix: Any, *, duplicates: Duplicates = "error") -> RatingTable:
        """Return the table of a SciPy sparse matrix (n_users, n_items) whose stored entries are the ratings.

        Row and column numbers are the ids. Stored zeros are ratings. An entry stored more than once is a duplicate,
        see :meth:`of`.
        """
        check_sparse(matrix, "the matrix of ratings")
        entries = matrix.tocoo()
        if max(entries.shape) > MAX_SIZE:
            raise DataError(
                f"the matrix of ratings has shape {entries.shape}, but at most {MAX_SIZE:,} users and items work"
            )
        check_size(ID_BYTES * sum(entries.shape), "the matrix of ratings", max_bytes())
        shape = [np.arange(length) for length in entries.shape]
        users, items = (np.asarray(numbers).astype(np.int32) for numbers in (entries.row, entries.col))
        table = cls(users, items, _as_ratings(entries.data), Ids(shape[0]), Ids(shape[1]))
        return table.without_duplicates(duplicates)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and of items, including those without ratings."""
        return len(self.user_ids), len(self.item_ids)

    def take(self, chosen: Any) -> Self:
        """Return a subset of the ratings; users and items keep their numbers."""
        times = None if self.times is None else self.times[chosen]
        return replace(
            self, users=self.users[chosen], items=self.items[chosen], values=self.values[chosen], times=times
        )

    def transposed(self) -> Self:
        """Return the table with users and items swapped."""
        return replace(self, users=self.items, items=self.users, user_ids=self.item_ids, item_ids=self.user_ids)

    def by_user(self) -> tuple[Indices, Array, Array]:
        """Return the start of the ratings of each user (n_users + 1,), and items and values sorted by user."""
        counts = np.zeros(self.shape[0], np.int64)
        count_keys(self.users, counts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        items, values = np.empty_like(self.items), np.empty_like(self.values)
        ranks = np.arange(self.shape[0])
        sort_by_user(ranks, self.users, self.items, self.values, starts[:-1].copy(), items, values)
        return starts, items, values

    def as_matrix(self) -> Any:
        """Return the ratings as a SciPy CSR array (n_users, n_items)."""
        from scipy.sparse import csr_array

        starts, items, values = self.by_user()
        return csr_array((values, items, starts), shape=self.shape)

    def without_duplicates(self, duplicates: Duplicates) -> Self:
        """Return the table with one rating per pair, see :meth:`of`."""
        if duplicates not in ("error", "last", "mean"):
            raise ParameterError(f"duplicates must be 'error', 'last' or 'mean', got {duplicates!r}")
        starts, items, _ = self.by_user()
        duplicate = first_duplicate(starts, items, np.full(self.shape[1], -1, np.int32))
        if duplicate < 0:
            return self
        if duplicates == "error":
            user = int(np.searchsorted(starts, duplicate, side="right")) - 1
            raise DataError(
                f"user {self.user_ids.values[user]!s} rates item {self.item_ids.values[items[duplicate]]!s} more than "
                "once: pass duplicates='last' (on the command line --duplicates last) to keep the last rating, or "
                "'mean' to average"
            )
        return self._last_ratings() if duplicates == "last" else self._mean_ratings()

    def _last_ratings(self) -> Self:
        moments = np.arange(len(self)) if self.times is None else self.times
        order = np.lexsort((np.arange(len(self)), moments, self._pairs()))
        pairs = self._pairs()[order]
        last = np.append(pairs[1:] != pairs[:-1], True)
        return self.take(np.sort(order[last]))

    def _mean_ratings(self) -> Self:
        _, first, group = np.unique(self._pairs(), return_index=True, return_inverse=True)
        means = np.bincount(group, self.values) / np.bincount(group)
        order = np.argsort(first, kind="stable")
        return replace(self.take(first[order]), values=means[order].astype(np.float32))

    def _pairs(self) -> Indices:
        return self.users.astype(np.int64) * self.shape[1] + self.items

    def fingerprint(self) -> str:
        """Return a hash of the shape and of all ratings."""
        digest = hashlib.sha256(repr(self.shape).encode())
        for array in (self.users, self.items, self.values):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _as_ratings(values: Array) -> Array:
    """Return ratings as float32, refusing NaN, infinity and overflow."""
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise DataError(f"ratings must be a sequence of numbers, got shape {values.shape} of {values.dtype}")
    with np.errstate(over="ignore"):  # overflow becomes infinity, refused below
        ratings = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(ratings))
    if len(bad) and np.isfinite(values[bad[0]]):
        raise DataError(
            f"rating number {bad[0]} is {values[bad[0]]}, beyond the {MAX_RATING:.2g} that float32 holds: "
            "divide the ratings by a constant"
        )
    if len(bad):
        raise DataError(f"rating number {bad[0]} is {values[bad[0]]}, but ratings must be finite: omit missing ratings")
    return ratings
