"""How a dictionary is learned, and kept in files: what :func:`terafactor.train` and model files call."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
from terafactor.data.rows import sample_rows
from terafactor.data.source import MUST_BE_FINITE, check_finite
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.estimators import defaults
from terafactor.estimators.advice import Advice, advice
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
from terafactor.solver.callbacks import Callback, Evaluation, Snapshot
from terafactor.solver.interrupt import InterruptGuard
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.options import SolverOptions, Statistics
from terafactor.solver.position import Position
from terafactor.solver.settling import SETTLED, progress_in_words
from terafactor.solver.state import State
from terafactor.solver.warm_up import warm_up

if TYPE_CHECKING:
    from terafactor.solver.progress import ProgressBar


logger = logging.getLogger("terafactor")

PLANNED_PASSES = 10.0
"""Passes that trials of reductions plan with where a fit goes on until it has settled."""


class DictionaryTraining(ModelFileMixin):
    """The part of :class:`MaskedDictionaryLearning` between opened sources and the solver."""

    kind = "MaskedDictionaryLearning"
    n_components: int
    alpha: float | Literal["auto"]
    penalty: str | ElasticNet
    constraint: str | NormBall
    positive_code: bool
    positive_dict: bool
    reduction: float | Literal["auto"]
    statistics: Literal["auto", "full", "masked"]
    projection: Literal["masked", "exact"]
    batch_size: int | Literal["auto"]
    n_epochs: float | Literal["auto"]
    forgetting: float | Literal["auto"]
    tol: float | Literal["auto"]
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
    alpha_: float
    batch_size_: int
    _seed: int
    _n_rows: int
    _advice: list[Advice]
    _state: State
    _constraint: NormBall
    get_params: Callable[..., dict[str, Any]]

    def _source(self, X: Any, *, reset: bool, name: str = "X") -> MatrixSource:
        raise NotImplementedError

    def _problem(self) -> Problem:
        """Return what is minimised; before a fit with ``alpha="auto"``, with no penalty yet."""
        if isinstance(self.alpha, str) and self.alpha != "auto":
            raise ParameterError(f"alpha must be 'auto' or a number >= 0, got {self.alpha!r}")
        return Problem(
            alpha=getattr(self, "alpha_", 0.0) if self.alpha == "auto" else self.alpha,
            penalty=resolve_penalty(self.penalty, positive=check_flag("positive_code", self.positive_code)),
            constraint=resolve_constraint(self.constraint, positive=check_flag("positive_dict", self.positive_dict)),
        )

    def _options(self, source: MatrixSource, **changes: Any) -> SolverOptions:
        """Return how the problem is solved for a source, with every "auto" resolved except that of the reduction."""
        check_callbacks(self.callbacks)
        n_rows, n_features = source.shape
        until_settled = self.n_epochs == "auto"
        statistics: Statistics = "full" if source.in_memory else "masked"
        auto: dict[str, Any] = {
            "reduction": 1,
            "statistics": statistics,
            "batch_size": lambda: defaults.batch_size(self.n_components, n_features),
            "n_epochs": lambda: defaults.most_passes(source, self.n_components),
            "tol": SETTLED if until_settled else 0.0,
        }
        values: dict[str, Any] = {
            "n_components": self.n_components,
            "projection": self.projection,
            "max_time": self.max_time,
            "missing": self.missing is not None,
            "n_threads": resolve_threads(self.n_threads),
        }
        for name, automatic in auto.items():
            values[name] = getattr(self, name)
            if isinstance(values[name], str) and values[name] == "auto":
                SolverOptions(self.n_components)  # refuses a number of atoms from which nothing follows
                values[name] = automatic() if callable(automatic) else automatic
        if "seed" not in changes:
            values["seed"] = resolve_seed(self.random_state)
        options = SolverOptions(**(values | changes))
        if self.forgetting != "auto":
            return replace(options, schedule=PowerDecay(self.forgetting))
        return replace(options, schedule=defaults.schedule(options, n_rows if options.shuffle else None))

    def _prepare(
        self,
        source: MatrixSource,
        problem: Problem,
        options: SolverOptions,
        held_out: MatrixSource | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Beginning:
        """Find what "auto" leaves to the data, and the atoms to start from."""
        warm_up(source, problem, options)
        started = time.perf_counter()
        sample = self._rows_to_judge_by(source, options)
        atoms = self._starting_atoms(source, problem, options)
        n_bytes = 0 if source.in_memory else source.stored_bytes(np.arange(sample.shape[0]))
        if self.init is None:
            n_bytes += source.stored_bytes(np.arange(min(options.n_components, source.shape[0])))
        if self.alpha == "auto":
            problem = replace(problem, alpha=defaults.choose_alpha(problem, sample, atoms, options))
        self.alpha_, self.batch_size_ = float(problem.alpha), options.batch_size
        path = list[ReductionTrial]()
        if self.reduction == "auto":
            chosen, path = self._choose_reduction(source, problem, options, held_out, atoms, callbacks)
            options = self._options(source, seed=options.seed, reduction=chosen)
        masks_of(source, options.reduction, seed=0)  # refuses one that is too large before anything changes
        self.reduction_, self.reduction_path_ = options.reduction, path
        n_bytes += sum(trial.bytes_read for trial in path)
        state = State.start(atoms, problem, masked=options.masked)
        return Beginning(problem, options, state, sample, 0, Elapsed(time.perf_counter() - started, n_bytes))

    def _rows_to_judge_by(self, source: MatrixSource, options: SolverOptions) -> MatrixSource:
        """Return the rows by which alpha, the end of the fit and its result are judged."""
        n_rows = defaults.sample_size(options.batch_size, source.shape[1], source.stored_share)
        return sample_rows(source, n_rows, options.seed, allow_nan=options.missing)

    def _choose_reduction(
        self,
        source: MatrixSource,
        problem: Problem,
        options: SolverOptions,
        held_out: MatrixSource | None,
        atoms: Array,
        callbacks: Sequence[Callback],
    ) -> tuple[float, list[ReductionTrial]]:
        held_out = held_out or rows_to_compare_on(source, options.seed)

        def start(tried: SolverOptions) -> State:
            return State.start(atoms.copy(), problem, masked=tried.masked)

        planned = replace(options, n_epochs=min(options.n_epochs, PLANNED_PASSES))
        with InterruptGuard() as guard:
            try:
                return choose_reduction(source, held_out, problem, planned, start, [*callbacks, guard])
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

    def _options_to_go_on(self, source: MatrixSource, **changes: Any) -> SolverOptions:
        """Return the options of a fit that goes on or comes in parts."""
        self._options(source, **changes)  # a parameter that is wrong in itself is refused first
        return self._options(source, reduction=self._known_reduction(source), **changes)

    def _starting_atoms(self, source: MatrixSource, problem: Problem, options: SolverOptions) -> Array:
        """Return the atoms (k, p) that ``init`` stands for, or those made from the first rows visited."""
        if self.init is None:
            return solver.starting_atoms(source, problem, options)
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
        return atoms

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
        if start is None:
            heard = [callback for callback in callbacks if isinstance(callback, StopSignals)]
            beginning = self._prepare(data, self._problem(), self._options(data, seed=seed), None, heard)
        else:
            self._take_up(start)
            options = self._options_to_go_on(data, seed=seed)
            state, sample = State.at(start), self._rows_to_judge_by(data, options)
            beginning = Beginning(self._problem(), options, state, sample, state.n_batches, elapsed)
        self._seed = seed
        self._learn(data, beginning, callbacks)
        for warning in self._advice:
            logger.warning("%s", warning.text)
        return self

    def _learn(self, source: MatrixSource, beginning: Beginning, callbacks: Sequence[Callback] = ()) -> InterruptGuard:
        """Run the solver and keep what it learned, whatever stopped it."""
        problem, options, sample = beginning.problem, beginning.options, beginning.sample
        self._constraint = problem.constraint
        self.statistics_ = options.statistics
        self.geometry_ = source.geometry
        self._n_rows = source.shape[0]
        ending = Ending()
        with contextlib.ExitStack() as stack:
            shown = [stack.enter_context(contextlib.closing(_progress_bar()))] if self.verbose else []
            guard = stack.enter_context(InterruptGuard())
            state = solver.fit(
                source, problem, options, beginning.state, [*callbacks, *self.callbacks, *shown, guard, ending],
                sample=sample, first_batch=beginning.first_batch, elapsed=beginning.elapsed,
            )  # fmt: skip
        if state.n_steps == 0 and not guard.requested:
            raise DataError(
                "the steps met no observed value, so there is nothing to learn from: every entry of X is missing, or "
                "the masks of all steps left out those that are not"
            )
        self._set_state(state)
        self.n_iter_ = max(1, math.ceil(state.n_samples / source.shape[0]))
        self._advice = []
        if sample is not None and not guard.requested:
            self._advice = advice(source, sample, state, problem, options, ending.stopped_by)
        return guard

    @property
    def progress_(self) -> str:
        """Whether the fit has settled, in words: "settled", or by how much it still improves per pass."""
        check_is_fitted(self, "components_")
        return self._progress(getattr(self, "history_", ()))

    def _progress(self, history: Sequence[Evaluation]) -> str:
        checks = self._state.checks if hasattr(self, "_state") else ()
        tol = SETTLED if isinstance(self.tol, str) or self.tol == 0 else self.tol
        return progress_in_words(checks, history, self._n_rows, tol)

    def _set_state(self, state: State) -> None:
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
        n_threads, missing = resolve_threads(self.n_threads), self.missing is not None

        def evaluate(learner: Learner) -> float:  # the problem is known in full when learning has begun
            return solver.objective(held_out, learner.atoms(), self._problem(), n_threads, missing=missing)

        return evaluate

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model, or a position of the fit that is running, as what a file holds."""
        if position is None:
            check_is_fitted(self, "components_")
            position = self._state.position()
        names = getattr(self, "feature_names_in_", None)
        facts = {
            "seed": self._seed,
            "statistics": self.statistics_,
            "rows": self._n_rows,
            "alpha": self.alpha_,
            "batch_size": self.batch_size_,
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
        estimator._take_up(artifact.position)
        problem = estimator._problem()
        state = State.at(artifact.position)
        if len(state.dictionary) != estimator.n_components:
            raise DataError(f"the file has {len(state.dictionary)} atoms, but n_components is {estimator.n_components}")
        estimator._seed = artifact.position.number("seed")
        estimator._constraint = from_plain(artifact.position.numbers).get("constraint", problem.constraint)
        estimator.statistics_ = artifact.position.number("statistics", str)
        estimator.n_features_in_ = state.dictionary.shape[1]
        numbers = artifact.position.numbers
        if numbers.get("feature_names") is not None:
            estimator.feature_names_in_ = np.array(numbers["feature_names"], dtype=object)
        estimator.geometry_ = None if numbers.get("geometry") is None else tuple(numbers["geometry"])
        if numbers.get("stopped_by") is not None:
            estimator.stopped_by_ = str(numbers["stopped_by"])
        estimator._n_rows = int(numbers.get("rows", state.n_samples))
        estimator.n_iter_ = max(1, math.ceil(state.n_samples / max(estimator._n_rows, 1)))
        estimator._set_state(state)
        return estimator

    def _take_up(self, position: Position) -> None:
        """Set what a file says of alpha, batch size and reduction; earlier versions leave some to the parameters."""
        numbers = position.numbers
        self.alpha_ = position.number("alpha", float) if "alpha" in numbers else float(self.alpha)
        self.batch_size_ = position.number("batch_size") if "batch_size" in numbers else int(self.batch_size)
        self.reduction_ = position.number("reduction", float) if "reduction" in numbers else float(self.reduction)
        self.reduction_path_ = [ReductionTrial(**trial) for trial in numbers.get("reduction_path", ())]


@dataclass(frozen=True)
class Beginning:
    """Where a fit begins, or goes on from."""

    problem: Problem
    options: SolverOptions
    state: State
    sample: MatrixSource | None
    """Rows to judge by; None: nothing is judged."""

    first_batch: int = 0
    elapsed: Elapsed | None = None


class Ending:
    """Callback that keeps what ended a fit."""

    stopped_by: str | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        self.stopped_by = snapshot.stopped_by


def _progress_bar() -> ProgressBar:
    from terafactor.solver.progress import ProgressBar

    return ProgressBar()
