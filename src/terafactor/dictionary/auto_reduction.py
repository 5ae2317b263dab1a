"""``reduction="auto"``: start with a large reduction and halve it until held-out rows are not explained better."""

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
"""Rows of a trial, as a share of those planned for the fit."""

FEWEST_STEPS = 60
"""Fewest steps of a trial, unless the fit has fewer."""

VISITS = 5
"""Fewest steps of a trial per feature: with fewer, atoms stay near their initial values and all trials look alike."""

TOLERANCE = 0.02
"""Share of the explained energy that may be lost for a larger reduction."""

PATIENCE = 2
"""Consecutive trials without an improvement above the tolerance, after which the search ends."""

ROWS, ROWS_SHARE = 200, 0.05
"""Rows to compare on: the smaller of this number and this share of all rows."""


@dataclass(frozen=True)
class ReductionTrial:
    """A short fit with one reduction."""

    reduction: float
    """The reduction tried."""

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
    """Return the largest reduction that explains held-out rows about as well as any smaller one, and the trials.

    The choice does not depend on timings: the same seed gives the same choice.

    Parameters
    ----------
    source : MatrixSource
        The training rows.
    held_out : MatrixSource
        Rows to compare on.
    problem : Problem
    options : SolverOptions
        The options of the fit; their reduction is ignored.
    start : callable
        Returns the initial state of a fit with given options.
    """
    nothing = np.zeros((options.n_components, source.shape[1]), source.dtype)
    unexplained = solver.objective(held_out, nothing, problem, options.n_threads, missing=options.missing)
    if np.isnan(unexplained):
        raise ParameterError(
            f"reduction='auto' compares reductions on {held_out.shape[0]} rows, but none of them has a value: "
            "pass validation rows with values to fit, or a number as reduction"
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
    """Return a few rows of a source. The fit after the trials learns from them as well."""
    n_rows = source.shape[0]
    rows = choose_rows(source, max(1, min(ROWS, int(ROWS_SHARE * n_rows))), seed)
    if len(rows) == n_rows:
        raise ParameterError(
            f"reduction='auto' compares reductions on held-out rows, but the {n_rows} rows form one block that cannot "
            "be split: pass validation rows to fit, or a number as reduction"
        )
    return SelectedRows(source, rows)


def candidates(source: MatrixSource, options: SolverOptions) -> list[int]:
    """Return the reductions to try: decreasing powers of two, from the largest with which a trial can learn."""
    n_steps = _trial_epochs(source, options) * source.shape[0] / options.batch_size
    highest = min(n_steps / VISITS, source.shape[1] / options.n_components, largest_reduction(source))
    if highest < 2:
        return []
    return [2**power for power in range(int(np.log2(highest)), -1, -1)]


def has_converged(path: Sequence[ReductionTrial], unexplained: float) -> bool:
    """Return whether the last trials did not improve on the best before them."""
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
    """Return the source without the held-out rows if these come from it."""
    if not (isinstance(held_out, SelectedRows) and held_out.base is source):
        return source
    return SelectedRows(source, np.setdiff1d(np.arange(source.shape[0]), held_out.rows, assume_unique=True))


class _Last:
    """Callback that records the bytes read."""

    bytes_read = 0

    def __call__(self, snapshot: Snapshot) -> None:
        self.bytes_read = snapshot.bytes_read
