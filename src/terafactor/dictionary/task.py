"""Training of a dictionary: what MaskedDictionaryLearning contributes to the Trainer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from terafactor.dictionary.parameters import check_usable, initial_atoms, options_of, problem_of, resumed_options
from terafactor.dictionary.rows import rows_of
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.problem.masks import resolve_masks
from terafactor.runs.parameters import from_plain, to_plain
from terafactor.solver.callbacks import Callback, Snapshot
from terafactor.solver.fit import first_rows
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.options import SolverOptions
from terafactor.solver.rounds import Executor
from terafactor.solver.state import State
from terafactor.solver.state_dict import StateDict
from terafactor.solver.warm_up import warm_up
from terafactor.training.holdout import hold_out_rows
from terafactor.training.task import Start, Task

if TYPE_CHECKING:
    from terafactor.dictionary.estimator import MaskedDictionaryLearning


@dataclass(frozen=True)
class FitSetup:
    """The arguments of a fit, with every "auto" resolved."""

    problem: Problem
    options: SolverOptions
    state: State
    sample: MatrixSource | None
    """Rows on which convergence and the result are assessed; None for ``partial_fit``."""

    first_batch: int = 0
    elapsed: Elapsed | None = None


class DictionaryTask(Task):
    """Learns a dictionary from all rows of a source."""

    kind = "MaskedDictionaryLearning"
    estimator: MaskedDictionaryLearning
    setup: FitSetup
    """Set by :meth:`prepare`."""

    stopped_by: str | None = None
    """What ended the fit."""

    def open_data(self, X: Any) -> MatrixSource:
        problem_of(self.estimator)  # refuse invalid parameters before reading data
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

        def evaluate(fit: RunningFit) -> float:  # alpha is known only after prepare()
            return solver.objective(held_out, fit.atoms(), problem_of(model), n_threads, missing=missing)

        return evaluate

    def prepare(self, data: MatrixSource, start: Start) -> None:
        if start.state_dict is None:
            self.use(self._first_setup(data, start), data)
            return
        self._set_choices(start.state_dict)
        state, options = State.from_state_dict(start.state_dict), resumed_options(self.estimator, data, seed=start.seed)
        sample, problem = sample_of(data, options), problem_of(self.estimator)
        self.use(FitSetup(problem, options, state, sample, state.n_batches, start.elapsed), data)

    def _first_setup(self, data: MatrixSource, start: Start) -> FitSetup:
        """Initialize the atoms, and resolve the parameters that depend on the data."""
        model = self.estimator
        problem, options = problem_of(model), options_of(model, data, seed=start.seed)
        warm_up(data, problem, options)
        started = time.perf_counter()
        problem, sample, atoms = resolved_problem(model, data, problem, options)
        n_bytes = 0 if data.in_memory else data.stored_bytes(np.arange(sample.shape[0]))
        if model.init is None:
            n_bytes += data.stored_bytes(first_rows(data, options))
        state = State.start(atoms, problem)
        return FitSetup(problem, options, state, sample, 0, Elapsed(time.perf_counter() - started, n_bytes))

    def use(self, setup: FitSetup, data: MatrixSource) -> None:
        """Set the attributes that checkpoints record about a fit."""
        model, self.setup = self.estimator, setup
        model.alpha_, model.batch_size_ = float(setup.problem.alpha), setup.options.batch_size
        model.statistics_, model.reduction_ = setup.options.statistics, setup.options.reduction
        model.shards_, model.round_steps_ = setup.options.shards, setup.options.round_steps
        model._seed, model._constraint = setup.options.seed, setup.problem.constraint
        model._n_rows, model.geometry_ = data.shape[0], data.geometry

    def learn(self, data: MatrixSource, callbacks: Sequence[Callback]) -> None:
        setup, model = self.setup, self.estimator
        state = solver.fit(
            data, setup.problem, setup.options, setup.state, [*callbacks, self._record_end],
            sample=setup.sample, first_batch=setup.first_batch, elapsed=setup.elapsed, executor=self.executor(),
        )  # fmt: skip
        self._set_state(state)
        if setup.sample is not None:
            model.n_iter_ = max(1, math.ceil(state.n_samples / data.shape[0]))

    def executor(self) -> Executor | None:
        """Return where shards run; None for threads of this process."""
        return None

    def _record_end(self, snapshot: Snapshot) -> None:
        self.stopped_by = snapshot.stopped_by

    def review(self, data: MatrixSource) -> list[Advice]:
        setup, state = self.setup, self.estimator._state
        if state.n_steps == 0:
            raise DataError(
                "no step observed any value, so nothing was learned: every entry of X is missing, or the masks of all "
                "steps excluded those that are not"
            )
        if setup.sample is None:
            return []
        auto = self.estimator.alpha == "auto"
        return advice(data, setup.sample, state, setup.problem, setup.options, self.stopped_by, auto=auto)

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
            "shards": model.shards_,
            "round_steps": model.round_steps_,
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
        """Set the values of "auto" from a file; those that an older file lacks are parameters."""
        model, numbers = self.estimator, state_dict.numbers
        model.alpha_ = state_dict.number("alpha", float) if "alpha" in numbers else float(model.alpha)
        model.batch_size_ = state_dict.number("batch_size") if "batch_size" in numbers else int(model.batch_size)
        reduction = state_dict.number("reduction", float) if "reduction" in numbers else model.reduction
        model.reduction_ = resolve_masks(reduction).reduction
        model.statistics_ = state_dict.number("statistics", str)
        model.shards_ = state_dict.number("shards") if "shards" in numbers else 1
        model.round_steps_ = state_dict.number("round_steps") if "round_steps" in numbers else 1


def resolved_problem(
    model: MaskedDictionaryLearning, source: MatrixSource, problem: Problem, options: SolverOptions
) -> tuple[Problem, MatrixSource, Array]:
    """Return the problem with alpha="auto" resolved, the sample of rows used for it, and the initial atoms (k, p)."""
    sample, atoms = sample_of(source, options), initial_atoms(model, source, problem, options)
    return defaults.with_alpha(model.alpha, problem, sample, atoms, options), sample, atoms


def sample_of(source: MatrixSource, options: SolverOptions) -> MatrixSource:
    """Return the rows on which alpha, convergence and the result are assessed."""
    fitting = defaults.SAMPLE_VALUES / max(source.shape[1] * source.stored_share, 1e-9)
    n_rows = min(defaults.SAMPLE_BATCHES * options.batch_size, max(fitting, defaults.SMALLEST_SAMPLE))
    return sample_rows(source, int(n_rows), options.seed, allow_nan=options.missing)
