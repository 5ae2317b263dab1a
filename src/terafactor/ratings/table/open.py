"""Ratings from whatever a user has."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from terafactor.errors import DataError, DataTypeError
from terafactor.ratings.table.table import Duplicates, RatingTable

NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "customer_id", "customerid", "u"),
    "item": ("item", "item_id", "itemid", "movie", "movie_id", "movieid", "product_id", "i"),
    "rating": ("rating", "ratings", "score", "value", "stars", "r"),
    "time": ("timestamp", "time", "date"),
}
"""Names under which columns are recognized, whatever their case and the type that RecBole appends (``:token``)."""


def open_ratings(X: Any, *, duplicates: Duplicates = "error", columns: Mapping[str, str] | None = None) -> RatingTable:
    """Return the ratings of a sparse matrix, a table, a data frame, three sequences, a dense matrix or a file.

    Parameters
    ----------
    X : what holds ratings
        A SciPy sparse matrix (users, items), of which stored entries are ratings; a :class:`RatingTable`; a data frame
        with columns for user, item and rating; a tuple (users, items, ratings) or (users, items, ratings, times); a
        dense matrix (users, items) with NaN where there is no rating; or the path of a file.
    duplicates : {"error", "last", "mean"}
        What to do when a user rates an item twice.
    columns : mapping, optional
        Which columns are "user", "item", "rating" and "time", when their names do not tell; "" leaves times out.
    """
    if isinstance(X, RatingTable):
        return X
    if isinstance(X, str | os.PathLike):
        from terafactor.ratings.readers import read_ratings

        return read_ratings(os.fspath(X), duplicates=duplicates, columns=columns)
    if hasattr(X, "tocoo"):
        return RatingTable.from_matrix(X, duplicates=duplicates)
    if isinstance(X, tuple) and len(X) in (3, 4):
        return RatingTable.of(*X, duplicates=duplicates)
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        return _from_frame(X, duplicates, columns)
    if isinstance(X, np.ndarray) and X.ndim == 2:
        return _from_dense(X)
    raise DataTypeError(
        f"ratings must be a sparse matrix (users, items), a data frame or file with columns user, item and rating, "
        f"a tuple of these three, or a dense matrix with NaN where there is no rating; got {type(X).__name__}"
    )


def find_columns(
    available: list[Any],
    asked: Mapping[str, Any] | None = None,
    needed: tuple[str, ...] = ("user", "item", "rating"),
) -> dict[str, Any]:
    """Return which of the columns are "user", "item", "rating" and "time"; those not needed may be absent."""
    told = told_by_name(available) | dict(asked or {})
    found = {role: name for role, name in told.items() if name not in (None, "")}
    there = ", ".join(map(str, available))
    for role, name in found.items():
        if name not in available:
            raise DataError(f"there is no column {name!r} for {role}; there are {there}")
    missing = [role for role in needed if role not in found]
    if missing:
        raise DataError(
            f"no column is recognized as {missing[0]} among {there}: "
            f"say which, as in columns={{{missing[0]!r}: {available[0]!r}}} "
            f"(on the command line --column {shlex.quote(f'{missing[0]}={available[0]}')})"
        )
    return found


def told_by_name(available: list[Any], names: Mapping[str, tuple[str, ...]] = NAMES) -> dict[str, Any]:
    """Return which column is what by its name, None where no name tells, in the order of ``names``."""
    known = {_plain(name): name for name in reversed(available)}
    return {role: next((known[name] for name in choices if name in known), None) for role, choices in names.items()}


def find_pair(available: list[Any], asked: Mapping[str, Any] | None = None) -> tuple[Any, Any] | None:
    """Return which columns of a table of pairs are user and item; None where it has two that are neither by name."""
    wanted = {role: name for role, name in (asked or {}).items() if role in ("user", "item")}
    names = {name for role in ("user", "item") for name in NAMES[role]}
    told = any(_plain(name) in names or name in wanted.values() for name in available)
    if len(available) == 2 and not told:
        return None
    found = find_columns(available, wanted, needed=("user", "item"))
    return found["user"], found["item"]


def _plain(name: Any) -> str:
    return str(name).split(":")[0].strip().lower()


def _from_frame(frame: Any, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    found = find_columns(list(frame.columns), columns)
    return RatingTable.of(*(frame[name] for name in found.values()), duplicates=duplicates)


def _from_dense(matrix: Any) -> RatingTable:
    from scipy.sparse import coo_array

    users, items = np.nonzero(~np.isnan(matrix))
    return RatingTable.from_matrix(coo_array((matrix[users, items], (users, items)), shape=matrix.shape))
