"""What learning from ratings remembers between steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.kernels.ratings import row_width
from terafactor.ratings.methods.prior import Prior
from terafactor.ratings.serving.model import RatingModel
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.state_dict import StateDict, array_of, part_of, restore, to_state_dict

USER_BIAS, ITEM_BIAS = 0, 1
"""Coordinates that start as biases: items have 1 in the first, so codes hold the user's bias there; in the second it
is the other way round."""

SPREAD = 0.1
"""Standard deviation of the other coordinates of items at the start."""

DAMPING = 5.0
"""Ratings of the mean that every item is believed to have had, when its bias starts."""

ARRAYS = ("factors", "variances", "statistics", "weights", "counts", "totals")
PRIORS = ("user_prior", "item_prior")
"""Its arrays with a row for each item, and its priors."""

FIRST_NOISE = 0.5
"""Share of the variance of ratings that counts as noise before anything is known."""


@dataclass
class CompletionState:
    """All the arrays and counters. Rows of factors are padded to ``row_width(k)``."""

    factors: Array = field(metadata=array_of("p w", np.float32))
    """Items (p, width), float32."""

    variances: Array = field(metadata=array_of("p w", np.float32))
    """By how much these are uncertain (p, width)."""

    statistics: Array = field(metadata=array_of("p w w", np.float32))
    """Per item, decayed sum over its users of [a, x]' [a, x] (p, width, width), upper triangles."""

    weights: Array = field(metadata=array_of("p", np.float32))
    """Decayed number of ratings in the statistics (p,), float32."""

    counts: Indices = field(metadata=array_of("p", np.int64))
    """Ratings seen of each item, each once (p,)."""

    user_prior: Prior = field(metadata=part_of(Prior))
    """What codes of users look like."""

    item_prior: Prior = field(metadata=part_of(Prior))
    """What rows of items look like."""

    totals: Indices = field(metadata=array_of("p", np.int64))
    """Ratings that each item has in all (p,)."""

    n_users: int = 0
    """Users that have ratings."""

    offset: float = 0.0
    """Rating that stands for 0 inside."""

    scale: float = 1.0
    """Difference of ratings that stands for 1 inside."""

    noise: float = FIRST_NOISE
    """Variance of the noise in ratings of variance one."""

    squared_error: float = 0.0
    """Decayed sum of expected squared errors."""

    n_errors: float = 0.0
    """Decayed number of ratings in it."""

    last_error: float = 0.0
    """Mean error at the end of the pass before, for the stop."""

    n_steps: int = 0
    """Steps done."""

    n_samples: int = 0
    """Users coded, each as often as it came."""

    n_batches: int = 0
    """Batches that the fit has read."""

    @property
    def mean_error(self) -> float:
        """Expected squared error per rating, in units of ``scale``."""
        return self.squared_error / self.n_errors if self.n_errors else FIRST_NOISE

    def inside(self, ratings: Array) -> Array:
        """Return ratings as what is learned from: zero on average, of variance one, float32."""
        return ((ratings - np.float32(self.offset)) / np.float32(self.scale)).astype(np.float32, copy=False)

    @property
    def n_components(self) -> int:
        """Number of factors, k."""
        return len(self.user_prior.mean)

    @classmethod
    def start(cls, item_means: Array, n_components: int, seed: int, *, learned: bool, pinned: bool) -> CompletionState:
        """Return the state before the first step.

        item_means (p,): damped mean of the standardized ratings of each item. Everything else about items is random.
        learned: whether priors are learned; pinned: whether biases stay what they are at the start.
        """
        n_items, width = len(item_means), row_width(n_components)
        factors = np.zeros((n_items, width), np.float32)
        random = generator(seed, Purpose.INITIAL_ATOMS)
        factors[:, :n_components] = SPREAD * random.standard_normal((n_items, n_components), np.float32)
        user_mean, item_mean = np.zeros((2, n_components))
        factors[:, USER_BIAS], item_mean[USER_BIAS] = 1.0, 1.0
        if n_components > ITEM_BIAS:
            factors[:, ITEM_BIAS], user_mean[ITEM_BIAS] = item_means, 1.0
        user_pinned, item_pinned = (ITEM_BIAS, USER_BIAS) if pinned else (None, None)
        return cls(
            factors=factors,
            variances=np.zeros_like(factors),
            statistics=np.zeros((n_items, width, width), np.float32),
            weights=np.zeros(n_items, np.float32),
            counts=np.zeros(n_items, np.int64),
            totals=np.zeros(n_items, np.int64),
            user_prior=Prior.start(user_mean, learned=learned, pinned=user_pinned),
            item_prior=Prior.start(item_mean, learned=learned, pinned=item_pinned),
        )

    def model(self, alpha: float | None) -> RatingModel:
        """Return what predicts, without users; items never rated are what the model expects of any."""
        factors, k = self.factors.copy(), self.n_components
        unseen = self.counts == 0
        factors[unseen, :k] = self.item_prior.mean
        return RatingModel(
            item_factors=factors,
            item_variances=self.variances.copy(),
            item_biases=np.zeros(len(factors), np.float32),
            user_prior=replace(self.user_prior),
            item_prior=replace(self.item_prior),
            noise=self.noise,
            alpha=alpha,
            offset=self.offset,
            scale=self.scale,
            damping=None,
        )

    def rewound(self) -> StateDict:
        """Return a state_dict with what was learned, from which a fit makes all its passes."""
        state_dict = self.state_dict()
        return StateDict({**state_dict.numbers, "n_batches": 0}, state_dict.arrays)

    def grown(self, n_items: int) -> CompletionState:
        """Return a copy with room for items that were not known, which start as what the model expects of any."""
        parts: dict[str, Any] = {name: longer(getattr(self, name), n_items) for name in ARRAYS}
        parts["factors"][len(self.factors) :, : self.n_components] = self.item_prior.mean
        return replace(self, **parts, **{name: replace(getattr(self, name)) for name in PRIORS})

    def expect(self, rows: RatingTable, known: Array) -> None:
        """Count the ratings of users that were not known. known (n_before,): whether a user had ratings."""
        fresh = np.ones(rows.shape[0], bool)
        fresh[: len(known)] = ~known
        self.totals += np.bincount(rows.items[fresh[rows.users]], minlength=rows.shape[1])
        np.maximum(self.totals, np.bincount(rows.items, minlength=rows.shape[1]), out=self.totals)
        self.n_users += len(np.unique(rows.users[fresh[rows.users]]))

    def state_dict(self) -> StateDict:
        """Return all of it by name; the arrays are shared, not copied."""
        return to_state_dict(self)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> CompletionState:
        """Return the state of a state_dict, refusing one whose parts do not belong together."""
        return restore(cls, state_dict)


def longer(rows: Array, length: int) -> Array:
    """Return a copy of rows with zeros behind them."""
    return np.concatenate([rows, np.zeros((length - len(rows), *rows.shape[1:]), rows.dtype)])
