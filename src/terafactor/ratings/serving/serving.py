"""What a fitted model of ratings answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from terafactor._threads import Executor, resolve_threads
from terafactor._typing import Array, is_number
from terafactor.data.sources.sparse import check_sparse
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.serving.recommend import Seen, best_items, most_similar
from terafactor.ratings.table.ids import Ids, as_ids
from terafactor.ratings.table.open import find_pair, open_ratings
from terafactor.ratings.table.table import Duplicates, RatingTable

logger = logging.getLogger("terafactor")

LEARNED_WITH = ("n_components", "statistics", "explicit_biases", "stream")
"""Parameters that decide what is learned, not how."""


class Serving:
    """Mixin of estimators that learned a :class:`RatingModel`: predictions, codes, recommendations."""

    n_components: int
    n_threads: int | None
    clip: bool
    duplicates: Duplicates
    columns: Mapping[str, str] | None
    users_: Array
    items_: Array
    range_: tuple[float, float]
    _model: RatingModel
    _seen: Seen
    _state: Any
    _ids: tuple[Ids, Ids]
    """Of users and items that are being learned from."""

    _known: tuple[Ids, Ids]
    """Of users and items that the model knows; while it is fitted anew, still those it had."""

    _learned_with: dict[str, Any]

    def predict(self, X: Any) -> Any:
        """Return predicted ratings.

        Parameters
        ----------
        X : tuple (users, items), data frame, array of shape (n, 2), list of pairs, or sparse matrix (users, items)
            Ids of pairs, or a matrix whose stored entries say which pairs. Columns of a data frame are found by their
            names as in :meth:`fit`, others being ignored; two columns of other names are user and item.

        Returns
        -------
        ndarray of shape (n,), or a sparse matrix with the entries of X
            A user or item that is not known is taken for an average one. Where none is known, or where none of the
            users or items is and ids are of another type than those of the model, the log has a warning.
        """
        check_is_fitted(self, "users_")
        if hasattr(X, "tocoo"):
            from scipy.sparse import csr_array

            check_sparse(X, "X")
            entries = X.tocoo(copy=True)
            entries.sum_duplicates()  # or the predictions of one entry would be added up
            values = self._predict(*self._numbers(entries.row, entries.col))
            return csr_array((values, (entries.row, entries.col)), shape=X.shape)
        users, items = _pairs(X, self.columns)
        return self._predict(*self._numbers(users, items))

    def transform(self, X: Any) -> Array:
        """Return the codes of the users of X from their ratings there, one small system each.

        Users need not be known; items that are not known are passed over.

        Parameters
        ----------
        X : what :meth:`fit` takes

        Returns
        -------
        ndarray of shape (n_users, n_components)
            In the order of the rows of a matrix, or of the ids of users in ascending order.
        """
        check_is_fitted(self, "users_")
        return self._fold_in(self._open(X)).factors[:, : self.n_components]

    def recommend(
        self, users: Any = None, n: int = 10, *, histories: Any = None, exclude_seen: bool = True, allowed: Any = None
    ) -> tuple[Array, Array]:
        """Return the items with the highest predicted ratings.

        Parameters
        ----------
        users : sequence of ids, optional
            Known users; one who is not known gets what suits the average user. By default all users, in the order of
            ``users_``.
        n : int, default=10
            How many items.
        histories : ratings, optional
            Instead of ``users``: ratings of users who need not be known, in any form that :meth:`fit` takes.
        exclude_seen : bool, default=True
            Whether items that the user rated are left out.
        allowed : sequence of item ids, optional
            The items that may be recommended; those that are not known are passed over.

        Returns
        -------
        items : ndarray of shape (n_users, n)
            Their ids, best first; -1, or "" where ids are text, where there is no further item.
        ratings : ndarray of shape (n_users, n)
            Predicted ratings, clipped as those of :meth:`predict`; NaN where there is no further item.
        """
        check_is_fitted(self, "users_")
        _check_count(n)
        if histories is not None:
            table = self._with_known_items(self._open(histories))
            codes, seen = self._fold_in(table), Seen.of(table)
        else:
            numbers = np.arange(len(self.users_)) if users is None else self._known[0].find(users)
            codes, seen = self._model.codes_of(numbers), self._seen.take(numbers)
        if not exclude_seen:
            seen = Seen.nothing(len(codes.factors))
        candidates = None if allowed is None else np.unique(self._known[1].find(allowed))
        candidates = candidates if candidates is None else candidates[candidates >= 0]
        with Executor(resolve_threads(self.n_threads)) as executor:
            found, scores = best_items(self._model, codes.factors, seen, int(n), candidates, executor)
        ratings = self._model.offset + self._model.scale * (scores + codes.biases[:, np.newaxis].astype(np.float64))
        return self._known[1].take(found), self._clipped(ratings)

    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, Array]:
        """Return the items whose factors point most in the same direction.

        Parameters
        ----------
        items : sequence of item ids
        n : int, default=10
            How many, the item itself left out; fewer where there are no more.

        Returns
        -------
        items : ndarray of shape (n_items, n)
        cosines : ndarray of shape (n_items, n)
        """
        check_is_fitted(self, "users_")
        _check_count(n)
        numbers = self._known[1].find(items)
        if np.any(numbers < 0):
            unknown = np.asarray(items, object)[numbers < 0][0]
            raise DataError(f"item {unknown!r} is not known: the model has {len(self.items_)} items, see items_")
        found, cosines = most_similar(self._model.item_shapes(), numbers, int(n))
        return self.items_[found], cosines

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the RMSE of the predictions of the ratings in X: higher is better."""
        check_is_fitted(self, "users_")
        table = self._open(X)
        users, items = table.user_ids.values[table.users], table.item_ids.values[table.items]
        return -rmse(self._predict(*self._numbers(users, items)), table.values)

    def _predict(self, users: Array, items: Array) -> Array:
        with Executor(resolve_threads(self.n_threads)) as executor:
            return self._clipped(self._model.predict(users, items, executor))

    def _clipped(self, ratings: Array) -> Array:
        return np.clip(ratings, *self.range_) if self.clip else ratings

    def _numbers(self, users: Any, items: Any) -> tuple[Array, Array]:
        """Return the numbers of users and items, with a warning where ids are likely to be of another kind."""
        asked = as_ids(users), as_ids(items)
        found = self._known[0].find(asked[0]), self._known[1].find(asked[1])
        nobody = [len(numbers) > 0 and numbers.max() < 0 for numbers in found]
        for role, known, ids, none in zip(("user", "item"), self._known, asked, nobody, strict=True):
            # a new user beside items that are known is no mistake, while text beside integers is
            if none and len(known) and (all(nobody) or ids.dtype.kind != known.values.dtype.kind):
                given, had = ids[:1].tolist()[0], known.values[:1].tolist()[0]
                logger.warning(
                    "no %s is known, so all are average: ids given are %s like %r, those of the model %s like %r", role,
                    type(given).__name__, given, type(had).__name__, had,
                )  # fmt: skip
        return found

    def _with_known_items(self, table: RatingTable) -> RatingTable:
        """Return the ratings of items that the model knows, by its numbers."""
        numbers = self._known[1].find(table.item_ids.values)[table.items]
        known = numbers >= 0
        return RatingTable(
            table.users[known], numbers[known].astype(np.int32), table.values[known], table.user_ids, self._known[1]
        )

    def _fold_in(self, table: RatingTable) -> Codes:
        starts, items, values = self._with_known_items(table).by_user()
        with Executor(resolve_threads(self.n_threads)) as executor:
            return self._model.encode(starts, items, values, executor)

    def _set_model(self, model: RatingModel, users: Ids, items: Ids) -> None:
        k = int(self.n_components)
        self._model, self._ids, self._known = model, (users, items), (users, items)
        self._learned_with = {name: getattr(self, name) for name in LEARNED_WITH}
        self.users_, self.items_ = users.values, items.values
        self.components_ = model.item_factors[:, :k].T
        self.user_factors_ = model.user_factors[:, :k]
        self.item_biases_, self.user_biases_ = model.item_biases, model.user_biases
        self.mean_item_, self.mean_user_ = model.item_prior.mean, model.user_prior.mean
        self.noise_ = model.scale * math.sqrt(model.noise) if model.alpha is None else math.nan
        self.mean_rating_, self.spread_ = model.offset, model.scale
        self.n_steps_ = self._state.n_steps

    def _open(self, X: Any) -> RatingTable:
        return open_ratings(X, duplicates=self.duplicates, columns=self.columns)

    def _open_rated(self, X: Any) -> RatingTable:
        """Return a table with at least one rating."""
        table = self._open(X)
        if not len(table):
            raise DataError(f"there is no rating among {table.shape[0]} users and {table.shape[1]} items")
        return table


def _check_count(n: Any) -> None:
    if not (is_number(n, Integral) and n >= 1):
        raise ParameterError(f"n must be an integer >= 1, got {n!r}")


def _pairs(X: Any, columns: Mapping[str, str] | None) -> tuple[Any, Any]:
    """Return users and items of pairs."""
    if isinstance(X, tuple) and len(X) == 2:
        return X
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        found = find_pair(list(X.columns), columns)
        if found is not None:
            return X[found[0]], X[found[1]]
    pairs = np.asarray(X, object if isinstance(X, list) else None)  # NumPy would turn 1 beside "a" into text
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DataError(f"pairs must be a tuple (users, items) or an array of shape (n, 2), got shape {pairs.shape}")
    return pairs[:, 0], pairs[:, 1]
