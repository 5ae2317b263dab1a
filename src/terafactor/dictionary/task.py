"""What learning a dictionary contributes to the training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor import solver
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.data import MatrixSource, open_source
from terafactor.data.fingerprint import fingerprint
from terafactor.data.masks import masks_of
from terafactor.data.views.rows import sample_rows
from terafactor.dictionary import defaults
from terafactor.dictionary.advice import Advice, advice
from terafactor.dictionary.auto_reduction import ReductionTrial, choose_reduction, rows_to_compare_on
from terafactor.dictionary.parameters import check_usable, options_of, options_to_go_on, problem_of, starting_atoms
from terafactor.dictionary.rows import rows_of
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.runs.parameters import from_plain, to_plain
from terafactor.solver.callbacks import Callback, Snapshot
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.state_dict import StateDict
from terafactor.solver.warm_up import warm_up
from terafactor.training.holdout import hold_out_rows
from terafactor.training.task import Start, Task

if TYPE_CHECKING:
    from terafactor.dictionary.estimator import MaskedDictionaryLearning

PLANNED_PASSES = 10.0
"""Passes that trials of reductions plan with where a fit goes on until it has settled."""


@dataclass(frozen=True)
class FitSetup:
    """Where a fit begins, or goes on from."""

    problem: Problem
    options: SolverOptions
    state: State
    sample: MatrixSource | None
    """Rows to judge by; None: nothing is judged."""

    first_batch: int = 0
    elapsed: Elapsed | None = None


class DictionaryTask(Task):
    """Learns a dictionary from all rows of a source."""

    kind = "MaskedDictionaryLearning"
    estimator: MaskedDictionaryLearning
    beginning: FitSetup
    """Set by :meth:`prepare`."""

    stopped_by: str | None = None
    """What ended the steps."""

    def open_data(self, X: Any) -> MatrixSource:
        problem_of(self.estimator)
        if isinstance(X, Mapping) and "source" in X:  # a table and the columns to read
            X = open_source(X["source"], **{option: value for option, value in X.items() if option != "source"})
        source = rows_of(self.estimator, X, reset=True)
        masks_of(source, options_of(self.estimator, source, seed=0).reduction, seed=0)
        return source

    def describe_data(self, data: MatrixSource) -> dict[str, Any]:
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
        return hold_out_rows(data, amount, seed)

    def open_validation(self, X: Any, data: MatrixSource) -> MatrixSource:
        return rows_of(self.estimator, X, reset=False, name="validation")

    def objective(self, held_out: MatrixSource) -> Callable[[RunningFit], float]:
        model = self.estimator
        n_threads, missing = resolve_threads(model.n_threads), model.missing is not None

        def evaluate(learner: RunningFit) -> float:  # the problem is known in full when learning has begun
            return solver.objective(held_out, learner.atoms(), problem_of(model), n_threads, missing=missing)

        return evaluate

    def prepare(self, data: MatrixSource, start: Start) -> None:
        state_dict = start.state_dict
        self._begin(data, self._first(data, start) if state_dict is None else self._resumed(data, start, state_dict))

    def _begin(self, data: MatrixSource, beginning: FitSetup) -> None:
        """Set what checkpoints say of the fit."""
        model, self.beginning = self.estimator, beginning
        model._seed, model._constraint = beginning.options.seed, beginning.problem.constraint
        model._n_rows, model.geometry_ = data.shape[0], data.geometry
        model.statistics_, model.reduction_ = beginning.options.statistics, beginning.options.reduction

    def _first(self, data: MatrixSource, start: Start) -> FitSetup:
        """Find what "auto" leaves to the data, and the atoms to start from."""
        model = self.estimator
        problem, options = problem_of(model), options_of(model, data, seed=start.seed)
        warm_up(data, problem, options)
        started = time.perf_counter()
        sample = self._sample(data, options)
        atoms = starting_atoms(model, data, problem, options)
        n_bytes = 0 if data.in_memory else data.stored_bytes(np.arange(sample.shape[0]))
        if model.init is None:
            n_bytes += data.stored_bytes(np.arange(min(options.n_components, data.shape[0])))
        problem = self._with_alpha(problem, sample, atoms, options)
        model.reduction_path_ = []
        if model.reduction == "auto":
            reduction, model.reduction_path_ = _choose(data, problem, options, start.validation, atoms)
            options = options_of(model, data, seed=options.seed, reduction=reduction)
        masks_of(data, options.reduction, seed=0)  # refuses one that is too large before anything changes
        n_bytes += sum(trial.bytes_read for trial in model.reduction_path_)
        state = State.start(atoms, problem, masked=options.masked)
        return FitSetup(problem, options, state, sample, 0, Elapsed(time.perf_counter() - started, n_bytes))

    def _resumed(self, data: MatrixSource, start: Start, state_dict: StateDict) -> FitSetup:
        model = self.estimator
        self._set_choices(state_dict)
        options = options_to_go_on(model, data, seed=start.seed)
        state, sample = State.from_state_dict(state_dict), self._sample(data, options)
        return FitSetup(problem_of(model), options, state, sample, state.n_batches, start.elapsed)

    def _sample(self, source: MatrixSource, options: SolverOptions) -> MatrixSource:
        """Return the rows by which alpha, the end of the fit and its result are judged."""
        n_rows = defaults.sample_size(options.batch_size, source.shape[1], source.stored_share)
        return sample_rows(source, n_rows, options.seed, allow_nan=options.missing)

    def _with_alpha(self, problem: Problem, sample: MatrixSource, atoms: Array, options: SolverOptions) -> Problem:
        """Set alpha and batch size, and return the problem with the alpha that "auto" stands for."""
        model = self.estimator
        if model.alpha == "auto":
            problem = replace(problem, alpha=defaults.choose_alpha(problem, sample, atoms, options))
        model.alpha_, model.batch_size_ = float(problem.alpha), options.batch_size
        return problem

    def learn(self, data: MatrixSource, callbacks: Sequence[Callback]) -> None:
        begun, model = self.beginning, self.estimator
        state = solver.fit(
            data, begun.problem, begun.options, begun.state, [*callbacks, self._note_end],
            sample=begun.sample, first_batch=begun.first_batch, elapsed=begun.elapsed,
        )  # fmt: skip
        self._set_state(state)
        if begun.sample is not None:  # rows that come in parts have no passes
            model.n_iter_ = max(1, math.ceil(state.n_samples / data.shape[0]))

    def _note_end(self, snapshot: Snapshot) -> None:
        self.stopped_by = snapshot.stopped_by

    def review(self, data: MatrixSource) -> list[Advice]:
        begun, state = self.beginning, self.estimator._state
        if state.n_steps == 0:
            raise DataError(
                "the steps met no observed value, so there is nothing to learn from: every entry of X is missing, or "
                "the masks of all steps left out those that are not"
            )
        if begun.sample is None:
            return []
        return advice(data, begun.sample, state, begun.problem, begun.options, self.stopped_by)

    def _set_state(self, state: State) -> None:
        model = self.estimator
        model._state = state
        model.components_ = state.dictionary
        model.n_steps_ = state.n_steps
        model.feature_counts_ = state.feature_counts

    def state_dict(self, state_dict: StateDict | None = None) -> StateDict:
        model = self.estimator
        if state_dict is None:
            check_usable(model)
            state_dict = model._state.state_dict()
        names = getattr(model, "feature_names_in_", None)
        facts = {
            "seed": model._seed,
            "statistics": model.statistics_,
            "rows": model._n_rows,
            "alpha": model.alpha_,
            "batch_size": model.batch_size_,
            "reduction": to_plain(model.reduction_),
            "reduction_path": [asdict(trial) for trial in model.reduction_path_],
            "constraint": to_plain(model._constraint),
            "feature_names": None if names is None else [str(name) for name in names],
            "geometry": None if model.geometry_ is None else list(model.geometry_),
            "stopped_by": getattr(model, "stopped_by_", None),
        }
        return StateDict(facts | dict(state_dict.numbers), state_dict.arrays)

    def restore(self, state_dict: StateDict) -> None:
        model, numbers = self.estimator, state_dict.numbers
        self._set_choices(state_dict)
        problem, state = problem_of(model), State.from_state_dict(state_dict)
        if len(state.dictionary) != model.n_components:
            raise DataError(f"the file has {len(state.dictionary)} atoms, but n_components is {model.n_components}")
        model._seed = state_dict.number("seed")
        model._constraint = from_plain(numbers).get("constraint", problem.constraint)
        model.statistics_ = state_dict.number("statistics", str)
        model.n_features_in_ = state.dictionary.shape[1]
        if numbers.get("feature_names") is not None:
            model.feature_names_in_ = np.array(numbers["feature_names"], dtype=object)
        model.geometry_ = None if numbers.get("geometry") is None else tuple(numbers["geometry"])
        if numbers.get("stopped_by") is not None:
            model.stopped_by_ = str(numbers["stopped_by"])
        model._n_rows = int(numbers.get("rows", state.n_samples))
        model.n_iter_ = max(1, math.ceil(state.n_samples / max(model._n_rows, 1)))
        self._set_state(state)

    def _set_choices(self, state_dict: StateDict) -> None:
        """Set alpha, batch size and reduction from a file; those of earlier versions leave some to the parameters."""
        model, numbers = self.estimator, state_dict.numbers
        model.alpha_ = state_dict.number("alpha", float) if "alpha" in numbers else float(model.alpha)
        model.batch_size_ = state_dict.number("batch_size") if "batch_size" in numbers else int(model.batch_size)
        model.reduction_ = state_dict.number("reduction", float) if "reduction" in numbers else float(model.reduction)
        model.reduction_path_ = [ReductionTrial(**trial) for trial in numbers.get("reduction_path", ())]


def _choose(
    data: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    validation: MatrixSource | None,
    atoms: Array,
) -> tuple[float, list[ReductionTrial]]:
    """Return the reduction that trials on the data choose, and the trials."""

    def start(tried: SolverOptions) -> State:
        return State.start(atoms.copy(), problem, masked=tried.masked)

    held_out = validation or rows_to_compare_on(data, options.seed)
    planned = replace(options, n_epochs=min(options.n_epochs, PLANNED_PASSES))
    return choose_reduction(data, held_out, problem, planned, start)
