"""The arrays of a fitted model: prediction, and encoding of users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.ranking import predict_pairs
from terafactor.kernels.ratings import row_width
from terafactor.ratings.methods.encode import encode
from terafactor.ratings.methods.prior import Prior
from terafactor.solver.state_dict import POSITIVE, StateDict, array_of, at_least, part_of, restore, to_state_dict


@dataclass(frozen=True)
class Codes:
    """Codes and biases of some users."""

    factors: Array
    """(b, width), float32."""

    variances: Array
    """Posterior variances (b, width)."""

    biases: Array
    """(b,), float32; zero for algorithms without separate biases."""

    def updating(self, before: Codes, present: Indices) -> Codes:
        """Return these codes for the users ``present`` and for new users, and the codes ``before`` for the others."""
        kept = np.setdiff1d(np.arange(len(before.factors)), present, assume_unique=True)
        parts = [part.copy() for part in (self.factors, self.variances, self.biases)]
        for part, old in zip(parts, (before.factors, before.variances, before.biases), strict=True):
            part[kept] = old[kept]
        return Codes(*parts)


@dataclass(frozen=True)
class RatingModel:
    """Predicts ``offset + scale * (user bias + item bias + code . factors)``. Rows are padded to ``row_width(k)``."""

    item_factors: Array = field(metadata=array_of("p w", np.float32))
    """(p, width), float32."""

    item_variances: Array = field(metadata=array_of("p w", np.float32))
    """Posterior variances (p, width)."""

    item_biases: Array = field(metadata=array_of("p", np.float32))
    """(p,), float32."""

    user_prior: Prior = field(metadata=part_of(Prior))
    """Prior of the codes of users."""

    item_prior: Prior = field(metadata=part_of(Prior))
    """Prior of the factors of items."""

    noise: float = field(metadata=POSITIVE)
    """Noise variance of standardized ratings."""

    alpha: float | None = field(metadata=at_least(0.0))
    """Ridge per rating; None if the prior is learned."""

    offset: float
    """Mean of the ratings."""

    scale: float = field(metadata=POSITIVE)
    """Standard deviation of the ratings, or 1."""

    damping: float | None = field(metadata=at_least(0.0))
    """Pseudo-ratings equal to the mean in the bias of a user; None for algorithms without separate biases."""

    user_factors: Array = field(
        default_factory=lambda: np.zeros((0, 0), np.float32), metadata=array_of("n w", np.float32)
    )
    """Codes of the known users (n, width)."""

    user_biases: Array = field(default_factory=lambda: np.zeros(0, np.float32), metadata=array_of("n", np.float32))
    """(n,), float32."""

    @property
    def n_components(self) -> int:
        """Number of factors, k."""
        return len(self.user_prior.mean)

    def encode(self, starts: Indices, items: Array, values: Array, threads: Threads) -> Codes:
        """Compute the codes of users from their ratings.

        starts (b + 1,), items, values: ratings by user. A user without ratings gets the mean code.
        """
        standardized = ((values - self.offset) / self.scale).astype(np.float32) - self.item_biases[items]
        biases = np.zeros(len(starts) - 1, np.float32)
        if self.damping is not None:
            counts = np.diff(starts)
            owners = np.repeat(np.arange(len(counts)), counts)
            totals = np.bincount(owners, standardized, len(counts))
            biases[:] = totals / np.maximum(counts + self.damping, 1e-12)
            standardized -= biases[owners]
        codes, variances, _ = encode(
            starts, items, standardized, self.item_factors, self.item_variances, self.user_prior, self.noise,
            self.alpha, threads,
        )  # fmt: skip
        return Codes(codes, variances, biases)

    def with_users(self, codes: Codes) -> Self:
        """Return the model with the users of these codes."""
        return replace(self, user_factors=codes.factors, user_biases=codes.biases)

    def transposed(self, codes: Codes) -> Self:
        """Return the model with users and items swapped; ``codes`` are those of its users."""
        return replace(
            self,
            item_factors=codes.factors,
            item_variances=codes.variances if self.alpha is None else np.zeros_like(codes.factors),
            item_biases=codes.biases,
            user_factors=self.item_factors,
            user_biases=self.item_biases,
            user_prior=self.item_prior,
            item_prior=self.user_prior,
        )

    def predict(self, users: Array, items: Array, threads: Threads) -> Array:
        """Return predictions (n,) for pairs of numbers; -1 is an unknown user or item."""
        standardized = np.empty(len(users), np.float32)
        mean_user, mean_item = _mean_row(self.user_prior), _mean_row(self.item_prior)
        users, items = (np.ascontiguousarray(numbers, np.int64) for numbers in (users, items))

        def predict(start: int, stop: int) -> None:
            predict_pairs(
                users, items, self.user_factors, self.user_biases, mean_user, self.item_factors, self.item_biases,
                mean_item, start, stop, standardized,
            )  # fmt: skip

        threads.split(predict, len(users))
        return np.asarray(self.offset + self.scale * standardized.astype(np.float64))

    def codes_of(self, users: Indices) -> Codes:
        """Return the codes of users by number, without variances; -1 is an unknown user."""
        known = users >= 0
        factors, biases = np.tile(_mean_row(self.user_prior), (len(users), 1)), np.zeros(len(users), np.float32)
        factors[known], biases[known] = self.user_factors[users[known]], self.user_biases[users[known]]
        return Codes(factors, np.zeros((0, 0), np.float32), biases)

    def centered_item_factors(self) -> Array:
        """Return the factors of items (p, width) minus their mean."""
        return self.item_factors - self.item_factors.mean(axis=0)

    def state_dict(self) -> StateDict:
        """Return the model as named numbers and arrays."""
        return to_state_dict(self)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict, n_components: int) -> RatingModel:
        """Return the model stored in a state_dict, refusing inconsistent arrays."""
        model = restore(cls, state_dict, {"k": n_components, "w": row_width(n_components)})
        model.user_prior.check("user_prior")
        model.item_prior.check("item_prior")
        return model


def _mean_row(prior: Prior) -> Array:
    """Return the mean of a prior as a padded row (width,), for unknown users or items."""
    row = np.zeros(row_width(len(prior.mean)), np.float32)
    row[: len(prior.mean)] = prior.mean
    return row
