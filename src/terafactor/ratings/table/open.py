"""``open_ratings``: convert matrices, data frames, sequences and files to a rating table."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from terafactor.errors import DataError, DataTypeError, FitWarning, ParameterError
from terafactor.ratings.table.table import Duplicates, RatingTable

NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "customer_id", "customerid", "u"),
    "item": ("item", "item_id", "itemid", "movie", "movie_id", "movieid", "product_id", "i"),
    "rating": ("rating", "ratings", "score", "value", "stars", "r"),
    "time": ("timestamp", "time", "date"),
}
"""Recognized column names, ignoring case and the type suffix of RecBole (``:token``)."""

MIN_TRIPLETS = 10
"""Number of rows from which chance does not make ratings look like rows (user, item, rating)."""

MIN_DISTINCT = 0.9
"""Least share of distinct pairs in such rows; ratings of few items repeat pairs, because they have few values."""

LARGEST_SCALE = 100
"""Largest rating of usual scales."""


def open_ratings(X: Any, *, duplicates: Duplicates = "error", columns: Mapping[str, str] | None = None) -> RatingTable:
    """Convert ratings of any supported type to a :class:`RatingTable`.

    Parameters
    ----------
    X : sparse matrix, RatingTable, data frame, tuple, dense array, or path
        A SciPy sparse matrix of shape (n_users, n_items) whose stored entries are the ratings; a data frame with
        columns for user, item and rating; a tuple (users, items, ratings) or (users, items, ratings, times); a dense
        array of shape (n_users, n_items) with NaN for missing ratings (arrays with rows user, item, rating and
        perhaps time are refused; ambiguous ones give a warning); or a path that :func:`read_ratings` accepts.
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
    given = check_roles(given)
    free = [name for name in available if name not in given.values()]
    found = {role: name for role, name in (match_names(free) | given).items() if name not in (None, "")}
    if not available:
        raise DataError("the table has no columns: it needs columns for user, item and rating")
    shown = ", ".join(map(str, available))
    for role, name in found.items():
        if name not in available:
            raise DataError(f"there is no column {name!r} for {role}; the columns are {shown}")
        alike = [other for other in available if other == name or (role not in given and _alike(other, name))]
        if len(alike) > 1:
            raise DataError(
                f"several columns are recognized as {role}: {', '.join(map(str, alike))}; rename all but one"
            )
    missing = [role for role in needed if role not in found]
    if missing:
        raise DataError(
            f"no column is recognized as {missing[0]} among {shown}: "
            f"name it, as in columns={{{missing[0]!r}: {available[0]!r}}} "
            f"(on the command line --column {shlex.quote(f'{missing[0]}={available[0]}')})"
        )
    return found


def check_roles(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the columns named for some roles; refuse unknown roles, and a column for two roles."""
    chosen = dict(given or {})
    for role, name in chosen.items():
        if role not in NAMES:
            raise ParameterError(f"columns must have the keys {', '.join(NAMES)}, got {role!r} (in {chosen})")
        roles = [other for other, same in chosen.items() if same == name and name not in (None, "")]
        if len(roles) > 1:
            raise ParameterError(f"column {name!r} is named for {' and '.join(roles)}: name one column for each")
    return chosen


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


def _alike(one: Any, other: Any) -> bool:
    return _normalized(one) == _normalized(other)


def _from_frame(frame: Any, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    found = find_columns(list(frame.columns), columns)
    return RatingTable.of(*(frame[name] for name in found.values()), duplicates=duplicates)


def _from_dense(matrix: Any) -> RatingTable:
    from scipy.sparse import coo_array

    if matrix.dtype.kind not in "fiub":
        raise DataError(f"a dense array of ratings must hold numbers, got {matrix.dtype}: pass X.astype(float)")
    _check_not_triplets(matrix)
    users, items = np.nonzero(~np.isnan(matrix))
    values = matrix[users, items].astype(np.float64)  # SciPy knows no float16
    return RatingTable.from_matrix(coo_array((values, (users, items)), shape=matrix.shape))


def _check_not_triplets(matrix: Any) -> None:
    """Refuse an array with rows (user, item, rating) or (user, item, rating, time); warn if it may be one.

    The first two columns of such an array are integers and repeat few pairs, and they differ from the third: they are
    larger, or ratings have fractions.
    """
    n_rows, n_columns = matrix.shape
    if n_columns not in (3, 4) or not n_rows:
        return
    ids, ratings = matrix[:, :2].astype(np.float64), matrix[:, 2].astype(np.float64)
    ratings = ratings[np.isfinite(ratings)]
    if not np.isfinite(ids).all() or np.any(ids != np.rint(ids)) or ids.min() < 0:
        return
    if 2 * len(ratings) < n_rows or not ratings.any():
        return
    repeats_few = len(np.unique(ids @ [1, 1j])) >= MIN_DISTINCT * n_rows
    differs = bool(ids.max() > 2 * np.abs(ratings).max() or np.any(ratings != np.rint(ratings)))
    row = "(user, item, rating)" if n_columns == 3 else "(user, item, rating, time)"
    if differs and repeats_few and (n_rows >= MIN_TRIPLETS or ids.max(axis=0).min() > LARGEST_SCALE):
        raise DataError(
            f"X of shape {matrix.shape} looks like rows {row}, but a dense array must have one row per user and one "
            "column per item: pass the tuple of its columns, tuple(X.T), or scipy.sparse.coo_array(X) if X really "
            f"holds the ratings of {n_columns} items"
        )
    if differs or (repeats_few and n_rows >= MIN_TRIPLETS):
        warnings.warn(
            f"X of shape {matrix.shape} is taken for the ratings of {n_rows} users and {n_columns} items: if its rows "
            f"are {row}, pass the tuple of its columns, tuple(X.T)",
            FitWarning,
            stacklevel=2,
        )
