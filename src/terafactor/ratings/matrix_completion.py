"""Matrix completion as a scikit-learn estimator."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from terafactor._random import resolve_seed
from terafactor._threads import Executor
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.holdout import HeldOut, hold_out_ratings
from terafactor.ratings.method import Method
from terafactor.ratings.metrics import rmse
from terafactor.ratings.model import Codes
from terafactor.ratings.parameters import check_parameters, method_of
from terafactor.ratings.recommend import Seen
from terafactor.ratings.storing import Storing
from terafactor.ratings.table import Duplicates, RatingTable
from terafactor.runs.failure import unless_it_fails
from terafactor.solver.callbacks import Callback, Recorder
from terafactor.solver.interrupt import InterruptGuard
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.position import Position

logger = logging.getLogger("terafactor")


class MatrixCompletion(Storing):
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
        What is coded in batches; the other side has the statistics. It is also what ``partial_fit`` takes rows of.
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
        What to do when a user rates an item more than once.
    columns : mapping or None, default=None
        Which columns of files and frames are "user", "item", "rating" and "time", when their names do not tell; ""
        leaves times out.
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
    user_biases_, item_biases_ : ndarray of shape (n_users,) or (n_items,)
        What is added to the product of code and factors; zero but with "masked", since factors tell all.
    mean_user_, mean_item_ : ndarray of shape (n_components,)
        Code and factors of a user and an item that are not known; their bias is zero.
    users_, items_ : ndarray
        Ids of users and items. Of a matrix these are row and column numbers.
    range_ : tuple of float
        Lowest and highest rating seen.
    mean_rating_ : float
        Mean of the ratings learned from.
    spread_ : float
        Their standard deviation, which codes and factors are in units of; 1 with "masked" and for equal ratings.
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
        check_parameters(self)
        table = self.open_data(X)
        seed = resolve_seed(self.random_state)
        held_out = None if validation is None else HeldOut(table, _numbered(self._open(validation), table))
        objective = None if held_out is None else self._objective(held_out, seed)
        recorder = Recorder(objective, audience=self.callbacks)
        with unless_it_fails(self):
            guard = self._learn(table, seed, [recorder])
        self.history_ = recorder.history
        self.stopped_by_ = "interrupt" if guard.requested else recorder.stopped_by
        guard.raise_if_requested()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of users, new ones or known ones whose ratings changed; new items are taken in, too.

        A row is all the ratings of its user: known users are what their row says from now on. Users are taken in the
        order of their ids, ``batch_size`` at a time. With ``stream="items"`` items and users change places: X has all
        the ratings of some items, known or new, and new users are taken in.

        What is not in X stays as it is: codes of other users, and with "masked" the biases of items that had ratings.
        Where a callback or Ctrl-C stops it, all users of X are known, by what items learned until then.

        Parameters
        ----------
        X : what :meth:`fit` takes
        y : ignored
        """
        if not hasattr(self, "_state"):
            return self.fit(X)
        with unless_it_fails(self):
            guard = self._learn_more(X)
        guard.raise_if_requested()
        return self

    def _learn_more(self, X: Any) -> InterruptGuard:
        check_parameters(self)
        self._check_unchanged()
        table = self._numbered_further(self.open_data(X))
        rows, seen = self._streamed(table), self._seen
        seen = seen.transposed(len(self.items_)) if self.stream == "items" else seen
        method, present = self._method(self._seed), np.unique(rows.users)
        with self._told() as (told, guard):
            self._state = method.learn_more(self._state, rows, np.diff(seen.starts) > 0, told)
        with Executor(method.n_threads) as executor:
            codes = method.codes(self._state, rows, executor).after(self._codes_streamed(), present)
        self._set_model(self._completed(method.model(self._state), codes), table.user_ids, table.item_ids)
        seen = seen.with_rows(Seen.of(rows), present, rows.shape[0])
        self._seen = seen.transposed(rows.shape[1]) if self.stream == "items" else seen
        low, high = self.range_
        self.range_ = (min(low, float(table.values.min())), max(high, float(table.values.max())))
        return guard

    def _check_unchanged(self) -> None:
        """Refuse to learn more with parameters for which what was learned has another form."""
        for name, before in self._learned_with.items():
            if getattr(self, name) != before:
                raise ParameterError(
                    f"{name} is {getattr(self, name)!r} but the model was learned with {before!r}: "
                    "set it back, or call fit to start anew"
                )

    def _numbered_further(self, given: RatingTable) -> RatingTable:
        """Return ratings by the numbers of the users and items known, new ones coming after these."""
        user_ids, users = self._known[0].extended(given.user_ids.values)
        item_ids, items = self._known[1].extended(given.item_ids.values)
        numbers = (users[given.users].astype(np.int32), items[given.items].astype(np.int32))
        return RatingTable(*numbers, given.values, user_ids, item_ids, given.times)

    def _streamed(self, table: RatingTable) -> RatingTable:
        """Return ratings with what is coded in the place of users."""
        return table.transposed() if self.stream == "items" else table

    def _codes_streamed(self) -> Codes:
        """Return what the model knows of users, or of items where these are streamed."""
        model = self._model
        if self.stream == "items":
            return Codes(model.item_factors, model.item_variances, model.item_biases)
        return Codes(model.user_factors, np.zeros_like(model.user_factors), model.user_biases)

    def _method(self, seed: int) -> Method:
        return method_of(self, seed)

    def learn(
        self,
        data: RatingTable,
        *,
        seed: int,
        callbacks: Sequence[Callback] = (),
        start: Position | None = None,
        elapsed: Elapsed | None = None,
    ) -> Self:
        """Fit to an opened table: see :meth:`terafactor.runs.Trainable.learn`."""
        self._learn(data, seed, callbacks, start=None if start is None else start.part("state"), elapsed=elapsed)
        return self

    def _learn(self, table: RatingTable, seed: int, callbacks: Sequence[Callback], **beginning: Any) -> InterruptGuard:
        """Learn, and keep what was learned, whatever ended it."""
        method, self._seed = self._method(seed), seed
        rows = self._streamed(table)
        self._ids = (table.user_ids, table.item_ids)
        self.range_ = low, high = (float(table.values.min()), float(table.values.max()))
        if low == high:
            logger.warning(
                "all ratings are %g, and so will be all predictions: there is nothing to learn from equal ratings, "
                "as clicks or purchases are that are counted as ones", low,
            )  # fmt: skip
        with self._told(callbacks) as (told, guard):
            self._state = method.learn(rows, told, **beginning)
        with Executor(method.n_threads) as executor:
            codes = method.codes(self._state, rows, executor)
        self._set_model(self._completed(method.model(self._state), codes), table.user_ids, table.item_ids)
        self._seen = Seen.of(table)
        return guard

    @contextlib.contextmanager
    def _told(self, callbacks: Sequence[Callback] = ()) -> Generator[tuple[list[Callback], InterruptGuard], None, None]:
        """Give all that a loop calls back: the callbacks given, one's own, a progress bar, and the guard of Ctrl-C."""
        with contextlib.ExitStack() as stack:
            shown = [stack.enter_context(contextlib.closing(_progress_bar()))] if self.verbose else []
            guard = stack.enter_context(InterruptGuard())
            yield [*callbacks, *self.callbacks, *shown, guard], guard

    def open_data(self, X: Any) -> RatingTable:
        """Return the table that ``learn`` takes."""
        table = self._open(X)
        if not len(table):
            raise DataError(f"there is no rating among {table.shape[0]} users and {table.shape[1]} items")
        return table

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
        known, asked = self._streamed(held_out.known), self._streamed(held_out.ratings)
        wanted = np.zeros(known.shape[0], bool)
        wanted[asked.users[asked.users >= 0]] = True
        rows = known.take(wanted[known.users]).by_user()
        model_of = method.watching(known)
        low, high = (float(bound(held_out.known.values)) for bound in (np.min, np.max))

        def objective(learner: Learner) -> float:
            with Executor(method.n_threads) as executor:
                model = model_of(learner)
                predicted = model.with_users(model.encode(*rows, executor)).predict(asked.users, asked.items, executor)
            return rmse(np.clip(predicted, low, high) if self.clip else predicted, asked.values)

        return objective


def _numbered(table: RatingTable, known: RatingTable) -> RatingTable:
    """Return ratings by the numbers of another table, -1 for users and items that it does not have."""
    users = known.user_ids.find(table.user_ids.values)[table.users]
    items = known.item_ids.find(table.item_ids.values)[table.items]
    return RatingTable(
        users.astype(np.int32), items.astype(np.int32), table.values, known.user_ids, known.item_ids, table.times
    )


def _progress_bar() -> Any:
    from terafactor.solver.progress import ProgressBar

    return ProgressBar()
