"""One step of the default method: encode a batch of users, update the statistics of its items, solve for the items."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array
from terafactor.kernels.blas import address
from terafactor.kernels.ratings import update_items
from terafactor.ratings.methods.batches import RatingBatch
from terafactor.ratings.methods.encode import encode, prior_arrays, split_by_ratings
from terafactor.ratings.methods.state import ITEM_BIAS, USER_BIAS, CompletionState

MIN_NOISE = 1e-3
"""Smallest noise variance of standardized ratings, so that systems are well conditioned."""


@dataclass(frozen=True)
class CompletionOptions:
    """Parameters of a step."""

    alpha: float | None
    """Ridge per standardized rating; None learns noise and priors instead."""

    memory: float
    """Passes over the data in which the weight of a rating decays to 1 / e."""

    explicit_biases: bool
    """Whether the coordinates that multiply biases are fixed at one."""

    @property
    def learned(self) -> bool:
        """Whether noise and priors are learned."""
        return self.alpha is None


def step(
    state: CompletionState, batch: RatingBatch, options: CompletionOptions, threads: Threads
) -> tuple[Array, Array]:
    """Learn from one batch, changing ``state`` only; return codes and variances of its users, (b, width) each."""
    codes, variances, errors = encode(
        batch.starts, batch.items, batch.values, state.factors, state.variances, state.user_prior, state.noise,
        options.alpha, threads,
    )  # fmt: skip
    correct_ratings(state, batch, codes, options, threads)
    k, decay = state.n_components, math.exp(-len(batch.users) / (options.memory * state.n_users))
    state.user_prior.update(
        codes[:, :k], variances[:, :k], decay, learned=options.learned,
        fixed=ITEM_BIAS if options.explicit_biases else None,
    )  # fmt: skip
    state.squared_error = decay * state.squared_error + float(errors.sum(dtype=np.float64))
    state.n_errors = decay * state.n_errors + len(batch.items)
    if options.learned:
        state.noise = max(state.mean_error, MIN_NOISE)
    else:
        variances[:] = 0
    solve_items(state, batch, codes, variances, options, threads)
    seen = state.counts > 0
    state.item_prior.update(
        state.factors[seen, :k], state.variances[seen, :k], 0.0, learned=options.learned,
        fixed=USER_BIAS if options.explicit_biases else None,
    )  # fmt: skip
    state.n_steps += 1
    state.n_samples += len(batch.users)
    return codes, variances


def solve_items(
    state: CompletionState, batch: RatingBatch, codes: Array, variances: Array, options: CompletionOptions,
    threads: Threads,
) -> None:  # fmt: skip
    """Add codes and variances of a batch to the statistics of its items, and solve for these items."""
    precision, linear, mean = prior_arrays(state.item_prior, state.noise, state.factors.shape[1])
    syrk, ridge = address("syrk", codes.dtype), np.float32(options.alpha or 0)

    def solve(start: int, stop: int) -> None:
        update_items(
            syrk, codes, variances, batch.item_starts, batch.item_users, batch.item_values, batch.present,
            options.memory, state.totals, ridge, precision, linear, mean, np.float32(state.noise),
            state.n_components, start, stop, state.statistics, state.weights, state.counts, state.factors,
            state.variances,
        )  # fmt: skip

    split_by_ratings(solve, batch.item_starts, threads)
    if not options.learned:
        state.variances[batch.present] = 0


def correct_ratings(
    state: CompletionState, batch: RatingBatch, codes: Array, options: CompletionOptions, threads: Threads
) -> None:
    """Replace changed ratings in the statistics of their items: ``sum of a x`` moves by the change times a code.

    The code is the mean of those before and after the change, so that undoing a change undoes its correction. Gram
    matrices do not change and stay positive semidefinite. ``weights / counts`` is the mean decayed weight of a rating.
    """
    if batch.changes is None or not batch.changes.any():
        return
    changed, k = np.flatnonzero(batch.changes), state.n_components
    users, items = np.searchsorted(batch.starts, changed, side="right") - 1, batch.items[changed]
    before, _, _ = encode(
        batch.starts, batch.items, batch.values - batch.changes, state.factors, state.variances, state.user_prior,
        state.noise, options.alpha, threads,
    )  # fmt: skip
    weights = batch.changes[changed] * state.weights[items] / np.maximum(state.counts[items], 1)
    moves = weights[:, np.newaxis].astype(np.float32) * (before + codes)[users, :k] / 2
    np.add.at(state.statistics[:, :k, -1], items, moves)
