"""The default algorithm: one Gram matrix of codes per item."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.ratings import row_width
from terafactor.ratings.methods.batches import RatingBatch, make_batches, make_update_batches
from terafactor.ratings.methods.state import DAMPING, CompletionState
from terafactor.ratings.methods.step import CompletionOptions, step
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.table.history import RatingUpdate
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import Elapsed, RunningFit, run_loop
from terafactor.solver.maintain import Evidence
from terafactor.solver.state_dict import StateDict
from terafactor.solver.warm_up import warm_up_once

N_BATCHES = 10
"""Default number of batches per pass; each batch solves for the items that it rates."""

CONSTANT = 1e-6
"""Ratings are constant if their standard deviation, relative to their mean, is at most this."""


@dataclass(frozen=True)
class PerItemMethod:
    """Learns the factors of each item from the codes of the users who rated it."""

    n_components: int
    options: CompletionOptions
    """Parameters of a step."""

    seed: int
    keep_codes: bool = False
    """Whether state_dicts hold the code of each user at its last step."""

    batch_size: int | None = None
    """Users per step; None uses a tenth of them."""

    n_epochs: float = 1
    tol: float = 0.0
    max_time: float | None = None
    shuffle: bool = True
    """Whether users are visited in random order; otherwise in the order of their numbers."""

    n_threads: int = 1

    def learn(
        self,
        table: RatingTable,
        callbacks: Sequence[Callback] = (),
        *,
        start: StateDict | None = None,
        elapsed: Elapsed | None = None,
    ) -> CompletionState:
        """Learn from a table, from scratch or from a state_dict."""
        warm_up_once("ratings", "ratings", self._learn_toy)
        started = time.perf_counter()
        with Threads(self.n_threads) as threads:
            state = self._initial_state(table) if start is None else CompletionState.from_state_dict(start)
            batches = self._batches(table, state, threads)
            last = math.ceil(self.n_epochs * len(batches) - 1e-9)  # rounded as in the loop of dictionaries
            running = CompletionFit(batches, self, state, threads, self._kept_codes(table, state, start))
            run_loop(
                running, range(state.n_batches, last), len(batches), callbacks, max_time=self.max_time,
                elapsed=elapsed, started=started,
            )  # fmt: skip
        return state

    def _learn_toy(self) -> None:
        """Learn from four ratings, to compile all kernels."""
        toy = RatingTable.of([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 3, 5])
        method = replace(self, n_components=2, n_epochs=1, batch_size=None, tol=0.0, max_time=None, n_threads=1)
        with Threads() as threads:
            method.codes(method.learn(toy), toy, threads)

    def learn_more(
        self, state: CompletionState, update: RatingUpdate, callbacks: Sequence[Callback] = ()
    ) -> CompletionState:
        """Learn from the users with new or changed ratings, in the order of their numbers.

        Codes are computed from all ratings of these users. The statistics of items count each pair once: new pairs are
        added, and changed ratings corrected by the difference.
        """
        once, state = replace(self, tol=0.0, shuffle=False), state.resized(*update.rows.shape)
        state.count_ratings(update)
        groups, values = self._groups(np.unique(update.rows.users)), state.standardized(update.rows.values)
        batches = make_update_batches(update, values, update.change / np.float32(state.scale), groups)
        with Threads(self.n_threads) as threads:
            run_loop(CompletionFit(batches, once, state, threads), range(len(batches)), len(batches), callbacks)
        return state

    def item_model_builder(self, table: RatingTable) -> Callable[[RunningFit], RatingModel]:
        """Return a function that builds the item side of the model from a running fit on ``table``."""
        return lambda running: self.item_model(running.state)  # type: ignore[arg-type]

    def item_model(self, state: CompletionState) -> RatingModel:
        """Return the item side of the model."""
        return state.item_model(self.options.alpha)

    def codes(self, state: CompletionState, table: RatingTable, threads: Threads) -> Codes:
        """Return the codes of the users of a table."""
        return self.item_model(state).encode(*table.by_user(), threads)

    def from_state_dict(self, state_dict: StateDict) -> CompletionState:
        """Return the state stored in a state_dict."""
        return CompletionState.from_state_dict(state_dict)

    def last_codes(self, state_dict: StateDict) -> Codes | None:
        """Return the codes that the last step of each user computed, if they were kept."""
        if not self.keep_codes:
            return None
        factors, variances = state_dict.array("last_codes", (2, None, row_width(self.n_components)), np.float32)
        return Codes(factors, variances, np.zeros(len(factors), np.float32))

    def _initial_state(self, table: RatingTable) -> CompletionState:
        """Return the state before the first step, with the mean and the standard deviation of the ratings."""
        offset = float(table.values.mean(dtype=np.float64))
        scale = float(table.values.std(dtype=np.float64))
        scale = scale if scale > CONSTANT * abs(offset) else 1.0
        counts = np.bincount(table.items, minlength=table.shape[1])
        totals = np.bincount(table.items, table.values, table.shape[1])
        means = (totals - offset * counts) / scale / (counts + DAMPING)
        state = CompletionState.initial(
            means,
            self.n_components,
            self.seed,
            learned=self.options.learned,
            explicit_biases=self.options.explicit_biases,
        )
        state.offset, state.scale = offset, scale
        state.totals += counts
        state.n_users = int(np.count_nonzero(np.bincount(table.users, minlength=table.shape[0])))
        return state

    def _kept_codes(self, table: RatingTable, state: CompletionState, start: StateDict | None) -> Array | None:
        """Return the array of last codes and variances (2, n, width), initially the mean code; None unless kept."""
        if not self.keep_codes:
            return None
        codes = np.zeros((2, table.shape[0], row_width(self.n_components)), np.float32)
        if start is not None and "last_codes" in start.arrays:
            return start.array("last_codes", codes.shape, np.float32)
        codes[0, :, : self.n_components] = state.user_prior.mean
        return codes

    def _batches(self, table: RatingTable, state: CompletionState, threads: Threads) -> list[RatingBatch]:
        """Return fixed batches of the users that have ratings, with standardized ratings."""
        users = np.flatnonzero(np.bincount(table.users, minlength=table.shape[0]))
        if self.shuffle:
            users = generator(self.seed, Purpose.ROW_ORDER).permutation(users)
        values = state.standardized(table.values)
        return make_batches(table.users, table.items, values, self._groups(users), table.shape[1], threads)

    def _groups(self, users: Indices) -> list[Indices]:
        size = self.batch_size or math.ceil(len(users) / N_BATCHES)
        return np.array_split(users, math.ceil(len(users) / size))


class CompletionFit:
    """The fit that the training loop runs: one step per batch, with the batches in a new order in each pass."""

    def __init__(
        self,
        batches: Sequence[RatingBatch],
        method: PerItemMethod,
        state: CompletionState,
        threads: Threads,
        last_codes: Array | None = None,
    ) -> None:
        self.last_codes = last_codes
        self.may_converge = method.tol > 0
        self.batches = batches
        self.method = method
        self.state = state
        self.threads = threads

    def steps(self, numbers: range) -> Generator[Evidence, None, None]:
        for number in numbers:
            epoch, place = divmod(number, len(self.batches))
            if epoch > 0 and place == 0:
                self.state.last_error = self.state.mean_error
            batch = self.batches[self._order(epoch)[place]]
            codes = step(self.state, batch, self.method.options, self.threads)
            if self.last_codes is not None:
                self.last_codes[:, batch.users] = codes
            self.state.n_batches += 1
            yield Evidence(1, batch.n_bytes)

    def _order(self, epoch: int) -> Indices:
        """Return the order of the batches in a pass."""
        if not self.method.shuffle:
            return np.arange(len(self.batches))
        return generator(self.method.seed, Purpose.ROW_ORDER, epoch + 1).permutation(len(self.batches))

    def has_converged(self) -> bool:
        state = self.state
        if state.n_batches == 0 or state.n_batches % len(self.batches) or self.method.tol == 0:
            return False
        return abs(state.last_error - state.mean_error) <= self.method.tol * state.mean_error

    def surrogate(self) -> float:
        return self.state.mean_error * self.state.scale**2

    def atoms(self) -> Array:
        return self.state.factors[:, : self.state.n_components].T

    def state_dict(self) -> StateDict:
        kept = {} if self.last_codes is None else {"last_codes": self.last_codes}
        return self.state.state_dict().merged_with(StateDict({}, kept))
