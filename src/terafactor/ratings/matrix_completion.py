"""Matrix completion as a scikit-learn estimator."""

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
        X : sparse matrix, table, data frame, tuple (users, items, ratings), dense matrix with NaN, or path
            What :func:`~terafactor.ratings.open_ratings` takes.
        y : ignored
        validation : the same, optional
            Ratings on which ``history_`` records the RMSE.
        """
        Trainer(self._task(), FitJournal(validation)).fit(X)
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
        Trainer(PartialRatingsTask(self), Journal()).fit(X)
        return self

    def panels(self) -> Sequence[Panel]:
        """Return what reports show in the place of atoms."""
        return (DirectionsPanel(), NoSimilarityPanel())

    def _task(self) -> RatingsTask:
        return RatingsTask(self)

    def _report_context(self, X: Any = None, *, title: str | None = None, **details: Any) -> ReportContext:
        """Return what a report is made from; rows of ratings are not shown one by one."""
        users, items = self._ids
        facts = {
            "users": f"{len(users):,}",
            "items": f"{len(items):,}",
            "range": f"{self.range_[0]:g} to {self.range_[1]:g}",
        }
        found: dict[str, Any] = {
            "data": facts, "objective_name": "RMSE on held-out ratings", "objective_is_error": True,
            "feature_names": [str(item) for item in items.values],
        }  # fmt: skip
        if self.stream == "items" and details.get("stopped_by", "") is None:
            found["components"] = None  # while such a run goes on, what it has are factors of users
        return super()._report_context(None, title=title, **(found | details))
