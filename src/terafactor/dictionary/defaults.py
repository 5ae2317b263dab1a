"""The values of "auto". Each rule depends on sizes or on the scale of the data, so that any units work.

The constants were measured on patches, spectra, digits, fMRI and simulations: docs/results/learning.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.errors import ParameterError
from terafactor.problem import GrowingWindow, NormBall, Problem
from terafactor.solver.encode import zero_strengths
from terafactor.solver.options import SolverOptions

ROWS_PER_ATOM = 2
"""Rows per atom of a batch, and of the first window of the statistics. A step costs ``3 k^2 p`` for the atoms and
``4 b k p`` for its rows: with fewer rows the atoms dominate, with more they are updated too rarely."""

LONGEST_WINDOW = 0.5
"""Longest window of the statistics, in passes: 86 % of the weight is then within one pass."""

PARTLY_SEEN = 0.67
"""Growth of the window if features are observed in some of the rows only."""

FEWEST_ROWS = 32
"""Smallest batch: below, the overhead of a step is most of its cost."""

MOST_BATCH_VALUES = 2**26
"""Most values of a batch: 256 MB of float32."""

MOST_ROWS_PER_ATOM, MOST_PASSES = 20_000, 200
"""Rows per atom, and passes, after which a fit that has not converged ends with a warning."""

ROUND_STEPS_OF_ONE_ATOM, FEWEST_ROUND_STEPS, MOST_ROUND_STEPS = 250, 5, 20
"""Steps of a shard between merges: the first number divided by the number of atoms, within the other two. A merge
exchanges 16 k p bytes, a step does about 11 k^2 p operations: at 10 Gbit/s and 20 GFLOP/s, merges take a tenth of the
time. Up to 10 steps cost no more rows than merging after every step does."""

HUGE_BYTES = 2**33
"""Data on disk larger than this are read at most once."""

SAMPLE_BATCHES, SAMPLE_VALUES, SMALLEST_SAMPLE = 4, 2**23, 32
"""Size of the sample: batches, most values, fewest rows."""


def batch_size(n_components: int, n_features: int) -> int:
    """Return the rows per step."""
    return max(1, min(max(ROWS_PER_ATOM * n_components, FEWEST_ROWS), MOST_BATCH_VALUES // n_features))


def round_steps(n_components: int) -> int:
    """Return the steps of a shard in a round."""
    return max(FEWEST_ROUND_STEPS, min(ROUND_STEPS_OF_ONE_ATOM // n_components, MOST_ROUND_STEPS))


def schedule(options: SolverOptions, n_rows: int | None) -> GrowingWindow:
    """Return the decay of the statistics. n_rows: rows of a pass; None for a stream, which has no passes."""
    unit = ROWS_PER_ATOM * options.n_components
    if options.masked or options.missing:
        return GrowingWindow(unit, exponent=PARTLY_SEEN)
    return GrowingWindow(unit, math.inf if n_rows is None else n_rows * LONGEST_WINDOW)


def most_passes(source: MatrixSource, n_components: int) -> float:
    """Return the largest number of passes of a fit that runs until convergence."""
    n_rows, n_features = source.shape
    if not source.in_memory and n_rows * n_features * source.dtype.itemsize > HUGE_BYTES:
        return 1.0
    return float(min(max(math.ceil(MOST_ROWS_PER_ATOM * n_components / n_rows), 1), MOST_PASSES))


def with_alpha(alpha: Any, problem: Problem, sample: MatrixSource, atoms: Array, options: SolverOptions) -> Problem:
    """Return the problem with ``alpha="auto"`` resolved; any other alpha is already part of it."""
    if alpha != "auto":
        return problem
    suggested = suggest_alpha(problem, sample, atoms, options)
    if suggested is None:
        raise ParameterError(f"alpha='auto' has no rule for {type(problem.penalty).__name__}: pass a number >= 0")
    return replace(problem, alpha=suggested)


def suggest_alpha(problem: Problem, sample: MatrixSource, atoms: Array, options: SolverOptions) -> float | None:
    """Return alpha by the rule of the penalty, None if it has no rule. sample: some rows; atoms (k, p): initial ones.

    With non-negative codes and atoms it is 0, because non-negative matrix factorization is sparse by itself.
    """
    penalty = problem.penalty
    if getattr(penalty, "positive", False) and problem.constraint.positive:
        return 0.0
    strengths = zero_strengths(sample, atoms, penalty, options.n_threads, missing=options.missing)
    is_known = not np.isnan(strengths).all()
    positive = strengths[strengths > 0]  # empty rows have zero codes anyway
    median = float(np.median(positive)) if len(positive) else 0.0
    alpha = penalty.auto_alpha(median if is_known else np.nan, even_atom_energy(problem.constraint, atoms.shape))
    return None if alpha is None else float(alpha)


def even_atom_energy(constraint: NormBall, shape: tuple[int, ...]) -> float:
    """Return the squared norm of an atom of the ball that is spread evenly over 1/k of the features.

    In the l2 ball it is 1 for any spread. In the l1 ball, learned atoms have about this norm, while initial atoms,
    spread over all features, have 1/k of it.
    """
    n_components, n_features = shape
    atom = constraint.fill(np.ones((1, max(1, round(n_features / n_components)))))
    return float(np.square(atom).sum())
