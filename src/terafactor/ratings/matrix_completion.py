"""Matrix completion as a scikit-learn estimator."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from terafactor._random import resolve_seed
from terafactor._threads import Executor, resolve_threads
from terafactor._typing import Array, is_number
from terafactor.errors import DataError, ParameterError
from terafactor.estimators.model_file import ModelFileMixin, known_parameters
from terafactor.ratings.holdout import HeldOut, hold_out_ratings
from terafactor.ratings.ids import Ids
from terafactor.ratings.masked import MaskedMethod
from terafactor.ratings.method import Method
from terafactor.ratings.metrics import rmse
from terafactor.ratings.model import Codes, RatingModel
from terafactor.ratings.open import open_ratings
from terafactor.ratings.per_feature import PerFeatureMethod
from terafactor.ratings.recommend import Seen, best_items, most_similar
from terafactor.ratings.reporting import RatingsReporting
from terafactor.ratings.table import Duplicates, RatingTable
from terafactor.runs.artifact import Artifact
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.callbacks import Callback, Recorder
from terafactor.solver.interrupt import InterruptGuard
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.position import Position

MASKED_ALPHA = 1.0
"""Strength of the paper's method on ratings from 1 to 5, by cross-validation."""


class MatrixCompletion(ModelFileMixin, RatingsReporting, BaseEstimator):
    r"""Predict the ratings that users would give, from those they gave. For explicit ratings, not for clicks.

    A rating is ``mean + spread * code . factors``. By default every user and item is as certain as its ratings make
    it: noise, and what users and items are like before any rating, are learned along, so there is nothing to tune.
    With a number for ``alpha`` the squared error is minimised instead, with a ridge of ``alpha`` per rating on codes
    and factors. ``statistics="masked"`` is the method of the paper.

    Parameters
    ----------
    n_components : int, default=30
        Number of factors, k.
    alpha : float or None, default=None
        Strength of the ridge. None learns it, one per direction (for "masked", it is 1.0). With "per_feature" it
        multiplies the number of ratings, in units of their standard deviation: 0.01 to 0.3 makes sense for ratings of
        any scale. With "masked" it is that of :class:`~terafactor.MaskedDictionaryLearning`, twice the paper's lambda.
    statistics : {"per_feature", "masked"}, default="per_feature"
        "per_feature" keeps for each item what the codes of its own users say; "masked" is Algorithm 1 of the paper, on
        ratings centred by alternated means of users and items.
    explicit_biases : bool, default=False
        With "per_feature", whether two of the factors stay biases of users and items and nothing else. Of use when
        ratings are few.
    stream : {"users", "items"}, default="users"
        What is coded in batches; the other side has the statistics.
    codes : {"refit", "last"}, default="refit"
        With "masked", whether users are predicted by codes computed at the end or by those of their last step.
    projection : {"masked", "exact"}, default="masked"
        With "masked", how atoms return to the ball.
    damping : float, default=0.0
        With "masked", ratings of the mean that each user and item is believed to have had.
    forgetting : float, default=0.9
        With "masked", the weight of step t is ``t ** -forgetting``.
    memory : float, default=0.56
        With "per_feature", passes over the ratings after which a visit weighs 1 / e of what it did.
    batch_size : int or None, default=None
        Users per step; None takes a tenth of them, a hundredth with "masked".
    n_epochs : float, default=8
        Passes over the ratings.
    clip : bool, default=True
        Whether predictions stay within the range of the ratings seen.
    duplicates : {"error", "last", "mean"}, default="error"
        What to do when a user rates an item more than once, in files, frames and tuples.
    columns : mapping or None, default=None
        Which columns of files and frames are "user", "item", "rating" and "time", when their names do not tell.
    tol : float, default=0.0
        Stop when the error changes by less than this from pass to pass, relatively; 0 never does.
    max_time : float or None, default=None
        Seconds after which the fit stops.
    random_state : int, RandomState or None, default=None
        Seed of batches and of the start. The same integer gives the same bits, for any number of threads.
    n_threads : int or None, default=None
        Threads; None uses all cores.
    callbacks : sequence of callables, default=()
        Each is called with a :class:`~terafactor.Snapshot` after every step; returning True stops the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_items)
        Factors of items.
    user_factors_ : ndarray of shape (n_users, n_components)
        Codes of users, in the order of ``users_``.
    users_, items_ : ndarray
        Ids of users and items. Of a matrix these are row and column numbers.
    range_ : tuple of float
        Lowest and highest rating seen.
    mean_rating_ : float
        Mean of the ratings learned from.
    noise_ : float
        Estimated standard deviation of ratings around the model; NaN unless learned.
    history_ : list of Evaluation
        How the fit went; with ``validation``, the RMSE on it several times per pass.
    stopped_by_ : str
        "n_epochs", "tol", "max_time", "callback" or "interrupt".
    n_steps_ : int
        Steps done.

    Examples
    --------
    >>> from terafactor import MatrixCompletion
    >>> users = ["ann", "ann", "bob", "bob", "eve", "eve"]
    >>> items = ["dune", "heat", "dune", "solo", "heat", "solo"]
    >>> model = MatrixCompletion(2, random_state=0).fit((users, items, [5, 4, 5, 1, 4, 1]))
    >>> model.recommend(["ann"], n=1)[0]
    array([['solo']], dtype='<U4')
    """

    kind = "MatrixCompletion"
    range_: tuple[float, float]
    _state: Any
    _seen: Seen

    def __init__(
        self,
        n_components: int = 30,
        *,
        alpha: float | None = None,
        statistics: Literal["per_feature", "masked"] = "per_feature",
        explicit_biases: bool = False,
        stream: Literal["users", "items"] = "users",
        codes: Literal["refit", "last"] = "refit",
        projection: Literal["masked", "exact"] = "masked",
        damping: float = 0.0,
        forgetting: float = 0.9,
        memory: float = 0.56,
        batch_size: int | None = None,
        n_epochs: float = 8,
        clip: bool = True,
        duplicates: Duplicates = "error",
        columns: Mapping[str, str] | None = None,
        tol: float = 0.0,
        max_time: float | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.statistics = statistics
        self.explicit_biases = explicit_biases
        self.stream = stream
        self.codes = codes
        self.projection = projection
        self.damping = damping
        self.forgetting = forgetting
        self.memory = memory
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.clip = clip
        self.duplicates = duplicates
        self.columns = columns
        self.tol = tol
        self.max_time = max_time
        self.random_state = random_state
        self.n_threads = n_threads
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn from ratings.

        Parameters
        ----------
        X : sparse matrix, table, data frame, tuple (users, items, ratings), dense matrix with NaN, or path
            What :func:`~terafactor.ratings.open_ratings` takes.
        y : ignored
        validation : the same, optional
            Ratings on which ``history_`` records the RMSE.
        """
        table = self.open_data(X)
        seed = resolve_seed(self.random_state)
        held_out = None if validation is None else HeldOut(table, _numbered(self._open(validation), table))
        recorder = Recorder(None if held_out is None else self._objective(held_out, seed))
        guard = self._learn(table, seed, [recorder])
        self.history_ = recorder.history
        self.stopped_by_ = "interrupt" if guard.requested else recorder.stopped_by
        guard.raise_if_requested()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of users, new ones or known ones whose ratings changed; new items are taken in, too.

        A row is all the ratings of its user: known users are what their row says from now on. Users are taken in the
        order of their ids, ``batch_size`` at a time.

        Parameters
        ----------
        X : what :meth:`fit` takes
        y : ignored
        """
        if not hasattr(self, "_state"):
            return self.fit(X)
        if self.statistics != "per_feature" or self.stream != "users":
            raise ParameterError(
                "partial_fit is for statistics='per_feature' and stream='users': call fit with all ratings instead"
            )
        given = self.open_data(X)
        user_ids, users = Ids(self.users_).extended(given.user_ids.values)
        item_ids, items = Ids(self.items_).extended(given.item_ids.values)
        numbers = (users[given.users].astype(np.int32), items[given.items].astype(np.int32))
        rows = RatingTable(*numbers, given.values, user_ids, item_ids, given.times)
        method = self._method(self._seed)
        known = self._seen.starts[1:] > self._seen.starts[:-1]
        self._state.grown(len(item_ids))
        self._state.expect(rows, known)
        method.learn_more(self._state, rows)  # type: ignore[attr-defined]
        present = np.unique(rows.users)
        self._set_model(self._known_users(method, rows, present), user_ids, item_ids)
        self._seen = self._seen.with_rows(Seen.of(rows), present, len(user_ids))
        low, high = self.range_
        self.range_ = (min(low, float(rows.values.min())), max(high, float(rows.values.max())))
        return self

    def predict(self, X: Any) -> Any:
        """Return predicted ratings.

        Parameters
        ----------
        X : tuple (users, items), array of shape (n, 2), or sparse matrix (users, items)
            Ids of pairs, or a matrix whose stored entries say which pairs.

        Returns
        -------
        ndarray of shape (n,), or a sparse matrix with the entries of X
            A user or item that is not known is taken for an average one.
        """
        check_is_fitted(self, "users_")
        if hasattr(X, "tocoo"):
            from scipy.sparse import csr_array

            entries = X.tocoo()
            values = self._predict(*self._numbers(entries.row, entries.col))
            return csr_array((values, (entries.row, entries.col)), shape=X.shape)
        users, items = _pairs(X)
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
            Their ids, best first. Where fewer are left, the last ids repeat the first column with a NaN rating.
        ratings : ndarray of shape (n_users, n)
            Predicted ratings, clipped as those of :meth:`predict`; NaN where there is no further item.
        """
        check_is_fitted(self, "users_")
        if not (is_number(n, Integral) and n >= 1):
            raise ParameterError(f"n must be an integer >= 1, got {n!r}")
        if histories is not None:
            table = self._with_known_items(self._open(histories))
            codes, seen = self._fold_in(table), Seen.of(table)
        else:
            numbers = np.arange(len(self.users_)) if users is None else Ids(self.users_).find(users)
            codes, seen = self._codes_of(numbers), self._seen.take(numbers)
        if not exclude_seen:
            seen = Seen.nothing(len(codes.factors))
        candidates = None if allowed is None else np.unique(Ids(self.items_).find(allowed))
        candidates = candidates if candidates is None else candidates[candidates >= 0]
        with Executor(resolve_threads(self.n_threads)) as executor:
            found, scores = best_items(self._model, codes.factors, seen, int(n), candidates, executor)
        ratings = self._model.offset + self._model.scale * (scores + codes.biases[:, np.newaxis].astype(np.float64))
        return self.items_[np.where(found < 0, found[:, :1], found)], self._clipped(ratings)

    def similar_items(self, items: Any, n: int = 10) -> tuple[Array, Array]:
        """Return the items whose factors point most in the same direction.

        Parameters
        ----------
        items : sequence of item ids
        n : int, default=10
            How many, the item itself left out.

        Returns
        -------
        items : ndarray of shape (n_items, n)
        cosines : ndarray of shape (n_items, n)
        """
        check_is_fitted(self, "users_")
        numbers = Ids(self.items_).find(items)
        if np.any(numbers < 0):
            unknown = np.asarray(items, object)[numbers < 0][0]
            raise DataError(f"item {unknown!r} is not known: the model has {len(self.items_)} items, see items_")
        found, cosines = most_similar(self._model.item_shapes(), numbers, n)
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
        return Ids(self.users_).find(users), Ids(self.items_).find(items)

    def _with_known_items(self, table: RatingTable) -> RatingTable:
        """Return the ratings of items that the model knows, by its numbers."""
        numbers = Ids(self.items_).find(table.item_ids.values)[table.items]
        known = numbers >= 0
        return RatingTable(
            table.users[known], numbers[known].astype(np.int32), table.values[known], table.user_ids, Ids(self.items_)
        )

    def _fold_in(self, table: RatingTable) -> Codes:
        starts, items, values = self._with_known_items(table).by_user()
        with Executor(resolve_threads(self.n_threads)) as executor:
            return self._model.encode(starts, items, values, executor)

    def _codes_of(self, users: Array) -> Codes:
        """Return the codes of known users by number; -1 is the average user."""
        factors, biases = self._model.users_and_stranger()
        return Codes(np.ascontiguousarray(factors[users]), np.zeros((0, 0), np.float32), biases[users])

    def _method(self, seed: int) -> Method:
        """Return how to learn, with every parameter checked."""
        self._check()
        common: dict[str, Any] = {
            "n_components": int(self.n_components), "seed": seed, "batch_size": self.batch_size,
            "n_epochs": self.n_epochs, "tol": self.tol, "max_time": self.max_time,
            "n_threads": resolve_threads(self.n_threads),
        }  # fmt: skip
        if self.statistics == "per_feature":
            return PerFeatureMethod(alpha=self.alpha, memory=self.memory, pinned=self.explicit_biases, **common)
        return MaskedMethod(
            alpha=MASKED_ALPHA if self.alpha is None else self.alpha, projection=self.projection,
            damping=self.damping, refit=self.codes == "refit", forgetting=self.forgetting, **common,
        )  # fmt: skip

    def _check(self) -> None:
        """Refuse parameters that cannot work; the solver checks those that only it knows."""
        _one_of("statistics", self.statistics, "per_feature", "masked")
        _one_of("stream", self.stream, "users", "items")
        _one_of("codes", self.codes, "refit", "last")
        least = 2 if self.explicit_biases else 1
        if not (is_number(self.n_components, Integral) and self.n_components >= least):
            reason = " (explicit_biases takes two of them)" if least == 2 else ""
            raise ParameterError(f"n_components must be an integer >= {least}, got {self.n_components!r}{reason}")
        if self.alpha is not None and not (is_number(self.alpha, Real) and 0 < self.alpha < math.inf):
            raise ParameterError(f"alpha must be a number > 0, or None to learn it, got {self.alpha!r}")
        if self.batch_size is not None and not (is_number(self.batch_size, Integral) and self.batch_size >= 1):
            raise ParameterError(f"batch_size must be an integer >= 1 or None, got {self.batch_size!r}")
        for name, value in (("memory", self.memory), ("n_epochs", self.n_epochs), ("max_time", self.max_time or 1)):
            if not (is_number(value, Real) and 0 < value < math.inf):
                raise ParameterError(f"{name} must be a number > 0, got {value!r}")
        for name, value in (("damping", self.damping), ("tol", self.tol)):
            if not (is_number(value, Real) and 0 <= value < math.inf):
                raise ParameterError(f"{name} must be a number >= 0, got {value!r}")

    def learn(
        self,
        data: RatingTable,
        *,
        seed: int,
        callbacks: Sequence[Callback] = (),
        start: Position | None = None,
        elapsed: Elapsed | None = None,
    ) -> Self:
        """Fit to an opened table, from the beginning or from a position: what :func:`terafactor.train` calls.

        Parameters
        ----------
        data : RatingTable
        seed : int
            What ``random_state`` stands for.
        callbacks : sequence of Callback
            Called after those of the estimator.
        start : Position, optional
            Where an interrupted fit stood.
        elapsed : Elapsed, optional
            Time and bytes that it had used up.
        """
        self._learn(data, seed, callbacks, start=None if start is None else start.part("state"), elapsed=elapsed)
        return self

    def _learn(self, table: RatingTable, seed: int, callbacks: Sequence[Callback], **beginning: Any) -> InterruptGuard:
        """Learn, and keep what was learned, whatever ended it."""
        method, self._seed = self._method(seed), seed
        rows = table.transposed() if self.stream == "items" else table
        self._ids = (table.user_ids, table.item_ids)
        with contextlib.ExitStack() as stack:
            shown = [stack.enter_context(contextlib.closing(_progress_bar()))] if self.verbose else []
            guard = stack.enter_context(InterruptGuard())
            self._state = method.learn(rows, [*self.callbacks, *callbacks, *shown, guard], **beginning)
        with Executor(method.n_threads) as executor:
            codes = method.codes(self._state, rows, executor)
        model = method.model(self._state)
        model = model.with_users(codes) if self.stream == "users" else model.turned_round(codes)
        self._set_model(model, table.user_ids, table.item_ids)
        self._seen = Seen.of(table)
        self.range_ = (float(table.values.min()), float(table.values.max()))
        return guard

    def _known_users(self, method: Method, rows: RatingTable, present: Array) -> RatingModel:
        """Return the model of the state with the users that were known and those of new rows."""
        model = method.model(self._state)
        fresh = model.encode(*rows.by_user(), executor=Executor())
        factors, biases = np.zeros_like(fresh.factors), np.zeros_like(fresh.biases)
        n_before = len(self._model.user_factors)
        factors[:n_before], biases[:n_before] = self._model.user_factors, self._model.user_biases
        factors[present], biases[present] = fresh.factors[present], fresh.biases[present]
        return model.with_users(Codes(factors, np.zeros((0, 0), np.float32), biases))

    def _set_model(self, model: RatingModel, users: Ids, items: Ids) -> None:
        k = int(self.n_components)
        self._model = model
        self.users_, self.items_ = users.values, items.values
        self.components_ = model.item_factors[:, :k].T
        self.user_factors_ = model.user_factors[:, :k]
        self.noise_ = model.scale * math.sqrt(model.noise) if model.alpha is None else math.nan
        self.mean_rating_ = model.offset
        self.n_steps_ = self._state.n_steps

    def open_data(self, X: Any) -> RatingTable:
        """Return the table that ``learn`` takes."""
        table = self._open(X)
        if not len(table):
            raise DataError(f"there is no rating among {table.shape[0]} users and {table.shape[1]} items")
        return table

    def _open(self, X: Any) -> RatingTable:
        return open_ratings(X, duplicates=self.duplicates, columns=self.columns)

    def describe_data(self, data: RatingTable) -> dict[str, Any]:
        """Return numbers of users, items and ratings, and the fingerprint of a table."""
        return {"shape": list(data.shape), "ratings": len(data), "fingerprint": data.fingerprint()}

    def hold_out(self, data: RatingTable, amount: Any, seed: int) -> tuple[RatingTable, HeldOut | None, dict[str, Any]]:
        """Return ratings to learn from, ratings to evaluate on, and what tells the choice again."""
        return hold_out_ratings(data, amount, seed)

    def held_out_objective(self, held_out: HeldOut) -> Callable[[Learner], float]:
        """Return what computes the RMSE of a learner on held-out ratings."""
        return self._objective(held_out, 0)

    def _objective(self, held_out: HeldOut, seed: int) -> Callable[[Learner], float]:
        method = self._method(seed)
        known, asked = held_out.known, held_out.ratings
        if self.stream == "items":
            known, asked = known.transposed(), asked.transposed()
        rows = known.by_user()
        low, high = (float(bound(held_out.known.values)) for bound in (np.min, np.max))

        def objective(learner: Learner) -> float:
            with Executor(method.n_threads) as executor:
                model = method.current(learner, known)
                predicted = model.with_users(model.encode(*rows, executor)).predict(asked.users, asked.items, executor)
            return rmse(np.clip(predicted, low, high) if self.clip else predicted, asked.values)

        return objective

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model, or a position of the fit that is running, as what a file holds."""
        numbers: dict[str, Any] = {"seed": self._seed}
        parts = {"users": self._ids[0].position(), "items": self._ids[1].position()}
        if position is None:
            check_is_fitted(self, "users_")
            numbers |= {"low": self.range_[0], "high": self.range_[1]}
            parts |= {"users": Ids(self.users_).position(), "items": Ids(self.items_).position()}
            parts |= {"state": self._state.position(), "model": self._model.position()}
            parts["seen"] = Position({}, {"starts": self._seen.starts, "items": self._seen.items})
        else:
            parts["state"] = position
        for name, part in parts.items():
            numbers |= {f"{name}.{key}": value for key, value in part.numbers.items()}
        arrays = {f"{name}.{key}": array for name, part in parts.items() for key, array in part.arrays.items()}
        return Artifact(self.kind, plain_parameters(self.get_params(deep=False)), Position(numbers, arrays))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the model that a file holds, ready to predict, recommend and learn more."""
        estimator, position = cls(**known_parameters(cls, artifact)), artifact.position
        estimator._seed = position.number("seed")
        method = estimator._method(estimator._seed)
        estimator._state = method.at(position.part("state"))
        users, items = Ids.at(position.part("users")), Ids.at(position.part("items"))
        estimator._ids = (users, items)
        if "model.item_factors" not in position.arrays:
            raise DataError("a checkpoint of ratings has no codes of users: finish the run with terafactor resume")
        model = RatingModel.at(position.part("model"), int(estimator.n_components))
        if (len(model.user_factors), len(model.item_factors)) != (len(users), len(items)):
            raise DataError("the file has other numbers of users or items than ids: it is not ours")
        estimator._set_model(model, users, items)
        estimator.range_ = (position.number("low", float), position.number("high", float))
        seen = position.part("seen")
        estimator._seen = Seen(
            seen.array("starts", (len(users) + 1,), np.int64), seen.array("items", (None,), np.int32)
        )
        return estimator


def _numbered(table: RatingTable, known: RatingTable) -> RatingTable:
    """Return ratings by the numbers of another table, -1 for users and items that it does not have."""
    users = known.user_ids.find(table.user_ids.values)[table.users]
    items = known.item_ids.find(table.item_ids.values)[table.items]
    return RatingTable(
        users.astype(np.int32), items.astype(np.int32), table.values, known.user_ids, known.item_ids, table.times
    )


def _pairs(X: Any) -> tuple[Any, Any]:
    """Return users and items of pairs."""
    if isinstance(X, tuple) and len(X) == 2:
        return X
    pairs = np.asarray(X)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DataError(f"pairs must be a tuple (users, items) or an array of shape (n, 2), got shape {pairs.shape}")
    return pairs[:, 0], pairs[:, 1]


def _one_of(name: str, value: object, *choices: str) -> None:
    if value not in choices:
        raise ParameterError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


def _progress_bar() -> Any:
    from terafactor.solver.progress import ProgressBar

    return ProgressBar()
