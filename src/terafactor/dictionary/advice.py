"""Warnings about a fit that worked but is likely not what was wanted, each with the number that would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from terafactor import solver
from terafactor._format import count, number, percent
from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.dictionary.defaults import lasso_strength
from terafactor.errors import FitWarning
from terafactor.problem import ElasticNet, Problem
from terafactor.solver import SolverOptions, State
from terafactor.solver.convergence import decrease_per_pass, last_decrease

MOST = 0.9
"""Share of rows without a code, of codes that are not zero, or of the energy in one column, above which we warn."""


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
) -> list[Advice]:
    """Return what a user should know about a fit that has ended.

    sample: rows of the source to judge by; stopped_by: what ended the fit.
    """
    atoms = state.dictionary
    codes = solver.encode(sample, atoms, problem, options.n_threads, missing=options.missing)
    found = [
        *_dominant_column(sample, source.feature_names),
        *_about_codes(codes, atoms, sample, problem, options),
        *_unused_atoms(state),
        *_worse_with_masks(state, source.shape[1], options),
    ]
    if stopped_by == "n_epochs" and options.tol > 0:
        found.append(_not_settled(state, source.shape[0], options))
    return found


def _dominant_column(sample: MatrixSource, names: Sequence[str] | None) -> list[Advice]:
    """Warn of a column that makes up nearly all of the squared error, so that the others are ignored."""
    if sample.is_sparse or sample.shape[1] < 3:
        return []
    values = sample.read(np.arange(sample.shape[0])).astype(np.float64)
    energies = np.nansum(np.square(values), axis=0)
    largest = int(energies.argmax())
    share = energies[largest] / max(energies.sum(), np.finfo(np.float64).tiny)
    if share <= MOST:
        return []
    name = f"column {largest}" if names is None else f"column {names[largest]!r}"
    return [
        Advice(
            f"{name} holds {percent(share)} of the squared values of X, so that the other {count(len(energies) - 1)} "
            "columns hardly count: bring columns to one scale, for example with sklearn's StandardScaler"
        )
    ]


def _about_codes(
    codes: Array, atoms: Array, sample: MatrixSource, problem: Problem, options: SolverOptions
) -> list[Advice]:
    """Warn of codes that are nearly all zero, or hardly ever."""
    if not isinstance(problem.penalty, ElasticNet) or problem.alpha == 0 or problem.penalty.l1_ratio == 0:
        return []
    empty, dense = float((codes == 0).all(axis=1).mean()), float((codes != 0).mean())
    if empty <= MOST and dense <= MOST:
        return []
    better = lasso_strength(problem, sample, atoms, options) / problem.penalty.l1_ratio
    if empty > MOST:
        what, remedy = (
            f"{percent(empty)} of the rows have no code: alpha={number(problem.alpha)} is too strong",
            "lower",
        )
    else:
        what, remedy = (
            f"{percent(dense)} of the codes are not zero: alpha={number(problem.alpha)} is too weak",
            "higher",
        )
    return [Advice(f"{what} for this data; try a {remedy} one, alpha={better:.2g}, or alpha='auto'")]


def _unused_atoms(state: State) -> list[Advice]:
    """Warn of atoms that have served no row for as long as statistics remember."""
    unused, total = int((np.diagonal(state.code_gram) == 0).sum()), len(state.code_gram)
    if unused in (0, total):  # all of them: rows have no codes, which is another warning
        return []
    return [
        Advice(
            f"{count(unused)} of the {count(total)} atoms are used by no row: n_components={total - unused} or a lower "
            "alpha would suit this data"
        )
    ]


def _worse_with_masks(state: State, n_features: int, options: SolverOptions) -> list[Advice]:
    """Warn of masks that are too small to learn from, so that atoms get worse as more rows are seen."""
    rise = -last_decrease(state.checks)
    if options.reduction == 1 or not rise > RISE:
        return []
    return [
        Advice(
            f"the objective rose by {percent(rise)} while the rows seen doubled: "
            f"{count(n_features / options.reduction)} features per step are too few to code rows with "
            f"{options.n_components} atoms; lower reduction (now {options.reduction:g})"
        )
    ]


def _not_settled(state: State, n_rows: int, options: SolverOptions) -> Advice:
    fall = decrease_per_pass(state.checks, n_rows)
    pace = "it is too early to tell how fast the objective falls" if math.isnan(fall) else (
        f"the objective still improves by {100 * fall:.2g} % per pass"
    )  # fmt: skip
    return Advice(
        f"the fit ended after {number(state.n_samples / n_rows)} passes over {count(n_rows)} rows before it settled "
        f"(tol={options.tol:g}): {pace}; raise n_epochs to go on for longer, or tol to be content earlier",
        ConvergenceWarning,
    )
