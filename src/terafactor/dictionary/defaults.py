"""What "auto" stands for. Each rule uses sizes, or the data in units of its own, so that no scale of data is special.

The constants were measured on patches, spectra, digits, fMRI and simulations: docs/results/learning.md.
"""

from __future__ import annotations

import math

import numpy as np

from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.errors import ParameterError
from terafactor.problem import ElasticNet, GrowingWindow, NormBall, Problem
from terafactor.solver.encode import strongest_penalties
from terafactor.solver.options import SolverOptions

ROWS_PER_ATOM = 2
"""Rows of a batch, and of the first window of the statistics, per atom. A step costs ``3 k^2 p`` for the atoms and
``4 b k p`` for its rows: with fewer rows the atoms take most of it, with more the atoms move too rarely."""

LONGEST_WINDOW = 0.5
"""Longest window of the statistics, in passes: 86 % of their weight then is within one pass."""

PARTLY_SEEN = 0.67
"""Growth of the window where features are seen in some of the rows only."""

FEWEST_ROWS = 32
"""Rows of a batch at least: below, the overhead of a step is most of its cost."""

MOST_BATCH_VALUES = 2**26
"""Values of a batch at most, 256 MB of float32."""

MOST_ROWS_PER_ATOM, MOST_PASSES = 20_000, 200
"""Rows per atom, and passes, after which a fit that has not settled ends with a warning."""

HUGE_BYTES = 2**33
"""Bytes of data on disk from which on one pass is the most."""

SAMPLE_BATCHES, SAMPLE_VALUES, SMALLEST_SAMPLE = 4, 2**23, 32
"""Rows to judge by: so many batches, or fewer where rows are long, but not fewer than the last."""

LASSO_SHARE = 0.2
"""Strength of the l1 penalty over that which leaves the code of the median row empty, with the atoms of the start."""

RIDGE_SHARE = 0.1
"""Strength of the l2 penalty over the squared norm of an atom: codes are a tenth shorter than without it."""


def batch_size(n_components: int, n_features: int) -> int:
    """Return the rows per step."""
    return max(1, min(max(ROWS_PER_ATOM * n_components, FEWEST_ROWS), MOST_BATCH_VALUES // n_features))


def schedule(options: SolverOptions, n_rows: int | None) -> GrowingWindow:
    """Return how fast the statistics forget. n_rows: of a pass; None for a stream, which has none."""
    unit = ROWS_PER_ATOM * options.n_components
    if options.masked or options.missing:
        return GrowingWindow(unit, exponent=PARTLY_SEEN)
    return GrowingWindow(unit, math.inf if n_rows is None else n_rows * LONGEST_WINDOW)


def most_passes(source: MatrixSource, n_components: int) -> float:
    """Return the bound on passes for a fit that should settle before."""
    n_rows, n_features = source.shape
    if not source.in_memory and n_rows * n_features * source.dtype.itemsize > HUGE_BYTES:
        return 1.0
    return float(min(max(math.ceil(MOST_ROWS_PER_ATOM * n_components / n_rows), 1), MOST_PASSES))


def sample_size(batch_size: int, n_features: int, stored_share: float) -> int:
    """Return the number of rows to judge by. stored_share: of the entries, for sparse rows."""
    fitting = int(SAMPLE_VALUES / (n_features * stored_share))
    return min(SAMPLE_BATCHES * batch_size, max(fitting, SMALLEST_SAMPLE))


def choose_alpha(problem: Problem, sample: MatrixSource, atoms: Array, options: SolverOptions) -> float:
    """Return the strength of the penalty.

    problem: whatever its own strength; sample: some rows; atoms (k, p): those of the start.

    - l1: a share of what would leave the code of the median row empty, hence in the units of X.
    - l2: a share of the squared norm of an atom, hence without units.
    - A mixture of both: the weaker of the two.
    - Non-negative codes and atoms: none. Non-negative matrix factorization makes zeros by itself.
    """
    penalty = problem.penalty
    if not isinstance(penalty, ElasticNet):
        raise ParameterError(f"alpha='auto' has no rule for {type(penalty).__name__}: pass a number >= 0")
    if penalty.positive and problem.constraint.positive:
        return 0.0
    strengths = []
    if penalty.l1_ratio > 0:
        strengths.append(lasso_strength(problem, sample, atoms, options) / penalty.l1_ratio)
    if penalty.l1_ratio < 1:
        strengths.append(RIDGE_SHARE * even_atom_energy(problem.constraint, atoms.shape) / (1 - penalty.l1_ratio))
    return min(strengths)


def lasso_strength(problem: Problem, sample: MatrixSource, atoms: Array, options: SolverOptions) -> float:
    """Return the l1 strength that leaves a few codes per row, with these atoms; 0 where rows are zero."""
    strengths = strongest_penalties(
        sample, atoms, options.n_threads, positive=getattr(problem.penalty, "positive", False), missing=options.missing
    )
    strengths = strengths[strengths > 0]
    return LASSO_SHARE * float(np.median(strengths)) if len(strengths) else 0.0


def even_atom_energy(constraint: NormBall, shape: tuple[int, ...]) -> float:
    """Return the squared norm of an atom of the ball that is spread evenly over one k-th of the features.

    In the l2 ball it is 1 for any spread. In the l1 ball learned atoms come to have about this norm, whereas those of
    the start, spread over all features, have a k-th of it.
    """
    n_components, n_features = shape
    atom = constraint.fill(np.ones((1, max(1, round(n_features / n_components)))))
    return float(np.square(atom).sum())
