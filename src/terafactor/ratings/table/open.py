"""``open_ratings``: convert matrices, data frames, sequences and files to a rating table."""

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
"""Recognized column names, ignoring case and the type suffix of RecBole (``:token``)."""

MIN_TRIPLETS = 10
"""Number of rows from which an array is tested for rows (user, item, rating)."""


def open_ratings(X: Any, *, duplicates: Duplicates = "error", columns: Mapping[str, str] | None = None) -> RatingTable:
    """Convert ratings of any supported type to a :class:`RatingTable`.

    Parameters
    ----------
    X : sparse matrix, RatingTable, data frame, tuple, dense array, or path
        A SciPy sparse matrix of shape (n_users, n_items) whose stored entries are the ratings; a data frame with
        columns for user, item and rating; a tuple (users, items, ratings) or (users, items, ratings, times); a dense
        array of shape (n_users, n_items) with NaN for missing ratings (arrays with rows user, item, rating are
        refused); or a path that :func:`read_ratings` accepts.
    duplicates : {"error", "last", "mean"}, default="error"
        What to do if a user rates an item more than once.
    columns : mapping, optional
        Names of the columns "user", "item", "rating" and "time", if they are not recognized; "" ignores times.

    Returns
    -------
    RatingTable

    Examples
    --------
    >>> from terafactor.ratings import open_ratings
    >>> table = open_ratings((["ann", "bob", "bob"], ["dune", "dune", "heat"], [5, 3, 4]))
    >>> table.shape, len(table)
    ((2, 2), 3)
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
        "ratings must be a sparse matrix (n_users, n_items), a data frame or file with columns user, item and rating, "
        f"a tuple (users, items, ratings), or a dense array with NaN for missing ratings; got {type(X).__name__}"
    )


def find_columns(
    available: list[Any],
    given: Mapping[str, Any] | None = None,
    needed: tuple[str, ...] = ("user", "item", "rating"),
) -> dict[str, Any]:
    """Return the columns "user", "item", "rating" and "time" of a table; only those in ``needed`` must exist."""
    found = {
        role: name for role, name in (match_names(available) | dict(given or {})).items() if name not in (None, "")
    }
    if not available:
        raise DataError("the table has no columns: it needs columns for user, item and rating")
    shown = ", ".join(map(str, available))
    for role, name in found.items():
        if name not in available:
            raise DataError(f"there is no column {name!r} for {role}; the columns are {shown}")
    missing = [role for role in needed if role not in found]
    if missing:
        raise DataError(
            f"no column is recognized as {missing[0]} among {shown}: "
            f"name it, as in columns={{{missing[0]!r}: {available[0]!r}}} "
            f"(on the command line --column {shlex.quote(f'{missing[0]}={available[0]}')})"
        )
    return found


def match_names(available: list[Any], names: Mapping[str, tuple[str, ...]] = NAMES) -> dict[str, Any]:
    """Return the column recognized for each role in ``names``, None if there is none."""
    columns = {_normalized(name): name for name in reversed(available)}
    return {role: next((columns[name] for name in choices if name in columns), None) for role, choices in names.items()}


def find_pair(available: list[Any], given: Mapping[str, Any] | None = None) -> tuple[Any, Any] | None:
    """Return the user and item columns of a table of pairs, None if it has two columns and recognizes neither."""
    pair = {role: name for role, name in (given or {}).items() if role in ("user", "item")}
    names = {name for role in ("user", "item") for name in NAMES[role]}
    recognized = any(_normalized(name) in names or name in pair.values() for name in available)
    if len(available) == 2 and not recognized:
        return None
    found = find_columns(available, pair, needed=("user", "item"))
    return found["user"], found["item"]


def _normalized(name: Any) -> str:
    return str(name).split(":")[0].strip().lower()


def _from_frame(frame: Any, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    found = find_columns(list(frame.columns), columns)
    return RatingTable.of(*(frame[name] for name in found.values()), duplicates=duplicates)


def _from_dense(matrix: Any) -> RatingTable:
    from scipy.sparse import coo_array

    if _has_triplets(matrix):
        raise DataError(
            f"X of shape {matrix.shape} looks like rows (user, item, rating), but a dense array must have one row per "
            "user and one column per item: pass the tuple (X[:, 0], X[:, 1], X[:, 2]), or scipy.sparse.coo_array(X) if "
            "X really holds the ratings of three items"
        )
    users, items = np.nonzero(~np.isnan(matrix))
    return RatingTable.from_matrix(coo_array((matrix[users, items], (users, items)), shape=matrix.shape))


def _has_triplets(matrix: Any) -> bool:
    """Return whether an array looks like rows (user, item, rating): three columns, integer ids, no pair twice.

    A complete matrix of integer ratings of three items repeats pairs, because it has few distinct ratings.
    """
    if matrix.shape[1] != 3 or len(matrix) < MIN_TRIPLETS or not np.isfinite(matrix).all():
        return False
    ids = matrix[:, :2]
    return bool(np.all(ids == np.rint(ids))) and len(np.unique(ids, axis=0)) == len(ids)
