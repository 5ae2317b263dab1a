"""Maintenance between steps: unused atoms, rounding errors in sizes, overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data import Batch
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State

CYCLES_OF_SIZES = 10
"""Cycles of masks after which the sizes of atoms are recomputed: masked steps only update them, and errors add up."""


@dataclass(frozen=True)
class WorstRows:
    """Rows with a large reconstruction error, the largest first: one for each unused atom, if there are as many."""

    values: Array
    """Values (m, s), zero where missing."""

    errors: Array
    """Squared reconstruction errors (m,)."""

    columns: Indices | None
    """Features observed (s,); None for all."""


@dataclass(frozen=True)
class Evidence:
    """What some steps report besides the new state."""

    n_batches: int
    """Batches learned from, all of one epoch."""

    n_bytes: int
    """Bytes read from the source."""

    worst_rows: WorstRows | None = None
    """Worst rows of the last batch; None unless an atom is unused."""

    rows: Indices | None = None
    """Numbers of the rows (m,)."""

    codes: Array | None = None
    """Their codes (m, k)."""


def find_worst_rows(state: State, batch: Batch, codes: Array, options: SolverOptions) -> WorstRows | None:
    """Return the rows of a batch that can re-initialize unused atoms; None if no atom is unused.

    A batch without any nonzero code means that the penalty is strong, not that atoms are useless. The codes are those
    of the step, found before its sweep.
    """
    if not has_unused_atoms(state, options) or not codes.any():
        return None
    atoms = state.dictionary if batch.columns is None else state.dictionary[:, batch.columns]
    residual = batch.values - codes @ atoms
    if batch.observed is not None:
        residual *= batch.observed
    errors = np.einsum("ij,ij->i", residual, residual)
    worst = np.argsort(-errors, kind="stable")[: np.count_nonzero(state.idle_rows >= options.reseed_after)]
    if batch.whole is not None:
        return WorstRows(batch.whole[worst], errors[worst], None)
    return WorstRows(batch.values[worst], errors[worst], batch.columns)


def has_unused_atoms(state: State, options: SolverOptions) -> bool:
    """Return whether some atom has had no nonzero code for ``options.reseed_after`` rows."""
    return bool(state.idle_rows.max() >= options.reseed_after)


def maintain(state: State, evidence: Evidence, problem: Problem, options: SolverOptions) -> None:
    """Prepare a state for the next steps: re-initialize unused atoms, recompute sizes, refuse overflow."""
    if evidence.worst_rows is not None:
        reseed_unused(state, evidence.worst_rows, problem, options.reseed_after)
    cycle_length = math.ceil(options.reduction)
    partly_seen = cycle_length > 1 or options.missing
    if partly_seen and state.n_batches % (CYCLES_OF_SIZES * cycle_length) == 0:
        state.sizes = problem.constraint.psi(state.dictionary)
    check_atoms(state)


def reseed_unused(state: State, worst: WorstRows, problem: Problem, reseed_after: int) -> None:
    """Re-initialize unused atoms with badly reconstructed rows.

    An atom made from a masked row fills only the mask's share of the ball, so that later masks can fill the rest. Its
    statistics are set to zero; otherwise the next sweep would undo the change.
    """
    chosen = slice(None) if worst.columns is None else worst.columns
    share = worst.values.shape[1] / state.dictionary.shape[1]
    for atom, row in zip(np.flatnonzero(state.idle_rows >= reseed_after), worst.values, strict=False):
        state.idle_rows[atom] = 0
        seed = problem.constraint.fill(row[np.newaxis], share)
        if not seed.any():  # a row of zeros, or one without positive entries
            continue
        state.dictionary[atom] = 0
        state.dictionary[atom, chosen] = seed[0]
        state.data_code[atom] = 0
        state.code_gram[atom, :] = 0
        state.code_gram[:, atom] = 0
        state.sizes[atom] = problem.constraint.psi(seed)[0]
        state.multipliers[atom] = 0
        state.n_reseeded += 1


def check_atoms(state: State) -> None:
    """Raise DataError if atoms or codes are no longer finite."""
    if not math.isfinite(state.sizes.sum() + state.code_gram.trace()):
        raise DataError(
            f"atoms overflow {state.dictionary.dtype} because codes are tiny compared with X: alpha is too large for "
            "this X; lower alpha, rescale X, or pass X as float64"
        )
