"""Convergence: doubling the rows seen hardly lowers the objective on a sample any more.

The sample is fixed, so that differences come from the atoms and not from the rows. The error of online learning falls
as a power of the number of rows seen, so the gain of the last doubling is about what is left to gain. Passes are the
wrong unit: a small table takes many of them, a huge file less than one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from terafactor.data import MatrixSource
from terafactor.problem import ElasticNet, Problem
from terafactor.solver.callbacks import Evaluation
from terafactor.solver.encode import objective
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State

CHECKS_PER_DOUBLING = 4
"""Evaluations of the sample while the number of rows seen doubles."""

FIRST_CHECK, EARLIEST_END = 5, 50
"""Rows per atom before the first check, and before a fit may count as converged: the objective is often flat at first.
A fit also waits until unused atoms can have been found and replaced."""

CYCLES = 30
"""Cycles of masks before a fit may count as converged: it can seem to stall until each feature was updated often."""

CONVERGED = 5e-3
"""Default tolerance: relative decrease of the objective while the number of rows seen doubles."""

NEGLIGIBLE = 1e-6
"""Share of the energy of rows below which an objective counts as zero."""


class ConvergenceMonitor:
    """Evaluates the objective on a sample of rows from time to time, and decides whether the fit has converged.

    Parameters
    ----------
    sample : MatrixSource
        The rows.
    problem : Problem
    options : SolverOptions
        ``tol`` is the relative decrease per doubling of the rows seen below which the fit has converged.
    cycle_length : int
        Number of steps in which the masks cover every feature once.
    """

    def __init__(self, sample: MatrixSource, problem: Problem, options: SolverOptions, cycle_length: int) -> None:
        self.objective = partial(objective, sample, n_threads=options.n_threads, missing=options.missing)
        self.problem = problem
        self.tol = options.tol
        self.fewest_batches = CYCLES * cycle_length if cycle_length > 1 else 1
        self.first = FIRST_CHECK * options.n_components
        self.earliest = max(EARLIEST_END * options.n_components, 2 * options.reseed_after)
        self._assessed: list[tuple[int, float]] = []
        self._is_flat = False
        zero_atom = np.zeros((1, sample.shape[1]), sample.dtype)
        unpenalized = replace(problem, alpha=0.0, penalty=ElasticNet(0.0))  # other penalties may need all atoms
        energy = self.objective(zero_atom, unpenalized)  # the mean of |x|^2 / 2
        self.least = NEGLIGIBLE * energy

    def check(self, state: State) -> bool:
        """Evaluate the sample if it is due; return whether the last two evaluations show convergence.

        Evaluations are kept in the state, so that a resumed fit stops where an uninterrupted one would.
        """
        checks = state.checks
        due = checks[-1][0] * 2 ** (1 / CHECKS_PER_DOUBLING) if checks else self.first
        if state.n_samples >= due:
            newest = (state.n_samples, max(self.objective(state.dictionary, self.problem), self.least))
            checks = state.checks = [*checks[-CHECKS_PER_DOUBLING - 1 :], newest]
        if checks is not self._assessed:
            self._assessed = checks
            enough = len(checks) >= CHECKS_PER_DOUBLING + 2 and checks[-1][0] >= self.earliest
            self._is_flat = enough and all(last_decrease(until) <= self.tol for until in (checks, checks[:-1]))
        return self._is_flat and state.n_batches >= self.fewest_batches


def last_decrease(checks: Sequence[tuple[int, float]]) -> float:
    """Return the relative decrease of the objective over the last doubling of the rows seen; NaN if unknown.

    checks: (rows seen, objective), oldest first.
    """
    if not checks:
        return math.nan
    rows, values = (np.array(column, np.float64) for column in zip(*checks, strict=True))
    half = rows[-1] / 2
    if rows[0] > half * 2 ** (1 / CHECKS_PER_DOUBLING):  # allow for an evaluation that came late
        return math.nan
    before = float(np.interp(math.log(half), np.log(rows), values))
    return (before - values[-1]) / max(abs(values[-1]), np.finfo(np.float64).tiny)


def decrease_per_pass(checks: Sequence[tuple[int, float]], n_rows: int) -> float:
    """Return the relative decrease of the objective that one more pass over ``n_rows`` rows would bring."""
    return last_decrease(checks) * n_rows / (checks[-1][0] / 2) if checks else math.nan


def describe_progress(
    checks: Sequence[tuple[int, float]], history: Sequence[Evaluation], n_rows: int, tol: float = CONVERGED
) -> str:
    """Return "converged", "still improving by 1.2 % per pass", or "" if unknown.

    n_rows: rows of a pass; tol: decrease that counts as none. Without checks, held-out objectives are used.
    """
    held_out = [(line.n_samples, line.objective) for line in history if line.objective is not None]
    checks = checks or held_out
    if last_decrease(checks) <= tol:
        return "converged"
    fall = decrease_per_pass(checks, n_rows)
    return "" if math.isnan(fall) else f"still improving by {100 * fall:.2g} % per pass"
