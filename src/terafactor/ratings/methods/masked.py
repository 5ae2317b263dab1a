"""The algorithm of the paper: centered ratings, masked statistics, ridge codes, atoms in a ball."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from terafactor import solver
from terafactor._threads import Threads
from terafactor._typing import Array
from terafactor.data import SparseSource
from terafactor.data.views.rows import sample_rows
from terafactor.kernels.ratings import row_width
from terafactor.problem import ElasticNet, NormBall, PowerDecay, Problem
from terafactor.problem.masks import Projection
from terafactor.ratings.methods.biases import Biases
from terafactor.ratings.methods.prior import Prior
from terafactor.ratings.methods.state import zero_padded
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.table.history import RatingUpdate
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.state_dict import StateDict

N_MASKED_BATCHES = 100
"""Default number of batches per pass."""

N_SAMPLED_USERS = 200
"""Users in the sample on which ``tol`` tests convergence."""

MASKED_PROBLEM = Problem(alpha=1.0, penalty=ElasticNet(0.0), constraint=NormBall("l2"))
"""Ridge codes, atoms in the unit ball."""


def extra_state(biases: Biases, last_codes: Array) -> StateDict:
    """Return the entries of a state dict that the solver does not use."""
    arrays = {"last_codes": last_codes, "user_biases": biases.users, "item_biases": biases.items}
    return StateDict({"offset": biases.offset}, arrays)


@dataclass
class MaskedState:
    """State of the algorithm."""

    surrogate: State
    """Atoms and statistics of the solver."""

    biases: Biases
    """Biases subtracted from the ratings."""

    last_codes: Array
    """Code of each user at its last step (n, k)."""

    @property
    def n_steps(self) -> int:
        return self.surrogate.n_steps

    def state_dict(self) -> StateDict:
        """Return the state as named numbers and arrays."""
        return self.surrogate.state_dict().merged_with(extra_state(self.biases, self.last_codes))

    def resized(self, n_users: int, n_items: int) -> MaskedState:
        """Return a copy with room for new users and items, whose codes and atom entries are zero."""
        inner = copy.deepcopy(self.surrogate)
        if n_items > len(inner.feature_counts):
            inner.feature_counts = zero_padded(inner.feature_counts, n_items)
            inner.dictionary, inner.data_code = (
                np.ascontiguousarray(zero_padded(part.T, n_items).T) for part in (inner.dictionary, inner.data_code)
            )
            inner.sizes = MASKED_PROBLEM.constraint.psi(inner.dictionary)
        users, items = zero_padded(self.biases.users, n_users), zero_padded(self.biases.items, n_items)
        return MaskedState(inner, Biases(self.biases.offset, users, items), zero_padded(self.last_codes, n_users))

    def warm_start(self) -> StateDict:
        """Return a state_dict from which a new fit starts with these atoms and biases."""
        surrogate = State.start(self.surrogate.dictionary.copy(), MASKED_PROBLEM)
        return MaskedState(surrogate, self.biases, np.zeros_like(self.last_codes)).state_dict()

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> MaskedState:
        """Return the state stored in a state_dict."""
        surrogate = State.from_state_dict(state_dict)
        codes = state_dict.array("last_codes", (None, len(surrogate.dictionary)), np.float32)
        users = state_dict.array("user_biases", (len(codes),), np.float32)
        items = state_dict.array("item_biases", (surrogate.dictionary.shape[1],), np.float32)
        return cls(surrogate, Biases(state_dict.number("offset", float), users, items), codes)


@dataclass(frozen=True)
class MaskedMethod:
    """Algorithm 1 of the paper on one row per user, in which items without a rating are missing values."""

    n_components: int
    alpha: float
    """Strength of the ridge on codes, twice the paper's lambda."""

    seed: int
    projection: Projection = "masked"
    damping: float = 0.0
    """Pseudo-ratings equal to the mean, added to each user and item in the estimate of its bias."""

    refit: bool = True
    """Whether codes are recomputed at the end; otherwise users keep the code of their last step."""

    batch_size: int | None = None
    """Users per step; None uses a hundredth of them."""

    forgetting: float = 0.9
    n_epochs: float = 1
    tol: float = 0.0
    max_time: float | None = None
    n_threads: int = 1

    def learn(
        self,
        table: RatingTable,
        callbacks: Sequence[Callback] = (),
        *,
        start: StateDict | None = None,
        elapsed: Elapsed | None = None,
    ) -> MaskedState:
        """Learn from a table, from scratch or from a state_dict."""
        if start is None:
            surrogate, first, biases = None, 0, Biases.of(table, self.damping)
            last_codes = np.zeros((table.shape[0], self.n_components), np.float32)
        else:
            before = MaskedState.from_state_dict(start)
            surrogate, biases, last_codes = before.surrogate, before.biases, before.last_codes
            first = surrogate.n_batches
        source = SparseSource(biases.centered(table), "ratings", absent=math.nan)
        options = self._options(table.shape[0])
        sample = sample_rows(source, N_SAMPLED_USERS, self.seed, allow_nan=True) if self.tol > 0 else None
        surrogate = solver.fit(
            source, self._problem(), options, surrogate, callbacks, sample=sample, first_batch=first, elapsed=elapsed,
            last_codes=last_codes, extra_state=extra_state(biases, last_codes),
        )  # fmt: skip
        return MaskedState(surrogate, biases, last_codes)

    def learn_more(self, state: MaskedState, update: RatingUpdate, callbacks: Sequence[Callback] = ()) -> MaskedState:
        """Learn from the rows of the users with new or changed ratings, in the order of their numbers."""
        rows = update.rows
        state = state.resized(*rows.shape)
        state.biases = state.biases.after(rows, state.surrogate.feature_counts > 0, self.damping)
        present = np.unique(rows.users)
        source = SparseSource(state.biases.centered(rows)[present], "ratings", absent=math.nan)
        options = replace(self._options(len(present)), n_epochs=1, tol=0.0, max_time=None, shuffle=False)
        codes = state.last_codes[present]
        solver.fit(source, self._problem(), options, state.surrogate, callbacks, last_codes=codes)
        state.last_codes[present] = codes
        return state

    def item_model_builder(self, table: RatingTable) -> Callable[[RunningFit], RatingModel]:
        """Return a function that builds the item side of the model from a running fit on ``table``."""
        biases = Biases.of(table, self.damping)
        return lambda running: self._model(np.asarray(running.atoms()), biases)

    def item_model(self, state: MaskedState) -> RatingModel:
        """Return the item side of the model."""
        return self._model(state.surrogate.dictionary, state.biases)

    def codes(self, state: MaskedState, table: RatingTable, threads: Threads) -> Codes:
        """Return the codes of the users of a table that the state has learned from."""
        return self.item_model(state).encode(*table.by_user(), threads) if self.refit else _last_codes(state)

    def from_state_dict(self, state_dict: StateDict) -> MaskedState:
        """Return the state stored in a state_dict."""
        return MaskedState.from_state_dict(state_dict)

    def last_codes(self, state_dict: StateDict) -> Codes:
        """Return the codes that the last step of each user computed."""
        return _last_codes(MaskedState.from_state_dict(state_dict))

    def _model(self, atoms: Array, biases: Biases) -> RatingModel:
        k, n_items = atoms.shape
        factors = np.zeros((n_items, row_width(k)), np.float32)
        factors[:, :k] = atoms.T
        return RatingModel(
            item_factors=factors,
            item_variances=np.zeros_like(factors),
            item_biases=biases.items,
            user_prior=Prior.initial(np.zeros(k), learned=False, fixed=None),
            item_prior=Prior.initial(np.zeros(k), learned=False, fixed=None),
            noise=1.0,
            alpha=self.alpha / n_items,
            offset=biases.offset,
            scale=1.0,
            damping=self.damping,
        )

    def _problem(self) -> Problem:
        return replace(MASKED_PROBLEM, alpha=self.alpha)

    def _options(self, n_users: int) -> SolverOptions:
        return SolverOptions(
            n_components=self.n_components,
            seed=self.seed,
            batch_size=self.batch_size or math.ceil(n_users / N_MASKED_BATCHES),
            statistics="masked",
            projection=self.projection,
            schedule=PowerDecay(self.forgetting),
            n_epochs=self.n_epochs,
            tol=self.tol,
            max_time=self.max_time,
            missing=True,
            n_threads=self.n_threads,
        )


def _last_codes(state: MaskedState) -> Codes:
    n_users, k = state.last_codes.shape
    factors = np.zeros((n_users, row_width(k)), np.float32)
    factors[:, :k] = state.last_codes
    return Codes(factors, np.zeros_like(factors), state.biases.users)
