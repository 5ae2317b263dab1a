"""How a dictionary is learned, and kept in files: what :func:`terafactor.train` and model files call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from terafactor import solver
from terafactor._checks import check_callbacks, check_flag
from terafactor._random import resolve_seed
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.data.fingerprint import fingerprint
from terafactor.data.masks import masks_of
from terafactor.data.source import MUST_BE_FINITE, check_finite
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.estimators.auto_reduction import (
    ReductionTrial,
    TrialInterrupted,
    choose_reduction,
    rows_to_compare_on,
)
from terafactor.estimators.holdout import hold_out_rows
from terafactor.estimators.model_file import ModelFileMixin, known_parameters
from terafactor.problem import ElasticNet, NormBall, PowerDecay, Problem
from terafactor.problem.constraint import resolve_constraint
from terafactor.problem.penalty import resolve_penalty
from terafactor.runs.artifact import Artifact
from terafactor.runs.parameters import from_plain, plain_parameters, to_plain
from terafactor.runs.signals import StopSignals
from terafactor.solver.callbacks import Callback
from terafactor.solver.interrupt import InterruptGuard
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.options import SolverOptions, Statistics
from terafactor.solver.position import Position
from terafactor.solver.state import SurrogateState

if TYPE_CHECKING:
    from terafactor.solver.progress import ProgressBar


class DictionaryTraining(ModelFileMixin):
    """The part of :class:`MaskedDictionaryLearning` between opened sources and the solver."""

    kind = "MaskedDictionaryLearning"
    n_components: int
    alpha: float
    penalty: str | ElasticNet
    constraint: str | NormBall
    positive_code: bool
    positive_dict: bool
    reduction: float | Literal["auto"]
    statistics: Literal["auto", "full", "masked"]
    projection: Literal["masked", "exact"]
    batch_size: int
    n_epochs: float
    forgetting: float
    tol: float
    max_time: float | None
    init: Any
    missing: Literal["nan", "absent"] | None
    random_state: Any
    n_threads: int | None
    callbacks: Sequence[Callback]
    verbose: int
    components_: Array
    n_features_in_: int
    feature_names_in_: Array
    stopped_by_: str | None
    _seed: int
    _state: SurrogateState
    _constraint: NormBall
    get_params: Callable[..., dict[str, Any]]

    def _source(self, X: Any, *, reset: bool, name: str = "X") -> MatrixSource:
        raise NotImplementedError

    def _problem(self) -> Problem:
        return Problem(
            alpha=self.alpha,
            penalty=resolve_penalty(self.penalty, positive=check_flag("positive_code", self.positive_code)),
            constraint=resolve_constraint(self.constraint, positive=check_flag("positive_dict", self.positive_dict)),
        )

    def _options(self, source: MatrixSource, **changes: Any) -> SolverOptions:
        check_callbacks(self.callbacks)
        auto: Statistics = "full" if source.in_memory else "masked"
        values: dict[str, Any] = {
            "n_components": self.n_components,
            "batch_size": self.batch_size,
            "reduction": 1 if self.reduction == "auto" else self.reduction,
            "statistics": auto if self.statistics == "auto" else self.statistics,
            "projection": self.projection,
            "schedule": PowerDecay(self.forgetting),
            "n_epochs": self.n_epochs,
            "tol": self.tol,
            "max_time": self.max_time,
            "missing": self.missing is not None,
            "n_threads": resolve_threads(self.n_threads),
        }
        if "seed" not in changes:
            values["seed"] = resolve_seed(self.random_state)
        return SolverOptions(**(values | changes))

    def _settle_reduction(
        self,
        source: MatrixSource,
        problem: Problem,
        options: SolverOptions,
        held_out: MatrixSource | None,
        callbacks: Sequence[Callback] = (),
    ) -> tuple[SolverOptions, Elapsed | None]:
        """Return the options with the reduction to use, and what finding it took; it fits the source."""
        elapsed, path = None, list[ReductionTrial]()
        if self.reduction == "auto":
            started = time.perf_counter()
            chosen, path = self._choose_reduction(source, problem, options, held_out, callbacks)
            options = replace(options, reduction=chosen)
            elapsed = Elapsed(time.perf_counter() - started, sum(trial.bytes_read for trial in path))
        masks_of(source, options.reduction, seed=0)  # refuses one that is too large before anything changes
        self.reduction_, self.reduction_path_ = options.reduction, path
        return options, elapsed

    def _choose_reduction(
        self,
        source: MatrixSource,
        problem: Problem,
        options: SolverOptions,
        held_out: MatrixSource | None,
        callbacks: Sequence[Callback],
    ) -> tuple[float, list[ReductionTrial]]:
        held_out = held_out or rows_to_compare_on(source, options.seed)
        start = partial(self._initial_state, source, problem)
        with InterruptGuard() as guard:
            try:
                return choose_reduction(source, held_out, problem, options, start, [*callbacks, guard])
            except TrialInterrupted:
                guard.raise_if_requested()
                raise RunInterruptedError(
                    "stopped while the reduction was being chosen, before anything was learned: "
                    "to resume is to begin anew"
                ) from None

    def _known_reduction(self, source: MatrixSource) -> float:
        """Return the reduction of a fit that goes on or comes in parts: the one given, or chosen before."""
        if self.reduction == "auto" and not hasattr(self, "reduction_"):
            raise ParameterError(
                "reduction='auto' needs fit, which sees all the rows: call it before partial_fit, or give a number"
            )
        reduction: float = self.reduction_ if self.reduction == "auto" else self.reduction
        masks_of(source, reduction, seed=0)  # refuses one above the number of features before anything changes
        self.reduction_path_ = getattr(self, "reduction_path_", [])
        self.reduction_ = reduction
        return reduction

    def _initial_state(self, source: MatrixSource, problem: Problem, options: SolverOptions) -> SurrogateState | None:
        """Return the state that ``init`` stands for; None leaves the start to the solver."""
        if self.init is None:
            return None
        given = getattr(self.init, "components_", self.init)
        if isinstance(given, BaseEstimator):
            raise ParameterError(
                "init is an estimator that is not fitted (clone and grid searches drop what it learned): "
                "give its components_"
            )
        if isinstance(given, str):
            raise ParameterError(f"init must be None, an array of atoms or a fitted estimator, got {given!r}")
        needed = (options.n_components, source.shape[1])
        if np.shape(given) != needed:
            raise ParameterError(
                f"init has shape {np.shape(given)}, but n_components and the features of X need {needed}"
            )
        atoms = check_array(given, dtype=[source.dtype], input_name="init", ensure_all_finite=False)
        check_finite(atoms, "init", about_nan=MUST_BE_FINITE)
        atoms = problem.constraint.project(atoms)
        if not atoms.any():
            positive = " (with positive_dict, its negative entries are)" if problem.constraint.positive else ""
            raise ParameterError(
                f"init is zero everywhere{positive}, and atoms of zeros stay so: give others, or None for rows of X"
            )
        return SurrogateState.start(atoms, problem, masked=options.masked)

    def learn(
        self,
        data: MatrixSource,
        *,
        seed: int,
        callbacks: Sequence[Callback] = (),
        start: Position | None = None,
        elapsed: Elapsed | None = None,
    ) -> Self:
        """Fit to an opened source: see :meth:`terafactor.runs.Trainable.learn`."""
        problem, options = self._problem(), self._options(data, seed=seed)
        if start is None:
            heard = [callback for callback in callbacks if isinstance(callback, StopSignals)]
            options, elapsed = self._settle_reduction(data, problem, options, None, heard)
            state, first_batch = self._initial_state(data, problem, options), 0
        else:
            self._take_up_reduction(start)
            options = replace(options, reduction=self._known_reduction(data))
            state = SurrogateState.at(start)
            first_batch = state.n_batches
        self._seed = seed
        self._learn(data, problem, options, state, callbacks, first_batch=first_batch, elapsed=elapsed)
        return self

    def _learn(
        self,
        source: MatrixSource,
        problem: Problem,
        options: SolverOptions,
        state: SurrogateState | None,
        callbacks: Sequence[Callback] = (),
        **beginning: Any,
    ) -> InterruptGuard:
        """Run the solver and keep what it learned, whatever stopped it."""
        self._constraint = problem.constraint
        self.statistics_ = options.statistics
        self.geometry_ = source.geometry
        with contextlib.ExitStack() as stack:
            shown = [stack.enter_context(contextlib.closing(_progress_bar()))] if self.verbose else []
            guard = stack.enter_context(InterruptGuard())
            state = solver.fit(
                source, problem, options, state, [*callbacks, *self.callbacks, *shown, guard], **beginning
            )
        if state.n_steps == 0 and not guard.requested:
            raise DataError(
                "the steps met no observed value, so there is nothing to learn from: every entry of X is missing, or "
                "the masks of all steps left out those that are not"
            )
        self._set_state(state)
        return guard

    def _set_state(self, state: SurrogateState) -> None:
        self._state = state
        self.components_ = state.dictionary
        self.n_steps_ = state.n_steps
        self.feature_counts_ = state.feature_counts

    def open_data(self, X: Any) -> MatrixSource:
        """Return the source of validated numbers that ``learn`` takes; parameters that cannot be are refused first."""
        self._problem()
        source = self._source(X, reset=True)
        masks_of(source, self._options(source, seed=0).reduction, seed=0)
        return source

    def describe_data(self, data: MatrixSource) -> dict[str, Any]:
        """Return shape, dtype, number of records and fingerprint of a source."""
        return {
            "shape": list(data.shape),
            "dtype": data.dtype.name,
            "records": len(data.records),
            "row_bytes": data.shape[1] * data.dtype.itemsize,
            "fingerprint": fingerprint(data),
        }

    def hold_out(
        self, data: MatrixSource, amount: Any, seed: int
    ) -> tuple[MatrixSource, MatrixSource | None, dict[str, Any]]:
        """Return rows to learn from, rows to evaluate on, and what tells the choice again."""
        return hold_out_rows(data, amount, seed)

    def held_out_objective(self, held_out: MatrixSource) -> Callable[[Learner], float]:
        """Return what computes the objective of a learner on held-out rows."""
        problem, n_threads, missing = self._problem(), resolve_threads(self.n_threads), self.missing is not None
        return lambda learner: solver.objective(held_out, learner.atoms(), problem, n_threads, missing=missing)

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model, or a position of the fit that is running, as what a file holds."""
        if position is None:
            check_is_fitted(self, "components_")
            position = self._state.position()
        names = getattr(self, "feature_names_in_", None)
        facts = {
            "seed": self._seed,
            "statistics": self.statistics_,
            "reduction": to_plain(self.reduction_),
            "reduction_path": [asdict(trial) for trial in self.reduction_path_],
            "constraint": to_plain(self._constraint),
            "feature_names": None if names is None else [str(name) for name in names],
            "geometry": None if self.geometry_ is None else list(self.geometry_),
            "stopped_by": getattr(self, "stopped_by_", None),
        }
        parameters = plain_parameters(self.get_params(deep=False))
        return Artifact(self.kind, parameters, Position(facts | dict(position.numbers), position.arrays))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the model that a file holds, ready for ``transform`` and ``partial_fit``."""
        estimator = cls(**known_parameters(cls, artifact))
        problem = estimator._problem()
        state = SurrogateState.at(artifact.position)
        if len(state.dictionary) != estimator.n_components:
            raise DataError(f"the file has {len(state.dictionary)} atoms, but n_components is {estimator.n_components}")
        state.dictionary = state.pause()
        estimator._seed = artifact.position.number("seed")
        estimator._constraint = from_plain(artifact.position.numbers).get("constraint", problem.constraint)
        estimator.statistics_ = artifact.position.number("statistics", str)
        estimator._take_up_reduction(artifact.position)
        estimator.n_features_in_ = state.dictionary.shape[1]
        numbers = artifact.position.numbers
        if numbers.get("feature_names") is not None:
            estimator.feature_names_in_ = np.array(numbers["feature_names"], dtype=object)
        estimator.geometry_ = None if numbers.get("geometry") is None else tuple(numbers["geometry"])
        if numbers.get("stopped_by") is not None:
            estimator.stopped_by_ = str(numbers["stopped_by"])
        estimator._set_state(state)
        return estimator

    def _take_up_reduction(self, position: Position) -> None:
        """Set what a file says of the reduction; the first version of the format says nothing of it."""
        told = "reduction" in position.numbers
        self.reduction_ = position.number("reduction", float) if told else float(self.reduction)
        self.reduction_path_ = [ReductionTrial(**trial) for trial in position.numbers.get("reduction_path", ())]


def _progress_bar() -> ProgressBar:
    from terafactor.solver.progress import ProgressBar

    return ProgressBar()
