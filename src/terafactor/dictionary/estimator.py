"""Masked online dictionary learning as a scikit-learn estimator."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array

from terafactor import solver
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.data.masks import masks_of
from terafactor.data.output import open_matrix
from terafactor.data.sources.sparse import check_sparse
from terafactor.dictionary.parameters import check_usable, options_of, problem_of, upgrade
from terafactor.dictionary.partial_fit import PartialFitTask
from terafactor.dictionary.rows import KEPT_DTYPES, rows_of
from terafactor.dictionary.task import DictionaryTask, resolved_problem
from terafactor.errors import DataError, ParameterError
from terafactor.problem import NormBall, Penalty, RandomMasks
from terafactor.report import Reporting
from terafactor.solver import State
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.solver.convergence import CONVERGED, describe_progress
from terafactor.solver.plan import Plan
from terafactor.solver.progress import RowsProgress
from terafactor.training.journal import FitJournal, Journal
from terafactor.training.model_file import ModelFileMixin
from terafactor.training.trainer import Trainer


def bypass_set_output(estimator: Any) -> Any:
    """Class decorator: exempt codes on disk and sparse codes from ``set_output``, which would load or refuse them."""
    wrapped = estimator.transform  # scikit-learn wraps it when the class is created
    plain = inspect.unwrap(wrapped)

    @functools.wraps(plain)
    def transform(self: Any, X: Any, *, out: str | Path | None = None, sparse: bool = False) -> Any:
        return wrapped(self, X) if out is None and not sparse else plain(self, X, out=out, sparse=sparse)

    estimator.transform = transform
    return estimator


@bypass_set_output
class MaskedDictionaryLearning(
    ModelFileMixin, Reporting, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Factorize a matrix that is huge in both dimensions, ``X ~ codes @ components``.

    Minimizes over atoms D in a ball the mean over rows x of ``min over a of 1/2 |x - a D|^2 + alpha * Omega(a)``. Each
    step uses ``batch_size`` rows.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms, k.
    alpha : float or "auto", default="auto"
        Strength of the penalty on codes. "auto" adapts to the scale of X: for "l1", a fifth of the smallest alpha for
        which the median row has a zero code; for "l2", a tenth of the squared norm of an atom; 0 if both codes and
        atoms are non-negative. ``alpha_`` is the value used.
    penalty : str or Penalty, default="l1"
        Omega: "l1" for sparse codes, "l2" for dense codes, or another penalty by name or as an object.
    constraint : str or NormBall, default="l2"
        The ball that contains every atom; "l1" makes atoms sparse.
    positive_code, positive_dict : bool, default=False
        Whether codes, or atoms, must be >= 0.
    reduction : "auto", float or RandomMasks, default="auto"
        Each step uses 1 / reduction of the features, a random mask of them, as in the paper; :class:`RandomMasks` has
        the variants. "auto" is 1, the online algorithm of Mairal et al. (2010): in a study on seven data sets,
        fits with 8 read more than it to come within 1 % of its final objective, or did not come there.
    shards : int or "auto", default="auto"
        Number of shards: parts of the rows from which the model learns separately, in rounds, and merges the results.
        Shards may run at the same time, on threads or on a cluster (:mod:`terafactor.dask`). Like the batch size, the
        number changes the result; where shards run does not. "auto" is 1, which means no rounds; on a cluster, it is
        the number of threads of its workers when the fit starts. ``shards_`` is the value used.
    round_steps : int or "auto", default="auto"
        Steps of each shard in a round. "auto" depends on ``n_components``, and is between 5 and 20. ``round_steps_`` is
        the value used.
    batch_size : int or "auto", default="auto"
        Rows per step. "auto" is twice ``n_components``, at least 32, but fewer if these rows would take more than
        256 MB. ``batch_size_`` is the value used.
    n_epochs : float or "auto", default="auto"
        Passes over the rows. "auto" learns until convergence, but at most 200 passes or 20 000 rows per atom, and at
        most one pass over data on disk of more than 8 GB.
    forgetting : float or "auto", default="auto"
        How fast the statistics forget old rows. "auto" averages over the last ``sqrt(2 * n_components * rows seen)``
        rows, at most half a pass, and over more rows if masks or missing values hide features. A number between 0.5
        (excluded) and 1 gives step t the weight ``t ** -forgetting`` of the paper; 1 forgets nothing.
    tol : float or "auto", default="auto"
        Stop when doubling the number of rows seen lowers the objective on a sample of rows by less than this
        share; 0 never stops. "auto" is 0.005 with ``n_epochs="auto"``, and 0 with a number of passes.
    max_time : float or None, default=None
        Seconds after which the fit stops, including evaluations and callbacks.
    init : ndarray of shape (n_components, n_features), fitted estimator, or None, default=None
        Initial atoms, projected on the ball. None uses the first rows visited.
    missing : {None, "nan", "absent"}, default=None
        None refuses NaN; "nan" treats NaN as missing values; "absent" treats the entries that a sparse matrix does not
        store as missing values rather than zeros.
    random_state : int, RandomState, Generator or None, default=None
        Seed of masks and row order. The same integer gives the same bits for any number of threads.
    n_threads : int or None, default=None
        Number of threads; None uses all cores.
    callbacks : sequence of callables, default=()
        Each is called with a :class:`~terafactor.solver.Snapshot` after every step; returning True stops the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms.
    atom_energy_ : ndarray of shape (n_components,)
        How much each atom is used: the mean over recent rows of ``a_j^2 |d_j|^2``. ``np.argsort(-atom_energy_)`` lists
        the atoms by use.
    history_ : list of Evaluation
        History of the fit, with the objective on the ``validation`` rows several times per epoch.
    geometry_ : tuple of int or None
        Shape of a row as an image, if the source has one.
    statistics_ : str
        The kind of statistics used.
    reduction_ : float
        The reduction used.
    shards_, round_steps_ : int
        The shards, and their steps per round.
    stopped_by_ : str
        "tol" (converged), "n_epochs", "max_time", "callback" or "interrupt".
    alpha_ : float
        The strength of the penalty used.
    batch_size_ : int
        The rows per step used.
    n_iter_ : int
        Passes over the rows, rounded up.
    n_steps_ : int
        Steps done.
    feature_counts_ : ndarray of shape (n_features,)
        Number of rows in which each feature was used.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if X has string column names, such as those of a data frame or a Parquet file.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((200, 50))
    >>> estimator = MaskedDictionaryLearning(n_components=5, reduction=2, n_epochs=3, random_state=0).fit(X)
    >>> estimator.transform(X).shape
    (200, 5)
    """

    components_: Array
    history_: list[Evaluation]
    geometry_: tuple[int, ...] | None
    statistics_: str
    reduction_: float
    shards_: int
    round_steps_: int
    stopped_by_: str | None
    alpha_: float
    batch_size_: int
    n_iter_: int
    n_steps_: int
    feature_counts_: Array
    n_features_in_: int
    feature_names_in_: Array
    _state: State
    _seed: int
    _constraint: NormBall
    """Ball that contains the atoms of the state."""

    _n_rows: int
    """Rows of a pass."""

    def __init__(
        self,
        n_components: int = 20,
        *,
        alpha: float | Literal["auto"] = "auto",
        penalty: str | Penalty = "l1",
        constraint: str | NormBall = "l2",
        positive_code: bool = False,
        positive_dict: bool = False,
        reduction: float | Literal["auto"] | RandomMasks = "auto",
        shards: int | Literal["auto"] = "auto",
        round_steps: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        n_epochs: float | Literal["auto"] = "auto",
        forgetting: float | Literal["auto"] = "auto",
        tol: float | Literal["auto"] = "auto",
        max_time: float | None = None,
        init: Any = None,
        missing: Literal["nan", "absent"] | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.penalty = penalty
        self.constraint = constraint
        self.positive_code = positive_code
        self.positive_dict = positive_dict
        self.reduction = reduction
        self.shards = shards
        self.round_steps = round_steps
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.forgetting = forgetting
        self.tol = tol
        self.max_time = max_time
        self.init = init
        self.missing = missing
        self.random_state = random_state
        self.n_threads = n_threads
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn the atoms from the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), MatrixSource, or anything else that open_source takes
        y : ignored
        validation : array-like of shape (n_rows, n_features) or MatrixSource, optional
            Held-out rows. ``history_`` records the objective on them.
        """
        Trainer(self._task(), FitJournal(validation)).fit(X)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more rows, in the order given, ``batch_size`` per step; the last step may have fewer.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features) or MatrixSource
        y : ignored
        """
        Trainer(PartialFitTask(self), Journal()).fit(X)
        return self

    def transform(self, X: Any, *, out: str | Path | None = None, sparse: bool = False) -> Any:
        """Return the codes of the rows of X, an array of shape (n_samples, n_components).

        The code of a row without any observed value is zero.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), MatrixSource, or anything else that open_source takes
        out : path, optional
            A new ``.npy`` file or ``.zarr`` array to write the codes to as they are computed. It is returned as a
            read-only memory map or Zarr array, regardless of ``set_output``.
        sparse : bool, default=False
            Return a ``scipy.sparse.csr_array``, which stores nonzero codes only.

        Examples
        --------
        >>> import numpy as np
        >>> from terafactor import MaskedDictionaryLearning
        >>> X = np.random.default_rng(0).standard_normal((100, 20))
        >>> model = MaskedDictionaryLearning(n_components=5, random_state=0).fit(X)
        >>> codes = model.transform(X, sparse=True)
        >>> np.array_equal(codes.toarray(), model.transform(X))
        True
        """
        check_usable(self)
        if out is not None and sparse:
            raise ParameterError("out= writes dense codes: pass either out= or sparse=True")
        source = rows_of(self, X, reset=False)
        arguments = (source, self.components_, problem_of(self), resolve_threads(self.n_threads))
        with contextlib.ExitStack() as stack:
            options: dict[str, Any] = {"missing": self.missing is not None}
            if self.verbose:
                options["progress"] = stack.enter_context(RowsProgress("encoding", source.shape[0]))
            if out is None:
                return solver.encode(*arguments, **options, sparse=sparse)
            solver.encode_to(out, *arguments, **options)
        return open_matrix(out)

    def fit_transform(self, X: Any, y: Any = None, *, sparse: bool = False, **parameters: Any) -> Any:
        """Call :meth:`fit` with X and ``parameters``, and return the :meth:`transform` of X, as CSR if ``sparse``."""
        return self.fit(X, y, **parameters).transform(X, sparse=sparse)

    def inverse_transform(self, X: Any) -> Array:
        """Return ``codes @ components_``, the reconstruction of the rows, including their missing values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_components)
            The codes.
        """
        check_usable(self)
        if issparse(X):
            check_sparse(X, "codes")
        codes = check_array(X, accept_sparse="csr", dtype=KEPT_DTYPES, input_name="codes")
        if codes.shape[1] != len(self.components_):
            raise DataError(f"codes have {codes.shape[1]} columns, but the model has {len(self.components_)} atoms")
        return np.asarray(codes @ self.components_)

    def objective(self, X: Any) -> float:
        """Return the mean over the rows of X of ``1/2 |x - a D|^2 + alpha * Omega(a)``, with optimal codes a.

        With missing values, the first term is computed on the s observed features and scaled by p / s. Rows without
        any value are excluded; if no row has a value, the result is NaN.

        Parameters
        ----------
        X
            As in :meth:`transform`.
        """
        check_usable(self)
        source = rows_of(self, X, reset=False)
        n_threads, missing = resolve_threads(self.n_threads), self.missing is not None
        return solver.objective(source, self.components_, problem_of(self), n_threads, missing=missing)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative :meth:`objective` of X: model selection requires that higher is better.

        Compare models with the same ``penalty`` and ``alpha`` only. The penalty is part of the objective, so a search
        over alpha would pick the smallest.
        """
        return -self.objective(X)

    def plan(self, X: Any, *, workers: int | None = None, bandwidth: float = 1.25e9) -> Plan:
        """Predict memory, bytes read and, from a few timed steps, time of ``fit(X)``; the estimator does not change.

        Raises ParameterError if the fit needs more than the available memory.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), MatrixSource, or anything else that open_source takes
        workers : int, optional
            Threads of all workers of a cluster; ``plan(X).cluster`` then predicts its rounds. ``shards="auto"`` is this
            number.
        bandwidth : float
            Bytes per second between two machines of the cluster.
        """
        other = copy.copy(self)
        source = rows_of(other, X, reset=True)
        shards = {"shards": workers} if workers is not None and self.shards == "auto" else {}
        options = options_of(self, source, seed=0, **shards)
        masks_of(source, options.reduction, seed=0)
        return solver.make_plan(
            source, problem_of(self), options, from_rows=self.init is None, workers=workers, bandwidth=bandwidth,
            resolve=lambda problem: resolved_problem(self, source, problem, options)[0],
        )  # fmt: skip

    @property
    def progress_(self) -> str:
        """ "converged", "still improving by 1.2 % per pass", or "" if unknown."""
        check_usable(self)
        return self._progress(getattr(self, "history_", ()))

    @property
    def atom_energy_(self) -> Array:
        """Mean over recent rows of ``a_j^2 |d_j|^2`` (k,): how much each atom is used."""
        check_usable(self)
        state = self._state
        return np.diagonal(state.code_gram) * np.einsum("ij,ij->i", state.dictionary, state.dictionary)

    def _progress(self, history: Sequence[Evaluation]) -> str:
        checks = self._state.checks if hasattr(self, "_state") else ()
        tol = CONVERGED if isinstance(self.tol, str) or self.tol == 0 else self.tol
        return describe_progress(checks, history, self._n_rows, tol)

    @classmethod
    def _from_file(cls, parameters: Mapping[str, Any]) -> Self:
        return super()._from_file(upgrade(parameters))

    def _check_usable(self) -> None:
        check_usable(self)

    def _task(self) -> DictionaryTask:
        return DictionaryTask(self)

    def _auto_shards(self) -> int:
        """Return the value of ``shards="auto"``."""
        return 1

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "nan"
        return tags

    def _rows_to_show(self, X: Any) -> MatrixSource:
        return rows_of(self, X, reset=False)
