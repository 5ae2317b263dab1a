"""State of the default algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.kernels.ratings import row_width
from terafactor.ratings.methods.prior import Prior
from terafactor.ratings.serving.model import RatingModel
from terafactor.ratings.table.history import RatingUpdate
from terafactor.solver.state_dict import POSITIVE, StateDict, array_of, at_least, part_of, restore, to_state_dict

USER_BIAS, ITEM_BIAS = 0, 1
"""Coordinates initialized as biases. In the first, items are 1 and codes hold the bias of the user; in the second,
codes are 1 and items hold their bias."""

INITIAL_SCALE = 0.1
"""Initial standard deviation of the other coordinates of items."""

DAMPING = 5.0
"""Pseudo-ratings equal to the mean, added to each item for its initial bias."""

ITEM_ARRAYS = ("factors", "variances", "statistics", "weights", "counts", "totals")
"""Arrays with one row per item."""

INITIAL_NOISE = 0.5
"""Initial noise variance of standardized ratings."""


@dataclass
class CompletionState:
    """Arrays and counters. Rows of factors are padded to ``row_width(k)``."""

    factors: Array = field(metadata=array_of("p w", np.float32))
    """Factors of items (p, width), float32."""

    variances: Array = field(metadata=array_of("p w", np.float32))
    """Posterior variances of the factors (p, width)."""

    statistics: Array = field(metadata=array_of("p w w", np.float32))
    """Per item, decayed sum of [a, x]' [a, x] over its users (p, width, width), upper triangles."""

    weights: Array = field(metadata=array_of("p", np.float32))
    """Decayed number of ratings in the statistics (p,), float32."""

    counts: Indices = field(metadata=array_of("p", np.int64))
    """Distinct ratings seen of each item (p,)."""

    user_prior: Prior = field(metadata=part_of(Prior))
    """Prior of the codes of users."""

    item_prior: Prior = field(metadata=part_of(Prior))
    """Prior of the factors of items."""

    totals: Indices = field(metadata=array_of("p", np.int64))
    """Total number of ratings of each item (p,)."""

    n_users: int = 0
    """Users with ratings."""

    offset: float = 0.0
    """Mean of the ratings."""

    scale: float = field(default=1.0, metadata=POSITIVE)
    """Standard deviation of the ratings."""

    noise: float = field(default=INITIAL_NOISE, metadata=POSITIVE)
    """Noise variance of standardized ratings."""

    squared_error: float = field(default=0.0, metadata=at_least(0.0))
    """Decayed sum of expected squared errors."""

    n_errors: float = field(default=0.0, metadata=at_least(0.0))
    """Decayed number of ratings in ``squared_error``."""

    last_error: float = 0.0
    """Mean error at the end of the previous pass, for ``tol``."""

    n_steps: int = 0
    """Steps done."""

    n_samples: int = 0
    """Users encoded, counting each visit."""

    n_batches: int = 0
    """Batches read by the fit."""

    n_reseeded: int = field(default=0, metadata={"saved": False})
    """Items that were re-initialized: never any."""

    @property
    def mean_error(self) -> float:
        """Expected squared error per rating, in units of ``scale``."""
        return self.squared_error / self.n_errors if self.n_errors else INITIAL_NOISE

    def standardized(self, ratings: Array) -> Array:
        """Return ratings minus ``offset``, divided by ``scale``, float32."""
        return ((ratings - np.float32(self.offset)) / np.float32(self.scale)).astype(np.float32, copy=False)

    @property
    def n_components(self) -> int:
        """Number of factors, k."""
        return len(self.user_prior.mean)

    @classmethod
    def initial(
        cls, item_means: Array, n_components: int, seed: int, *, learned: bool, explicit_biases: bool
    ) -> CompletionState:
        """Return the state before the first step, with random factors and the biases of items.

        item_means (p,): damped mean of the standardized ratings of each item; learned: whether priors are learned.
        """
        n_items, width = len(item_means), row_width(n_components)
        factors = np.zeros((n_items, width), np.float32)
        random = generator(seed, Purpose.INITIAL_ATOMS)
        factors[:, :n_components] = INITIAL_SCALE * random.standard_normal((n_items, n_components), np.float32)
        user_mean, item_mean = np.zeros((2, n_components))
        factors[:, USER_BIAS], item_mean[USER_BIAS] = 1.0, 1.0
        if n_components > ITEM_BIAS:
            factors[:, ITEM_BIAS], user_mean[ITEM_BIAS] = item_means, 1.0
        user_fixed, item_fixed = (ITEM_BIAS, USER_BIAS) if explicit_biases else (None, None)
        return cls(
            factors=factors,
            variances=np.zeros_like(factors),
            statistics=np.zeros((n_items, width, width), np.float32),
            weights=np.zeros(n_items, np.float32),
            counts=np.zeros(n_items, np.int64),
            totals=np.zeros(n_items, np.int64),
            user_prior=Prior.initial(user_mean, learned=learned, fixed=user_fixed),
            item_prior=Prior.initial(item_mean, learned=learned, fixed=item_fixed),
        )

    def item_model(self, alpha: float | None) -> RatingModel:
        """Return the item side of the model; items without ratings get the mean factors."""
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

    def warm_start(self) -> StateDict:
        """Return a state dict from which a new fit starts, with its counters at zero."""
        state_dict = self.state_dict()
        return StateDict({**state_dict.numbers, "n_batches": 0}, state_dict.arrays)

    def resized(self, n_users: int, n_items: int) -> CompletionState:
        """Return a copy with room for new items, which start with the mean factors."""
        arrays: dict[str, Any] = {name: zero_padded(getattr(self, name), n_items) for name in ITEM_ARRAYS}
        arrays["factors"][len(self.factors) :, : self.n_components] = self.item_prior.mean
        return replace(self, **arrays, user_prior=replace(self.user_prior), item_prior=replace(self.item_prior))

    def count_ratings(self, update: RatingUpdate) -> None:
        """Count new users and new ratings."""
        rows = update.rows
        self.totals += np.bincount(rows.items[update.is_new], minlength=rows.shape[1])
        np.maximum(self.totals, np.bincount(rows.items, minlength=rows.shape[1]), out=self.totals)
        self.n_users += update.n_new_users

    def state_dict(self) -> StateDict:
        """Return the state as named numbers and arrays; the arrays are shared, not copied."""
        return to_state_dict(self)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> CompletionState:
        """Return the state stored in a state_dict, refusing inconsistent arrays."""
        state = restore(cls, state_dict)
        state.user_prior.check("user_prior")
        state.item_prior.check("item_prior")
        return state


def zero_padded(rows: Array, length: int) -> Array:
    """Return a copy of rows, followed by zeros up to ``length``."""
    return np.concatenate([rows, np.zeros((length - len(rows), *rows.shape[1:]), rows.dtype)])
