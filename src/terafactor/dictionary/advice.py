"""Warnings about a fit that succeeded but is probably not what the user wants, with a number that would help."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from terafactor import solver
from terafactor._format import count, number, percent
from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.dictionary.defaults import suggest_alpha
from terafactor.dictionary.rows import drop_advice
from terafactor.errors import FitWarning
from terafactor.problem import Problem
from terafactor.solver import SolverOptions, State
from terafactor.solver.convergence import decrease_per_pass, last_decrease

MOST = 0.9
"""Share of rows without a code, of nonzero codes, or of the energy in one column, above which we warn."""

NEGATIVE = 0.01
"""Share of the energy in negative entries above which we warn if codes and atoms are non-negative."""

SIMILAR = 0.1
"""Relative difference of alpha below which we suggest no other value."""

FEWEST_COUNTED = 10
"""Rows of a sample from which we conclude that a column numbers the rows."""

RISE = 0.02
"""Relative rise of the objective over a doubling of the rows seen above which we warn."""


class Advice(NamedTuple):
    """A warning and its category."""

    text: str
    category: type[Warning] = FitWarning


def advice(
    source: MatrixSource,
    sample: MatrixSource,
    state: State,
    problem: Problem,
    options: SolverOptions,
    stopped_by: str | None,
    *,
    auto: bool,
) -> list[Advice]:
    """Return warnings about a fit that has ended.

    sample: some rows of the source; stopped_by: what ended the fit; auto: whether alpha is that of "auto".
    """
    atoms = state.dictionary
    codes = solver.encode(sample, atoms, problem, options.n_threads, missing=options.missing)
    found = [
        *_about_values(sample, source, problem),
        *_about_codes(codes, atoms, sample, problem, options, auto),
        *_unused_atoms(state, source.shape[0]),
        *_worse_with_masks(state, source.shape[1], options),
    ]
    if stopped_by == "n_epochs" and options.tol > 0 and not last_decrease(state.checks) <= options.tol:
        found.append(_not_converged(state, source.shape[0], options))
    return found


def _about_values(sample: MatrixSource, source: MatrixSource, problem: Problem) -> list[Advice]:
    """Warn about values that atoms cannot represent, row numbers, and a column that hides the others."""
    if sample.is_sparse:
        return []
    values = sample.read(np.arange(sample.shape[0]))
    energies = np.einsum("ij,ij->j", values, values, dtype=np.float64)
    if np.isnan(energies).any():
        energies = np.nansum(np.square(values, dtype=np.float64), axis=0)
    total = float(energies.sum())
    if total == 0:
        return [Advice(f"all values are zero in {count(len(values))} rows of X, chosen at random: nothing to learn")]
    found = []
    if problem.constraint.positive and getattr(problem.penalty, "positive", False):
        negative = float(np.square(np.fmin(values, 0), dtype=np.float64).sum()) / total
        if negative > NEGATIVE:
            found.append(
                Advice(
                    f"{percent(negative)} of the squared values of X are of negative entries, which non-negative codes "
                    "and atoms cannot represent: shift X, or set positive_code or positive_dict to False"
                )
            )
    return found + (_row_numbers(values, source) or _dominant_column(energies / total, source))


def _row_numbers(values: Array, source: MatrixSource) -> list[Advice]:
    """Warn about a column of ``values`` (m, p), rows of the source in ascending order, that counts the rows.

    It holds integers that increase from row to row, over a range of about the number of rows; not exactly that number,
    as rows may be held out.
    """
    if len(values) < FEWEST_COUNTED or values.shape[1] < 2:
        return []
    steps, span = np.diff(values, axis=0), values[-1] - values[0]
    counts = ((steps >= 1) & (steps == np.round(steps))).all(axis=0) & (span < 2 * source.shape[0])
    if not counts.any():
        return []
    column = int(counts.argmax())
    text = f"{_named(source, column)} of {source.record_name(0)} counts the rows, but is used as a feature"
    return [Advice(f"{text}: {drop_advice(source, column)}")]


def _named(source: MatrixSource, column: int) -> str:
    return f"column {column if source.feature_names is None else repr(source.feature_names[column])}"


def _dominant_column(shares: Array, source: MatrixSource) -> list[Advice]:
    """Warn about a column with nearly all of the energy. shares (p,): of the energy, by column."""
    largest = int(shares.argmax())
    if shares[largest] <= MOST or len(shares) < 3:
        return []
    return [
        Advice(
            f"{_named(source, largest)} holds {percent(shares[largest])} of the squared values of X, so the other "
            f"{count(len(shares) - 1)} columns hardly count: rescale the columns, for example with sklearn's "
            "StandardScaler"
        )
    ]


def _about_codes(
    codes: Array, atoms: Array, sample: MatrixSource, problem: Problem, options: SolverOptions, auto: bool
) -> list[Advice]:
    """Warn about codes that are nearly always, or hardly ever, zero."""
    if problem.alpha == 0 or not problem.penalty.is_sparse:
        return []
    empty, dense = float((codes == 0).all(axis=1).mean()), float((codes != 0).mean())
    if empty <= MOST and dense <= MOST:
        return []
    better = suggest_alpha(problem, sample, atoms, options)
    if better == 0:  # all rows are zero, which is another warning
        return []
    if better is not None and math.isclose(better, problem.alpha, rel_tol=SIMILAR):
        return []
    alpha = number(problem.alpha)
    if empty > MOST:
        what, other = (
            f"{percent(empty)} of the rows have only zero codes: alpha={alpha} is too large",
            "a smaller value",
        )
    else:
        what, other = f"{percent(dense)} of the codes are nonzero: alpha={alpha} is too small", "a larger value"
    way_out = f"try {other}" if better is None else f"try alpha={better:.2g}" + ("" if auto else ", or alpha='auto'")
    return [Advice(f"{what} for this data; {way_out}")]


def _unused_atoms(state: State, n_rows: int) -> list[Advice]:
    """Warn about more atoms than rows, or atoms that no row used within the window of the statistics."""
    unused, total = int((np.diagonal(state.code_gram) == 0).sum()), len(state.code_gram)
    if total > n_rows:
        return [Advice(f"n_components={total} exceeds the {count(n_rows)} rows of X: use fewer atoms than rows")]
    if unused in (0, total):  # if all are unused, rows have zero codes, which is another warning
        return []
    verb = "is" if unused == 1 else "are"
    return [
        Advice(
            f"{count(unused)} of the {count(total)} atoms {verb} not used by any row: try "
            f"n_components={total - unused} or a smaller alpha"
        )
    ]


def _worse_with_masks(state: State, n_features: int, options: SolverOptions) -> list[Advice]:
    """Warn about masks that are too small to learn from, so that atoms get worse as more rows are seen."""
    rise = -last_decrease(state.checks)
    if options.reduction == 1 or not rise > RISE:
        return []
    return [
        Advice(
            f"the objective rose by {percent(rise)} while the rows seen doubled: "
            f"{count(n_features / options.reduction)} features per step are too few for {options.n_components} atoms; "
            f"use a smaller reduction (now {options.reduction:g})"
        )
    ]


def _not_converged(state: State, n_rows: int, options: SolverOptions) -> Advice:
    fall = decrease_per_pass(state.checks, n_rows)
    pace = "" if math.isnan(fall) else f", while the objective was improving by {100 * fall:.2g} % per pass"
    return Advice(
        f"the fit ended after {number(state.n_samples / n_rows)} passes over {count(n_rows)} rows before it converged "
        f"(tol={options.tol:g}){pace}: increase n_epochs to continue for longer, or tol to stop earlier",
        ConvergenceWarning,
    )
