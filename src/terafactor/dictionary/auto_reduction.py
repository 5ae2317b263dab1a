"""``reduction="auto"``: start unreasonably high, halve it until held-out rows are explained no better."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from terafactor import solver
from terafactor.data import MatrixSource
from terafactor.data.masks import largest_reduction
from terafactor.data.views.rows import SelectedRows, choose_rows
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver.callbacks import Snapshot
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State

logger = logging.getLogger("terafactor")

BUDGET = 0.2
"""Rows that a trial sees, as a share of those planned for the fit."""

FEWEST_STEPS = 60
"""Steps of a trial, unless fewer are planned for the fit: below, a trial tells little."""

VISITS = 5
"""Steps of a trial that use a feature, at least: with fewer, atoms stay near their start and all trials look alike."""

TOLERANCE = 0.02
"""Share of what atoms explain that may be given up for a higher reduction."""

PATIENCE = 2
"""Trials in a row that improve by less than the tolerance, after which lower reductions are not tried."""

ROWS, ROWS_SHARE = 200, 0.05
"""Rows to compare on: this many, or this share of them where that is less."""


@dataclass(frozen=True)
class ReductionTrial:
    """A short fit with one reduction."""

    reduction: float
    """The one tried."""

    objective: float
    """Objective on the rows compared on."""

    n_samples: int
    """Rows learned from."""

    bytes_read: int
    """Bytes read from the source."""


def choose_reduction(
    source: MatrixSource,
    held_out: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    start: Callable[[SolverOptions], State | None],
) -> tuple[float, list[ReductionTrial]]:
    """Return the largest reduction that explains held-out rows about as well as any lower one, and the trials.

    Nothing in it depends on time: the same seed makes the same choice.

    Parameters
    ----------
    source : MatrixSource
        What will be learned from.
    held_out : MatrixSource
        Rows to compare on.
    problem : Problem
    options : SolverOptions
        Those of the fit; their reduction is ignored.
    start : callable
        Returns the state that a fit with some options starts from.
    """
    nothing = np.zeros((options.n_components, source.shape[1]), source.dtype)
    unexplained = solver.objective(held_out, nothing, problem, options.n_threads, missing=options.missing)
    if np.isnan(unexplained):
        raise ParameterError(
            f"reduction='auto' compares reductions on {held_out.shape[0]} rows, none of which has a value: "
            "give fit a validation that has some, or reduction a number"
        )
    path: list[ReductionTrial] = []
    for trial in _trials(source, held_out, problem, options, start):
        path.append(trial)
        logger.info("reduction %g: held-out objective %.6g", trial.reduction, trial.objective)
        if has_converged(path, unexplained):
            break
    chosen = largest_as_good(path, unexplained) if path else 1.0
    logger.info("reduction %g chosen", chosen)
    return chosen, path


def rows_to_compare_on(source: MatrixSource, seed: int) -> MatrixSource:
    """Return a few rows of a source; the fit after the trials learns from them as well."""
    n_rows = source.shape[0]
    rows = choose_rows(source, max(1, min(ROWS, int(ROWS_SHARE * n_rows))), seed)
    if len(rows) == n_rows:
        raise ParameterError(
            f"reduction='auto' compares reductions on rows that trials do not learn from, and the {n_rows} rows come "
            "in one block: give fit a validation, or reduction a number"
        )
    return SelectedRows(source, rows)


def candidates(source: MatrixSource, options: SolverOptions) -> list[int]:
    """Return the reductions to try: powers of two downward, from the highest with which a trial can learn anything."""
    n_steps = _trial_epochs(source, options) * source.shape[0] / options.batch_size
    highest = min(n_steps / VISITS, source.shape[1] / options.n_components, largest_reduction(source))
    if highest < 2:
        return []
    return [2**power for power in range(int(np.log2(highest)), -1, -1)]


def has_converged(path: Sequence[ReductionTrial], unexplained: float) -> bool:
    """Tell whether the last trials brought nothing over the best before them."""
    if len(path) <= PATIENCE:
        return False
    before = min(trial.objective for trial in path[:-PATIENCE])
    after = min(trial.objective for trial in path[-PATIENCE:])
    return before - after <= TOLERANCE * (unexplained - before)


def largest_as_good(path: Sequence[ReductionTrial], unexplained: float) -> float:
    """Return the largest reduction within the tolerance of the best."""
    best = min(trial.objective for trial in path)
    allowed = best + TOLERANCE * (unexplained - best)
    return float(max(trial.reduction for trial in path if trial.objective <= allowed))


def _trial_epochs(source: MatrixSource, options: SolverOptions) -> float:
    fewest = FEWEST_STEPS * options.batch_size / source.shape[0]
    return min(options.n_epochs, max(BUDGET * options.n_epochs, fewest))


def _trials(
    source: MatrixSource,
    held_out: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    start: Callable[[SolverOptions], State | None],
) -> Iterator[ReductionTrial]:
    learned_from = _without(source, held_out)
    n_epochs = _trial_epochs(source, options)
    for reduction in candidates(source, options):
        tried = replace(options, reduction=reduction, n_epochs=n_epochs, tol=0.0, max_time=None)
        last = _Last()
        state = solver.fit(learned_from, problem, tried, start(tried), [last])
        atoms = np.ascontiguousarray(state.dictionary)
        value = solver.objective(held_out, atoms, problem, options.n_threads, missing=options.missing)
        evaluated = held_out.shape[0] * held_out.shape[1] * held_out.dtype.itemsize
        yield ReductionTrial(reduction, value, state.n_samples, last.bytes_read + evaluated)


def _without(source: MatrixSource, held_out: MatrixSource) -> MatrixSource:
    """Return the source without the rows held out, where these are its own."""
    if not (isinstance(held_out, SelectedRows) and held_out.base is source):
        return source
    return SelectedRows(source, np.setdiff1d(np.arange(source.shape[0]), held_out.rows, assume_unique=True))


class _Last:
    """Callback that keeps the bytes read."""

    bytes_read = 0

    def __call__(self, snapshot: Snapshot) -> None:
        self.bytes_read = snapshot.bytes_read
