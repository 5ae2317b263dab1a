"""One step of the algorithm: Procedure 1 of the paper, between drawing the batch and the stopping test."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from terafactor._threads import Executor, nothing
from terafactor._typing import Array
from terafactor.data import Batch
from terafactor.kernels.atoms import atom_sizes, sweep_atoms
from terafactor.problem import Problem
from terafactor.solver.lazy import LazyAtoms
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import BatchSums, SurrogateState, absorb, observed, put_back


def step(
    state: SurrogateState,
    batch: Batch,
    problem: Problem,
    options: SolverOptions,
    executor: Executor,
    meanwhile: Callable[[], object] | None = None,
) -> Array:
    """Learn from one batch: code its rows, update the statistics, sweep over the atoms. Changes ``state`` only.

    A batch without any value is passed over. meanwhile: called when one thread is enough for what follows. Returns the
    codes (b, k).
    """
    state.n_batches += 1
    state.inner = None
    if batch.values.shape[1] == 0:
        return np.zeros((len(batch.values), len(state.dictionary)), state.dictionary.dtype)
    if options.exact and state.lazy is None:
        state.lazy = LazyAtoms.start(state.dictionary.shape, math.ceil(options.reduction))
    lazy = state.lazy
    if lazy is not None and batch.columns is not None:
        lazy.prepare(state.dictionary, batch.columns, executor)
    atoms, take_out = observed(state.dictionary, batch.columns)
    as_written = atoms
    if lazy is not None:
        executor.over_features(take_out, atoms.shape[1])
        atoms, take_out = lazy.up_to_date(as_written), nothing
    codes = problem.encode(
        batch.values, atoms, state.dictionary.shape[1], executor, batch.observed, before=take_out, meanwhile=meanwhile
    )
    sums, product = BatchSums.of(batch, codes, problem.penalty)
    data_code, take_in = absorb(state, sums, options.schedule, batch.columns, executor, product)
    write = put_back(atoms, batch.columns, state.dictionary)
    ball = problem.constraint.lower()
    if lazy is not None and batch.columns is not None:
        executor.over_features(take_in, atoms.shape[1])
        lazy.sweep(
            as_written, atoms, data_code, state.code_gram, ball, state.multipliers, state.dictionary, batch.columns
        )
        executor.over_features(write, atoms.shape[1])
    else:
        sweep_atoms(
            atoms,
            data_code,
            state.code_gram,
            ball,
            state.sizes,
            state.multipliers,
            whole=batch.columns is None,
            executor=executor,
            before=take_in,
            after=write,
        )
    if lazy is not None:
        lazy.finish(state.dictionary, executor)
    # A batch without any nonzero code says that the penalty is strong, not that atoms are of no use.
    if state.idle_rows.max() >= options.reseed_after and sums.used.any():
        if lazy is not None:
            lazy.settle(state.dictionary, executor)
        reseed_unused(state, batch, codes, atoms, problem, options.reseed_after)
    return codes


def reseed_unused(
    state: SurrogateState, batch: Batch, codes: Array, atoms: Array, problem: Problem, reseed_after: int
) -> None:
    """Start unused atoms anew from the rows of the batch that are reconstructed worst.

    An atom seen through a mask starts with the mask's share of the ball, so that the masks after it find room; the
    statistics of the atom start from zero, or the next sweep would undo the change.
    """
    state.inner = None
    residual = batch.values - codes @ atoms
    if batch.observed is not None:
        residual *= batch.observed
    worst_first = np.argsort(-np.einsum("ij,ij->i", residual, residual), kind="stable")
    unused = np.flatnonzero(state.idle_rows >= reseed_after)
    l1_weight, l2_weight, _, _ = problem.constraint.lower()
    values = batch.values if batch.whole is None else batch.whole.together()
    chosen = slice(None) if batch.columns is None or batch.whole is not None else batch.columns
    for atom, row in zip(unused, worst_first, strict=False):
        state.idle_rows[atom] = 0
        seed = problem.constraint.fill(values[row : row + 1], share=values.shape[1] / state.dictionary.shape[1])
        if not seed.any():  # a row of zeros, or one without positive entries
            continue
        state.dictionary[atom] = 0
        state.dictionary[atom, chosen] = seed[0]
        state.data_code[atom] = 0
        state.code_gram[atom, :] = 0
        state.code_gram[:, atom] = 0
        state.sizes[atom] = atom_sizes(seed, l1_weight, l2_weight)[0]
        state.multipliers[atom] = 0
        state.n_reseeded += 1
