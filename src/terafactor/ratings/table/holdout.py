"""Ratings kept aside while a run learns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import is_number
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.table.table import RatingTable
from terafactor.runs.parameters import to_plain

DEFAULT_SHARE, DEFAULT_MOST = 0.05, 100_000


@dataclass(frozen=True)
class HeldOut:
    """Ratings to evaluate on, with those that tell who their users are."""

    known: RatingTable
    """What is learned from."""

    ratings: RatingTable
    """What is kept aside."""


def hold_out_ratings(table: RatingTable, amount: Any, seed: int) -> tuple[RatingTable, HeldOut | None, dict[str, Any]]:
    """Return the ratings to learn from, those held out (None when none), and what tells the choice again.

    amount: a number of ratings, a share of them, None for the smaller of 5 % and 100 000, or what an earlier call told.
    """
    asked = to_plain(amount["amount"] if isinstance(amount, Mapping) else amount)
    if asked is None:
        asked = min(int(DEFAULT_SHARE * len(table)), DEFAULT_MOST)
    chosen = np.sort(generator(seed, Purpose.HOLDOUT).permutation(len(table))[: _count(asked, len(table))])
    told = {"amount": asked, "ratings": len(chosen), "sha256": hashlib.sha256(chosen.tobytes()).hexdigest()}
    if isinstance(amount, Mapping) and dict(amount) != told:
        raise DataError(f"the ratings held out cannot be chosen again: they were {dict(amount)}, now {told}")
    if not len(chosen):
        return table, None, told
    kept = table.take(np.delete(np.arange(len(table)), chosen))
    return kept, HeldOut(kept, table.take(chosen)), told


def _count(amount: Any, n_ratings: int) -> int:
    if not (is_number(amount, Real) and (is_number(amount, Integral) or 0 <= amount < 1)):
        raise ParameterError(f"holdout must be a number of ratings or a share between 0 and 1, got {amount!r}")
    wanted = int(amount) if is_number(amount, Integral) else int(amount * n_ratings)
    if not 0 <= wanted < n_ratings:
        raise ParameterError(f"holdout must leave a rating to learn from, got {amount!r} of {n_ratings}")
    return wanted
