"""Ratings held out of training, for evaluation."""

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

DEFAULT_SHARE, MAX_DEFAULT = 0.05, 100_000


@dataclass(frozen=True)
class HeldOut:
    """Held-out ratings, and the training ratings that the codes of their users are computed from."""

    train: RatingTable
    """Ratings to learn from."""

    test: RatingTable
    """Ratings held out; users and items have the numbers of ``train``, -1 if they are unknown there."""


def hold_out_ratings(table: RatingTable, amount: Any, seed: int) -> tuple[RatingTable, HeldOut | None, dict[str, Any]]:
    """Return the ratings to learn from, the held-out ones (None if there are none), and a description of the choice.

    amount: a number of ratings, a share of them, None for the smaller of 5 % and 100 000, or the description that an
    earlier call returned.
    """
    wanted = to_plain(amount["amount"] if isinstance(amount, Mapping) else amount)
    if wanted is None:
        wanted = min(int(DEFAULT_SHARE * len(table)), MAX_DEFAULT)
    chosen = np.sort(generator(seed, Purpose.HOLDOUT).permutation(len(table))[: _count(wanted, len(table))])
    choice = {"amount": wanted, "ratings": len(chosen), "sha256": hashlib.sha256(chosen.tobytes()).hexdigest()}
    if isinstance(amount, Mapping) and dict(amount) != choice:
        raise DataError(
            f"the held-out ratings cannot be reproduced: they were {dict(amount)}, now {choice}: start a new run"
        )
    if not len(chosen):
        return table, None, choice
    train = table.take(np.delete(np.arange(len(table)), chosen))
    return train, HeldOut(train, table.take(chosen)), choice


def _count(amount: Any, n_ratings: int) -> int:
    if not (is_number(amount, Real) and (is_number(amount, Integral) or 0 <= amount < 1)):
        raise ParameterError(f"holdout must be a number of ratings or a share between 0 and 1, got {amount!r}")
    wanted = int(amount) if is_number(amount, Integral) else int(amount * n_ratings)
    if not 0 <= wanted < n_ratings:
        raise ParameterError(f"holdout must leave a rating to learn from, got {amount!r} of {n_ratings}")
    return wanted
