"""Masked online dictionary learning as a scikit-learn estimator."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from terafactor import solver
from terafactor._random import resolve_seed
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.data import ArraySource, MatrixSource, SparseSource, open_source
from terafactor.data.masks import masks_of
from terafactor.data.open import must_be_opened
from terafactor.data.output import open_matrix
from terafactor.data.rows import SelectedRows
from terafactor.data.sparse import check_sparse
from terafactor.data.table import at_hand
from terafactor.errors import DataError, DataTypeError, ParameterError
from terafactor.estimators import defaults
from terafactor.estimators.output import hand_back_files
from terafactor.estimators.training import Beginning, DictionaryTraining
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.report import Reporting
from terafactor.runs.failure import unless_it_fails
from terafactor.solver import SolverOptions, State
from terafactor.solver.callbacks import Callback, Recorder
from terafactor.solver.plan import Plan

if TYPE_CHECKING:
    from terafactor.solver.interrupt import InterruptGuard
    from terafactor.solver.progress import RowsProgress

DTYPES = [np.float64, np.float32]
"""What is kept as it is; anything else numeric becomes float64."""


@hand_back_files
class MaskedDictionaryLearning(
    DictionaryTraining, Reporting, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Factorize a matrix that is huge in both dimensions, ``X ~ codes @ components``.

    Minimises over atoms in a ball the mean over rows x of
    ``min over a of 1/2 |x - a D|^2 + alpha * Omega(a)``, looking at ``batch_size`` rows and one part in ``reduction``
    of the features at a time.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms, k.
    alpha : float or "auto", default="auto"
        Strength of the penalty on codes. "auto" follows the scale of X: for "l1", a fifth of what would leave the
        code of the median row empty; for "l2", a tenth of the squared norm of an atom; none where codes and atoms are
        both non-negative. ``alpha_`` has the number.
    penalty : {"l1", "l2"} or ElasticNet, default="l1"
        Omega: ``|a|_1`` for sparse codes, ``|a|^2 / 2``, or a mixture.
    constraint : {"l2", "l1"} or NormBall, default="l2"
        The ball that holds every atom; "l1" makes atoms sparse.
    positive_code, positive_dict : bool, default=False
        Whether codes, or atoms, must be >= 0.
    reduction : float or "auto", default=1
        How many times fewer features than there are a step uses, rounded up: the features are cut into that many
        masks. 1 is the online algorithm of Mairal et al. (2010). "auto" finds a large one that loses little by short
        trials on the data, counted in the time and bytes of the fit.
    statistics : {"auto", "full", "masked"}, default="auto"
        "full" learns from whole rows and uses the mask to save work; "masked" reads only the masked features, and
        wants each feature visited some 30 times; "auto" is "full" for data in memory and "masked" otherwise.
    projection : {"masked", "exact"}, default="masked"
        How atoms return to the ball after a step: "masked" keeps the entries outside the mask, "exact" projects the
        whole atom, at the same cost per step but without its guarantee of descent. Without masks both are the same.
    batch_size : int or "auto", default="auto"
        Rows per step. "auto" is twice ``n_components``, at least 32, and fewer where rows are so long that this
        would take more than 256 MB; ``batch_size_`` has the number.
    n_epochs : float or "auto", default="auto"
        Passes over the rows. "auto" learns until the fit has settled, at most 200 passes or 20 000 rows per atom,
        and at most one pass over more than 8 GB on disk.
    forgetting : float or "auto", default="auto"
        How fast the past is forgotten. "auto" remembers about ``sqrt(2 * n_components * rows seen)`` rows, at most
        half a pass, and more where masks or missing values hide features. A number means the weights of the paper,
        ``t ** -forgetting`` for step t; it is between 0.5 (excluded) and 1, which forgets nothing.
    tol : float or "auto", default="auto"
        Stop when the objective on a sample of the rows falls by less than this, relatively, while the rows seen
        double; 0 never does. "auto" is 0.005 with ``n_epochs="auto"``, and 0 with a number of passes.
    max_time : float or None, default=None
        Seconds after which the fit stops, evaluations and callbacks included.
    init : ndarray of shape (n_components, n_features), fitted estimator, or None, default=None
        Atoms to start from, moved into the ball. None takes the first rows visited.
    missing : {None, "nan", "absent"}, default=None
        None refuses NaN; "nan" takes NaN for a missing value; "absent" takes the entries that a sparse matrix does
        not store for missing ones, rather than for zeros.
    random_state : int, RandomState or None, default=None
        Seed of masks and row order. The same integer gives the same bits, for any number of threads.
    n_threads : int or None, default=None
        Threads; None uses all cores.
    callbacks : sequence of callables, default=()
        Each is called with a :class:`~terafactor.solver.Snapshot` after every step; returning True stops the fit.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms.
    history_ : list of Evaluation
        How the fit went; with ``validation`` rows, the objective on them several times per epoch.
    geometry_ : tuple of int or None
        Shape of a row as a picture, where the source told one.
    statistics_ : str
        What "auto" chose.
    reduction_ : float
        The reduction used.
    reduction_path_ : list of ReductionTrial
        The trials that reduction="auto" chose from; else empty.
    stopped_by_ : str
        "tol" (it has settled), "n_epochs", "max_time", "callback" or "interrupt".
    alpha_ : float
        The strength of the penalty used.
    batch_size_ : int
        The rows per step used.
    n_iter_ : int
        Passes over the rows, begun ones included.
    n_steps_ : int
        Steps done.
    feature_counts_ : ndarray of shape (n_features,)
        Samples in which each feature was used.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only when X had string column names, such as those of a frame or a Parquet file.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((200, 50))
    >>> estimator = MaskedDictionaryLearning(n_components=5, reduction=2, n_epochs=3, random_state=0).fit(X)
    >>> estimator.transform(X).shape
    (200, 5)
    """

    def __init__(
        self,
        n_components: int = 20,
        *,
        alpha: float | Literal["auto"] = "auto",
        penalty: str | ElasticNet = "l1",
        constraint: str | NormBall = "l2",
        positive_code: bool = False,
        positive_dict: bool = False,
        reduction: float | Literal["auto"] = 1,
        statistics: Literal["auto", "full", "masked"] = "auto",
        projection: Literal["masked", "exact"] = "masked",
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
        self.statistics = statistics
        self.projection = projection
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
            Held-out rows, on which ``history_`` records the objective.
        """
        with unless_it_fails(self):
            problem = self._problem()
            source = self._source(X, reset=True)
            options = self._options(source)
            held_out = None if validation is None else self._source(validation, reset=False, name="validation")
            beginning = self._prepare(source, problem, options, held_out)
            self._seed = options.seed
            objective = None if held_out is None else self.held_out_objective(held_out)
            recorder = Recorder(objective, audience=self.callbacks)
            guard = self._learn(source, beginning, [recorder])
        self.history_ = recorder.history
        self.stopped_by_ = "interrupt" if guard.requested else recorder.stopped_by
        guard.raise_if_requested()
        for warning in self._advice:
            warnings.warn(warning.text, warning.category, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more rows, in the order given, ``batch_size`` at a time; what is left over makes a shorter step.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features) or MatrixSource
        y : ignored
        """
        with unless_it_fails(self):
            guard = self._learn_more(X)
        guard.raise_if_requested()
        return self

    def _learn_more(self, X: Any) -> InterruptGuard:
        first = not hasattr(self, "_state")
        problem = self._problem()
        source = self._source(X, reset=first)
        if first:
            seed, state = resolve_seed(self.random_state), None
        else:
            seed, state = self._seed, self._state if self._is_sure(source, problem) else copy.deepcopy(self._state)
            if state.dictionary.shape[0] != self.n_components:
                raise ParameterError(
                    f"n_components is {self.n_components!r} but the model has {state.dictionary.shape[0]} atoms: "
                    "call fit to start anew"
                )
        options = self._options_to_go_on(source, seed=seed, n_epochs=1, tol=0.0, max_time=None, shuffle=False)
        if state is None:
            problem, state = self._start_stream(source, problem, options)
        elif problem.constraint != self._constraint:
            state.dictionary[:] = problem.constraint.project(state.dictionary)
            state.sizes = problem.constraint.psi(state.dictionary)
        self._seed = seed
        return self._learn(source, Beginning(problem, options, state, sample=None))

    def _start_stream(
        self, source: MatrixSource, problem: Problem, options: SolverOptions
    ) -> tuple[Problem, State]:
        """Return where a stream of rows begins: "auto" follows its first batch alone, however the stream is cut."""
        atoms = self._starting_atoms(source, problem, options)
        if self.alpha == "auto":
            first = SelectedRows(source, np.arange(min(options.batch_size, source.shape[0])))
            problem = replace(problem, alpha=defaults.choose_alpha(problem, first, atoms, options))
        self.alpha_, self.batch_size_ = float(problem.alpha), options.batch_size
        return problem, State.start(atoms, problem, masked=options.masked)

    def _is_sure(self, source: MatrixSource, problem: Problem) -> bool:
        """Whether steps can be done on the state itself, since nothing may fail after some of them.

        What is not in memory is checked as it is read, and may turn out bad then; so may a callback. Arrays that came
        from a memory map cannot be written to.
        """
        state, constant = self._state, problem.constraint == self._constraint
        at_hand = source.in_memory and source.dtype == state.dictionary.dtype and state.feature_counts.flags.writeable
        return at_hand and constant and not self.callbacks

    def transform(self, X: Any, *, out: str | Path | None = None) -> Array:
        """Return the codes of the rows of X, an array of shape (n_samples, n_components).

        The code of a row without any observed value is zero.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), MatrixSource, or anything else that open_source takes
        out : path, optional
            A new ``.npy`` file or ``.zarr`` array to write them to as they are computed. What is returned then stays on
            the disk, whatever ``set_output`` says: a read-only memory map, or the Zarr array.
        """
        check_is_fitted(self, "components_")
        source = self._source(X, reset=False)
        parts = (source, self.components_, self._problem(), resolve_threads(self.n_threads))
        with contextlib.ExitStack() as stack:
            options: dict[str, Any] = {"missing": self.missing is not None}
            if self.verbose:
                options["progress"] = stack.enter_context(_rows_progress("encoding", source))
            if out is None:
                return solver.encode(*parts, **options)
            solver.encode_to(out, *parts, **options)
        return open_matrix(out)

    def inverse_transform(self, X: Any) -> Array:
        """Return ``codes @ components_``, the rows that the codes X stand for, complete where X had missing values."""
        check_is_fitted(self, "components_")
        codes = check_array(X, dtype=DTYPES, input_name="codes")
        if codes.shape[1] != len(self.components_):
            raise DataError(f"codes have {codes.shape[1]} columns, but the model has {len(self.components_)} atoms")
        return np.asarray(codes @ self.components_)

    def objective(self, X: Any) -> float:
        """Return the mean over the rows of X of ``1/2 |x - a D|^2 + alpha * Omega(a)``, with the best codes a.

        With missing values the first term is that of the s observed features, times p / s; rows without any are left
        out of the mean, which is NaN when no row has one.
        """
        check_is_fitted(self, "components_")
        source = self._source(X, reset=False)
        n_threads, missing = resolve_threads(self.n_threads), self.missing is not None
        return solver.objective(source, self.components_, self._problem(), n_threads, missing=missing)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the objective: higher is better, as model selection expects."""
        return -self.objective(X)

    def plan(self, X: Any) -> Plan:
        """Return what ``fit(X)`` would take: memory, bytes read and, from a few timed steps, time.

        What does not fit in the memory at hand is refused, with advice. Nothing of the estimator changes. With
        ``reduction="auto"`` it is what a fit with reduction 1 would take, trials aside.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), MatrixSource, or anything else that open_source takes
        """
        other = copy.copy(self)
        source = other._source(X, reset=True)
        options = self._options(source, seed=0)
        masks_of(source, options.reduction, seed=0)
        return solver.make_plan(source, self._problem(), options, from_rows=self.init is None)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "nan"
        return tags

    def _source(self, X: Any, *, reset: bool, name: str = "X") -> MatrixSource:
        """Return a source of validated numbers, checked against the features of the model unless ``reset``."""
        if self.missing not in (None, "nan", "absent"):
            raise ParameterError(f"missing must be None, 'nan' or 'absent', got {self.missing!r}")
        if must_be_opened(X):
            X = open_source(X)
            if reset:
                self._take_features(X)
            else:
                self._check_features(X, name)
            return X.absent_as_missing() if self.missing == "absent" else X
        X = self._fill_masked(in_native_order(at_hand(X)), name)
        if issparse(X):
            check_sparse(X, name)
        if not reset and name != "X" and np.ndim(X) == 2 and X.shape[1] != self.n_features_in_:
            raise DataError(f"{name} has {X.shape[1]} features, but X has {self.n_features_in_}")
        array = validate_data(
            self, X, reset=reset, dtype=DTYPES, accept_sparse="csr", ensure_all_finite=False, accept_large_sparse=True
        )
        allow_nan = self.missing is not None
        if issparse(array):
            absent = np.nan if self.missing == "absent" else 0.0
            return SparseSource(array, name, absent=absent, allow_nan=allow_nan)
        if self.missing == "absent":
            raise DataTypeError(
                f"missing='absent' is for sparse matrices, got {name} of type {type(X).__name__}: "
                "mark missing entries of a dense one with NaN and say missing='nan'"
            )
        return ArraySource(array, name, allow_nan=allow_nan)

    def _take_features(self, source: MatrixSource) -> None:
        """Set number and names of features, as ``validate_data`` does from an array or a frame."""
        self.n_features_in_ = source.shape[1]
        if source.feature_names is not None:
            self.feature_names_in_ = np.array(source.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_features(self, source: MatrixSource, name: str) -> None:
        """Refuse a source whose features are not those of the model; one without names can be of any."""
        if source.shape[1] != self.n_features_in_:
            raise DataError(
                f"{name} has {source.shape[1]} features, but the model was fitted with {self.n_features_in_}"
            )
        needed = getattr(self, "feature_names_in_", None)
        if source.feature_names is None or needed is None:
            return
        pairs = enumerate(zip(source.feature_names, needed, strict=True))
        difference = next((f"feature {at} is {got!r}, not {want!r}" for at, (got, want) in pairs if got != want), None)
        if difference is not None:
            raise DataError(
                f"The feature names of {name} should match those that were passed during fit, in the same order: "
                f"{difference}; choose them by name, as in open_source(table, columns=estimator.feature_names_in_)"
            )

    def _rows_to_show(self, X: Any) -> MatrixSource:
        return self._source(X, reset=False)

    def _fill_masked(self, X: Any, name: str) -> Any:
        """Return X, with NaN for the masked entries of a NumPy masked array."""
        if not isinstance(X, np.ma.MaskedArray) or not np.ma.is_masked(X):
            return X
        if self.missing != "nan":
            raise DataError(f"{name} is a masked array with masked entries: say missing='nan' to take them for missing")
        return np.ma.filled(X.astype(X.dtype if X.dtype in DTYPES else np.float64), np.nan)


def in_native_order(X: Any) -> Any:
    """Return X, an array of floats in the byte order of this machine if it has another: validation would widen it."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f" and not X.dtype.isnative:
        return X.astype(X.dtype.newbyteorder("="))
    return X


def _rows_progress(what: str, source: MatrixSource) -> RowsProgress:
    from terafactor.solver.progress import RowsProgress

    return RowsProgress(what, source.shape[0])
