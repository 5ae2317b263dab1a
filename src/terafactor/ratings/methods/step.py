"""One step: code the users of a batch, take the codes into the statistics of its items, solve for these items."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array
from terafactor.kernels.blas import address
from terafactor.kernels.ratings import absorb_items
from terafactor.ratings.methods.batches import RatingBatch
from terafactor.ratings.methods.encode import encode, lower, split_ratings
from terafactor.ratings.methods.state import ITEM_BIAS, USER_BIAS, CompletionState

MEMORY = 0.56
"""Long enough to average over batches, short enough to forget codes of a time when items were worse."""

LEAST_NOISE = 1e-3
"""Variance of the noise, of ratings of variance one, below which systems would be too badly conditioned."""


@dataclass(frozen=True)
class CompletionOptions:
    """How to learn."""

    alpha: float | None
    """Ridge per rating of variance one; None: learned from the data."""

    memory: float = MEMORY
    """Passes over the data after which what was learned from a rating has decayed to 1 / e of its weight."""

    pinned: bool = False
    """Whether biases are explicit: the other side's coordinate stays at one."""

    @property
    def learned(self) -> bool:
        """Whether noise and priors are learned, so that uncertainty takes the place of the ridge."""
        return self.alpha is None


def step(
    state: CompletionState, batch: RatingBatch, options: CompletionOptions, executor: Executor
) -> tuple[Array, Array]:
    """Learn from one batch, changing ``state`` only; return codes and variances of its users, (b, width) each."""
    codes, variances, errors = encode(
        batch.starts, batch.items, batch.values, state.factors, state.variances, state.user_prior, state.noise,
        options.alpha, executor,
    )  # fmt: skip
    k, decay = state.n_components, math.exp(-len(batch.users) / (options.memory * state.n_users))
    state.user_prior.follow(
        codes[:, :k], variances[:, :k], decay, learned=options.learned,
        pinned=ITEM_BIAS if options.pinned else None,
    )  # fmt: skip
    follow_errors(state, float(errors.sum(dtype=np.float64)), len(batch.items), decay)
    if options.learned:
        state.noise = max(state.mean_error, LEAST_NOISE)
    else:
        variances[:] = 0
    solve_items(state, batch, codes, variances, options, executor)
    seen = state.counts > 0
    state.item_prior.follow(
        state.factors[seen, :k], state.variances[seen, :k], 0.0, learned=options.learned,
        pinned=USER_BIAS if options.pinned else None,
    )  # fmt: skip
    state.n_steps += 1
    state.n_samples += len(batch.users)
    return codes, variances


def follow_errors(state: CompletionState, squared_error: float, n_ratings: int, decay: float) -> None:
    """Take in the expected squared errors of a batch."""
    state.squared_error = decay * state.squared_error + squared_error
    state.n_errors = decay * state.n_errors + n_ratings


def solve_items(
    state: CompletionState, batch: RatingBatch, codes: Array, variances: Array, options: CompletionOptions,
    executor: Executor,
) -> None:  # fmt: skip
    """Take codes and variances of a batch into the statistics of its items, and solve for these."""
    precision, pull, mean = lower(state.item_prior, state.noise, state.factors.shape[1])
    syrk, ridge = address("syrk", codes.dtype), np.float32(options.alpha or 0)

    def solve(start: int, stop: int) -> None:
        absorb_items(
            syrk, codes, variances, batch.item_starts, batch.item_users, batch.item_values, batch.present,
            options.memory, state.totals, ridge, precision, pull, mean, np.float32(state.noise),
            state.n_components, start, stop, state.statistics, state.weights, state.counts, state.factors,
            state.variances,
        )  # fmt: skip

    split_ratings(solve, batch.item_starts, executor)
    if not options.learned:
        state.variances[batch.present] = 0
