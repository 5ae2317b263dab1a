"""``MatrixCompletion``, a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from sklearn.base import BaseEstimator

from terafactor.ratings.panel import DirectionsPanel, NoSimilarityPanel
from terafactor.ratings.serving.serving import Serving
from terafactor.ratings.table.table import Duplicates
from terafactor.ratings.task import PartialRatingsTask, RatingsTask
from terafactor.report import Panel, ReportContext, Reporting
from terafactor.solver.callbacks import Callback
from terafactor.training.journal import FitJournal, Journal
from terafactor.training.model_file import ModelFileMixin
from terafactor.training.trainer import Trainer


class MatrixCompletion(Serving, ModelFileMixin, Reporting, BaseEstimator):
    r"""Predict the ratings that users did not give, by matrix completion of explicit ratings.

    A rating is modeled as ``mean + spread * code . factors``. By default the noise and the normal priors of codes and
    factors are learned with the model (variational Bayes), so there is nothing to tune. With a number for ``alpha``,
    the squared error plus a ridge penalty of ``alpha`` per rating on codes and factors is minimized instead.
    ``statistics="masked"`` is the algorithm of the paper.

    Parameters
    ----------
    n_components : int, default=30
        Number of factors, k.
    alpha : float or None, default=None
        Strength of the ridge penalty. None learns the regularization, one strength per direction (with "masked", None
        means 1.0). With "per_feature", alpha multiplies the number of ratings and is in units of their variance: values
        from 0.01 to 0.3 suit ratings of any scale. With "masked", it has the meaning of
        :class:`~terafactor.MaskedDictionaryLearning`: twice the lambda of the paper.
    statistics : {"per_feature", "masked"}, default="per_feature"
        "per_feature" keeps one Gram matrix of codes per item; "masked" is Algorithm 1 of the paper, on ratings minus
        user and item biases.
    explicit_biases : bool, default=False
        With "per_feature", whether two of the factors are restricted to biases of users and items. Useful if ratings
        are few.
    stream : {"users", "items"}, default="users"
        The side that is encoded in mini-batches; statistics are kept for the other side.
    codes : {"refit", "last"}, default="refit"
        With "masked", whether predictions use codes recomputed at the end ("refit") or from the last step of each user.
    projection : {"masked", "exact"}, default="masked"
        With "masked", how atoms are projected onto the ball.
    damping : float, default=0.0
        With "masked", the number of pseudo-ratings equal to the mean that are added to each user and item.
    forgetting : float, default=0.9
        With "masked", the weight of step t is ``t ** -forgetting``.
    memory : float, default=0.56
        With "per_feature", passes over the ratings in which the weight of a visit decays to 1 / e.
    batch_size : int or None, default=None
        Users per step; None uses a tenth of them, with "masked" a hundredth.
    n_epochs : float, default=8
        Passes over the ratings.
    clip : bool, default=True
        Whether to clip predictions to the range of the ratings seen.
    duplicates : {"error", "last", "mean"}, default="error"
        What to do if a user rates an item more than once.
    columns : mapping or None, default=None
        Names of the columns "user", "item", "rating" and "time" of files and data frames, if they are not recognized;
        "" ignores times.
    tol : float, default=0.0
        Stop if the relative change of the error between passes is at most this; 0 never stops early.
    max_time : float or None, default=None
        Stop after this many seconds.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the batches and of the initialization. The same integer gives the same bits for any number of threads.
    n_threads : int or None, default=None
        Number of threads; None uses all cores.
    callbacks : sequence of callables, default=()
        Called with a :class:`~terafactor.Snapshot` after every step; returning True stops the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_items)
        Factors of items.
    user_factors_ : ndarray of shape (n_users, n_components)
        Codes of users, in the order of ``users_``.
    user_biases_, item_biases_ : ndarray of shape (n_users,) or (n_items,)
        Biases added to the product of code and factors; zero with "per_feature", whose factors include them.
    mean_user_, mean_item_ : ndarray of shape (n_components,)
        Code used for unknown users, and factors used for unknown items; their biases are zero.
    users_, items_ : ndarray of shape (n_users,) or (n_items,)
        Ids of users and items; row and column numbers if the ratings were a matrix.
    range_ : tuple of float
        Lowest and highest rating seen.
    mean_rating_ : float
        Mean of the training ratings.
    spread_ : float
        Their standard deviation; 1 with "masked" and for constant ratings.
    noise_ : float
        Estimated standard deviation of the noise; NaN unless learned.
    history_ : list of Evaluation
        Progress of the fit; with ``validation``, its RMSE several times per pass.
    stopped_by_ : str
        "n_epochs", "tol", "max_time", "callback" or "interrupt".
    n_steps_ : int
        Number of steps.

    Examples
    --------
    >>> from terafactor import MatrixCompletion
    >>> users = ["ann", "ann", "bob", "bob", "eve", "eve"]
    >>> items = ["dune", "heat", "dune", "solo", "heat", "solo"]
    >>> model = MatrixCompletion(2, random_state=0).fit((users, items, [5, 4, 5, 1, 4, 1]))
    >>> model.recommend(["ann"], n=1)[0]
    array([['solo']], dtype='<U4')
    """

    _seed: int

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
        X : sparse matrix, RatingTable, data frame, tuple (users, items, ratings), dense array with NaN, or path
            Any type that :func:`~terafactor.ratings.open_ratings` accepts.
        y : ignored
        validation : ratings, optional
            Ratings of any of these types; ``history_`` records their RMSE.
        """
        Trainer(self._task(), FitJournal(validation)).fit(X)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from further ratings of known or new users; X may contain new items.

        A rating of a known pair replaces the earlier one, and other ratings of a user are kept. Ratings that the model
        has already learned from have no effect, so a call may be repeated. One step per ``batch_size`` users with new
        or changed ratings updates the items, and the codes of these users are computed from all of their ratings; codes
        of other users and, with "masked", biases of known items do not change. If a callback or Ctrl-C stops the call,
        all users of X get codes computed from the items learned so far. Ids are converted to the type of the model's,
        integers or text.

        With ``stream="items"`` the roles of users and items are swapped. Checkpoints, and models written by earlier
        versions, do not hold the ratings of users: a warning is logged if X has known users, whose codes are then
        computed from X alone.

        Parameters
        ----------
        X : ratings
            Any type that :meth:`fit` accepts.
        y : ignored
        """
        if not hasattr(self, "_state"):
            return self.fit(X)
        Trainer(PartialRatingsTask(self), Journal()).fit(X)
        return self

    def panels(self) -> Sequence[Panel]:
        """Return the report panels that replace those about atoms."""
        return (DirectionsPanel(), NoSimilarityPanel())

    def _task(self) -> RatingsTask:
        return RatingsTask(self)

    def _report_context(self, X: Any = None, *, title: str | None = None, **details: Any) -> ReportContext:
        """Return the content of a report; rows of ratings are not shown."""
        users, items = self._ids
        facts = {
            "users": f"{len(users):,}",
            "items": f"{len(items):,}",
            "range": f"{self.range_[0]:g} to {self.range_[1]:g}",
        }
        found: dict[str, Any] = {
            "data": facts, "objective_name": RatingsTask.objective_name, "objective_is_error": True,
            "row_name": self.stream, "feature_name": "items", "atom_name": "factors",
            "feature_names": [str(item) for item in items.values],
        }  # fmt: skip
        if "data" in details:  # that of the run
            names = {"rows": "users", "features": "items"}
            details["data"] = {names.get(name, name): value for name, value in details["data"].items()}
        if self.stream == "items" and details.get("stopped_by", "") is None:
            found["components"] = None  # until the run ends, its atoms are factors of users
        return super()._report_context(None, title=title, **(found | details))
