"""When a fit has settled: the objective on a sample of rows hardly falls any more while the rows seen double.

The same rows are evaluated every time, so that differences are those of the atoms and not of the rows. Progress of
online learning is a power of the rows seen, never of the clock: what the last doubling brought is about what is left
to gain. A pass would be the wrong unit, since a small table takes many passes and a huge file a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.problem import ElasticNet, Problem
from terafactor.solver.callbacks import Evaluation
from terafactor.solver.encode import objective
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State

CHECKS_PER_DOUBLING = 4
"""Evaluations of the sample while the rows seen double."""

FIRST_CHECK, EARLIEST_END = 5, 50
"""Rows per atom before the first evaluation, and before a fit may count as settled: a start often begins level. Unused
atoms are also given the time to be found and replaced, and to learn."""

CYCLES = 30
"""Cycles of masks before a fit may count as settled: before each feature was moved often, masks can seem to stall."""

CONVERGED = 5e-3
"""Relative fall of the objective over a doubling of the rows seen that counts as none, unless ``tol`` is given."""

NEGLIGIBLE = 1e-6
"""Share of the energy of rows below which an objective is as good as zero, however often it still halves."""


class ConvergenceMonitor:
    """Evaluates a sample of rows now and then, and says whether the objective on it has settled.

    Parameters
    ----------
    sample : MatrixSource
        The rows.
    problem : Problem
    options : SolverOptions
        ``tol`` is the fall of the objective, relative to its value, that counts as none when it took a doubling of
        the rows seen.
    cycle_length : int
        Steps in which masks show every feature once.
    """

    def __init__(self, sample: MatrixSource, problem: Problem, options: SolverOptions, cycle_length: int) -> None:
        self.objective = partial(
            objective, sample, problem=problem, n_threads=options.n_threads, missing=options.missing
        )
        self.tol = options.tol
        self.fewest_batches = CYCLES * cycle_length if cycle_length > 1 else 1
        self.first = FIRST_CHECK * options.n_components
        self.earliest = max(EARLIEST_END * options.n_components, 2 * options.reseed_after)
        self._judged: list[tuple[int, float]] = []
        self._is_level = False
        unpenalized = replace(problem, alpha=0.0, penalty=ElasticNet(0.0))  # other penalties may need all atoms
        nothing = np.zeros((1, sample.shape[1]), sample.dtype)
        self.least = NEGLIGIBLE * objective(
            sample, nothing, unpenalized, options.n_threads, missing=options.missing
        )  # fmt: skip

    def is_due(self, state: State) -> bool:
        """Whether the sample is to be evaluated now."""
        if not state.checks:
            return state.n_samples >= self.first
        return state.n_samples >= state.checks[-1][0] * 2 ** (1 / CHECKS_PER_DOUBLING)

    def check(self, state: State, atoms: Array) -> None:
        """Evaluate the sample, and keep it in the state so that a resumed fit stops where it would have."""
        newest = (state.n_samples, max(self.objective(atoms), self.least))
        state.checks = [*state.checks[-CHECKS_PER_DOUBLING - 1 :], newest]

    def has_converged(self, state: State) -> bool:
        """Whether the last two evaluations, even those before an interruption, showed no more than ``tol``."""
        if state.checks is not self._judged:
            self._judged = state.checks
            falls = (last_decrease(state.checks), last_decrease(state.checks[:-1]))
            enough = len(state.checks) >= CHECKS_PER_DOUBLING + 2 and state.checks[-1][0] >= self.earliest
            self._is_level = enough and all(fall <= self.tol for fall in falls)
        return self._is_level and state.n_batches >= self.fewest_batches


def last_decrease(checks: Sequence[tuple[int, float]]) -> float:
    """Return the relative fall of the objective over the last doubling of the rows seen, NaN where it is not known.

    checks: rows seen and objective, oldest first.
    """
    if not checks:
        return math.nan
    rows, values = (np.array(column, np.float64) for column in zip(*checks, strict=True))
    half = rows[-1] / 2
    if rows[0] > half * 2 ** (1 / CHECKS_PER_DOUBLING):  # one evaluation may come a little late
        return math.nan
    before = float(np.interp(math.log(half), np.log(rows), values))
    return (before - values[-1]) / max(abs(values[-1]), np.finfo(np.float64).tiny)


def decrease_per_pass(checks: Sequence[tuple[int, float]], n_rows: int) -> float:
    """Return by how much, relatively, one more pass over ``n_rows`` rows lowers the objective at the present pace."""
    return last_decrease(checks) * n_rows / (checks[-1][0] / 2) if checks else math.nan


def describe_progress(
    checks: Sequence[tuple[int, float]], history: Sequence[Evaluation], n_rows: int, tol: float = CONVERGED
) -> str:
    """Return "settled", "still improving by 1.2 % per pass", or nothing where it is not known.

    n_rows: of a pass; tol: what counts as settled. Where no sample was evaluated, held-out rows tell.
    """
    held_out = [(line.n_samples, line.objective) for line in history if line.objective is not None]
    checks = checks or held_out
    if last_decrease(checks) <= tol:
        return "settled"
    fall = decrease_per_pass(checks, n_rows)
    return "" if math.isnan(fall) else f"still improving by {100 * fall:.2g} % per pass"
