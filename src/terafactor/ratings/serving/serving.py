"""Methods of a fitted estimator: predictions, codes, recommendations, similar items."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from terafactor._threads import Threads, resolve_threads
from terafactor._typing import Array, Indices, is_number
from terafactor.data.sources.sparse import check_sparse
from terafactor.errors import DataError, ParameterError
from terafactor.kernels.jit import announcing_compilation
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.serving.recommend import best_items, most_similar
from terafactor.ratings.table.history import RatingHistory
from terafactor.ratings.table.ids import Ids, as_ids
from terafactor.ratings.table.open import find_pair, open_ratings
from terafactor.ratings.table.table import Duplicates, RatingTable

logger = logging.getLogger("terafactor")

STRUCTURAL = ("n_components", "statistics", "explicit_biases", "stream")
"""Parameters that determine the form of the learned state: ``partial_fit`` cannot change them."""


class Serving:
    """Mixin of estimators that hold a :class:`RatingModel`."""

    n_components: int
    n_threads: int | None
    clip: bool
    duplicates: Duplicates
    columns: Mapping[str, str] | None
    users_: Array
    items_: Array
    range_: tuple[float, float]
    _model: RatingModel
    _history: RatingHistory
    _state: Any
    _ids: tuple[Ids, Ids]
    """Users and items of the ratings being learned from."""

    _known: tuple[Ids, Ids]
    """Users and items of the model; during a new fit, still those of the previous one."""

    _fitted_with: dict[str, Any]
    """Values of the ``STRUCTURAL`` parameters."""

    @announcing_compilation("ratings")
    def predict(self, X: Any) -> Any:
        """Predict the ratings of pairs.

        Parameters
        ----------
        X : tuple (users, items), data frame, array of shape (n, 2), list of pairs, or sparse matrix
            Ids of the pairs, or a sparse matrix of shape (n_users, n_items) whose stored entries are the pairs. The
            columns of a data frame are recognized as in :meth:`fit` and others are ignored; if it has two columns and
            neither is recognized, they are user and item.

        Returns
        -------
        ndarray of shape (n,), or a sparse matrix with the entries of X
            Unknown users and items are predicted as average ones. A warning is logged if all pairs are unknown, or if
            all users or all items are unknown and their ids have another type than those of the model.
        """
        check_is_fitted(self, "users_")
        if hasattr(X, "tocoo"):
            from scipy.sparse import csr_array

            check_sparse(X, "X")
            entries = X.tocoo(copy=True)
            entries.sum_duplicates()  # otherwise csr_array sums the predictions of a repeated entry
            values = self._predict(*self._numbers(entries.row, entries.col))
            return csr_array((values, (entries.row, entries.col)), shape=X.shape)
        users, items = _pairs(X, self.columns)
        return self._predict(*self._numbers(users, items))

    @announcing_compilation("ratings")
    def transform(self, X: Any) -> Array:
        """Compute the codes of users, known or not, from their ratings in X. Unknown items are ignored.

        Parameters
        ----------
        X : ratings
            Any type that :meth:`fit` accepts.

        Returns
        -------
        ndarray of shape (n_users, n_components)
            In the order of the rows of a matrix, otherwise of the sorted user ids.
        """
        check_is_fitted(self, "users_")
        return self._encode(self._open(X)).factors[:, : self.n_components]

    @announcing_compilation("ratings")
    def recommend(
        self, users: Any = None, n: int = 10, *, histories: Any = None, exclude_seen: bool = True, allowed: Any = None
    ) -> tuple[Array, Array]:
        """Recommend the items with the highest predicted ratings.

        Parameters
        ----------
        users : sequence of ids, optional
            By default all known users, in the order of ``users_``. Unknown users get the items of the average user.
        n : int, default=10
            Number of items per user; at most all items of the model.
        histories : ratings, optional
            Instead of ``users``: ratings of users, known or not, of any type that :meth:`fit` accepts.
        exclude_seen : bool, default=True
            Whether to exclude items that the user has rated, including held-out ratings of a run.
        allowed : sequence of item ids, optional
            Candidate items; by default all. Unknown items are ignored.

        Returns
        -------
        items : ndarray of shape (n_users, n)
            Item ids, best first, ties in the order of ``items_``. If fewer than n items are left, the list is padded
            with -1, or with "" if ids are text.
        ratings : ndarray of shape (n_users, n)
            Predicted ratings, clipped as by :meth:`predict`; NaN for padding.
        """
        check_is_fitted(self, "users_")
        _check_count(n)
        if histories is not None:
            table = self._with_known_items(self._open(histories))
            codes, seen = self._encode(table), RatingHistory.of(table)
        else:
            numbers = np.arange(len(self.users_)) if users is None else self._user_numbers(users)
            codes, seen = self._model.codes_of(numbers), self._history.take(numbers)
        excluded = seen if exclude_seen else RatingHistory.empty(len(codes.factors))
        candidates = None if allowed is None else np.unique(self._known[1].find(allowed))
        candidates = candidates if candidates is None else candidates[candidates >= 0]
        return self._recommend(codes, excluded, min(int(n), len(self.items_)), candidates)

    def _recommend(
        self, codes: Codes, excluded: RatingHistory, n: int, candidates: Indices | None = None
    ) -> tuple[Array, Array]:
        model = self._model
        with Threads(resolve_threads(self.n_threads)) as threads:
            found, scores = best_items(
                codes.factors, model.item_factors, model.item_biases, excluded, n, candidates, threads
            )
        ratings = model.offset + model.scale * (scores + codes.biases[:, np.newaxis].astype(np.float64))
        return self._known[1].take(found), self._clipped(ratings)

    @announcing_compilation("ratings")
    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, Array]:
        """Return the items whose centered factors have the largest cosine similarity.

        Parameters
        ----------
        items : sequence of item ids
        n : int, default=10
            Number of similar items, without the item itself; at most all others.

        Returns
        -------
        items : ndarray of shape (n_items, n)
            Ids, most similar first.
        cosines : ndarray of shape (n_items, n)
            Cosine similarities.
        """
        check_is_fitted(self, "users_")
        _check_count(n)
        numbers = self._known[1].find(items)
        if np.any(numbers < 0):
            unknown = np.asarray(items, object)[numbers < 0][0]
            raise DataError(f"item {unknown!r} is unknown: the model has {len(self.items_)} items, see items_")
        with Threads(resolve_threads(self.n_threads)) as threads:
            found, cosines = most_similar(self._model.centered_item_factors(), numbers, int(n), threads)
        return self.items_[found], cosines

    @announcing_compilation("ratings")
    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative RMSE on the ratings in X: higher is better."""
        check_is_fitted(self, "users_")
        table = self._open(X)
        users, items = table.user_ids.values[table.users], table.item_ids.values[table.items]
        return -rmse(self._predict(*self._numbers(users, items)), table.values)

    def _predict(self, users: Array, items: Array) -> Array:
        with Threads(resolve_threads(self.n_threads)) as threads:
            return self._clipped(self._model.predict(users, items, threads))

    def _clipped(self, ratings: Array) -> Array:
        return np.clip(ratings, *self.range_) if self.clip else ratings

    def _numbers(self, users: Any, items: Any) -> tuple[Array, Array]:
        """Return the numbers of users and items, and warn if the ids seem to have the wrong type."""
        given = as_ids(users), as_ids(items)
        if len(given[0]) != len(given[1]):
            raise DataError(f"users and items must have the same length, got {len(given[0])} and {len(given[1])}")
        found = self._known[0].find(given[0]), self._known[1].find(given[1])
        all_unknown = [len(numbers) > 0 and numbers.max() < 0 for numbers in found]
        for role, known, ids, unknown in zip(("user", "item"), self._known, given, all_unknown, strict=True):
            # New users with known items are legitimate; text ids for integer ids are a mistake.
            if unknown and len(known) and (all(all_unknown) or ids.dtype.kind != known.values.dtype.kind):
                self._warn_unknown(role, known, ids, "average predictions")
        return found

    def _warn_unknown(self, role: str, known: Ids, given: Array, instead: str) -> None:
        example, expected = given[:1].tolist()[0], known.values[:1].tolist()[0]
        logger.warning(
            "no %s is known, so all get %s: %r is none of the %d ids of the model, such as %r",
            role, instead, example, len(known), expected,
        )  # fmt: skip

    def _user_numbers(self, users: Any) -> Array:
        """Return the numbers of users, and warn if none is known."""
        given = as_ids(users)
        numbers = self._known[0].find(given)
        if len(numbers) and numbers.max() < 0 and len(self._known[0]):
            self._warn_unknown("user", self._known[0], given, "items for the average user")
        return numbers

    def _with_known_items(self, table: RatingTable) -> RatingTable:
        """Return the ratings of known items, with the item numbers of the model."""
        numbers = self._known[1].find(table.item_ids.values)[table.items]
        known = numbers >= 0
        return RatingTable(
            table.users[known], numbers[known].astype(np.int32), table.values[known], table.user_ids, self._known[1]
        )

    def _encode(self, table: RatingTable) -> Codes:
        starts, items, values = self._with_known_items(table).by_user()
        with Threads(resolve_threads(self.n_threads)) as threads:
            return self._model.encode(starts, items, values, threads)

    def _set_model(self, model: RatingModel, users: Ids, items: Ids) -> None:
        k = int(self.n_components)
        self._model, self._ids, self._known = model, (users, items), (users, items)
        self._fitted_with = {name: getattr(self, name) for name in STRUCTURAL}
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
        """Open ratings, refusing a table without any."""
        table = self._open(X)
        if not len(table):
            raise DataError(
                f"X has {table.shape[0]} users and {table.shape[1]} items, but no rating: pass at least one rating"
            )
        return table


def _check_count(n: Any) -> None:
    if not (is_number(n, Integral) and n >= 1):
        raise ParameterError(f"n must be an integer >= 1, got {n!r}")


def _pairs(X: Any, columns: Mapping[str, str] | None) -> tuple[Any, Any]:
    """Return the users and the items of pairs."""
    if isinstance(X, tuple) and len(X) == 2:
        return X
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        found = find_pair(list(X.columns), columns)
        if found is not None:
            return X[found[0]], X[found[1]]
    pairs = np.asarray(X, object if isinstance(X, list) else None)  # NumPy would convert [1, "a"] to text
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DataError(f"pairs must be a tuple (users, items) or an array of shape (n, 2), got shape {pairs.shape}")
    return pairs[:, 0], pairs[:, 1]
