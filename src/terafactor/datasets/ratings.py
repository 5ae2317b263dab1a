"""Ratings generated from a known model."""

from __future__ import annotations

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array

CHUNK_USERS = 4096
"""Users drawn at a time, which bounds the memory."""

ROUNDS = 4
"""Rounds in which duplicate pairs are replaced by new draws."""


def make_ratings(
    n_users: int = 120, n_items: int = 60, n_ratings: int = 2200, *, n_components: int = 3, noise: float = 0.3,
    spread: float = 1.0, seed: int = 0,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return users (int32), items (int32) and ratings (float32), sorted by user.

    Activity of users and popularity of items are log-normal, as in real data. Ratings are 3 plus biases, a product
    of codes and factors, and noise; their standard deviation is about 1.2 without noise.

    Parameters
    ----------
    n_users, n_items : int
    n_ratings : int
        Approximate number of ratings: a user rates no item twice, and at most half of the items.
    n_components : int
        Number of factors of the model, k.
    noise : float
        Standard deviation of the noise.
    spread : float
        Standard deviation of the logarithms of activity and popularity; 0 makes all users, and all items, equal.
    seed : int

    Returns
    -------
    users, items, ratings : ndarray of shape (n,)

    Examples
    --------
    >>> from terafactor.datasets import make_ratings
    >>> users, items, ratings = make_ratings(n_users=30, n_items=20, n_ratings=200)
    >>> len(users) == len(items) == len(ratings)
    True
    """
    random = generator(seed, Purpose.DATA)
    counts = _counts(random, n_users, n_items, n_ratings, spread)
    popularity = np.exp(spread * random.standard_normal(n_items))
    steps = np.cumsum(popularity / popularity.sum())
    codes = random.standard_normal((n_users, n_components), np.float32)
    factors = random.standard_normal((n_items, n_components), np.float32) / np.float32(np.sqrt(n_components))
    user_biases, item_biases = (0.5 * random.standard_normal(n, np.float32) for n in (n_users, n_items))
    parts = []
    for start in range(0, n_users, CHUNK_USERS):
        users, items = _pairs(random, counts[start : start + CHUNK_USERS], steps, n_items)
        users += start
        values = 3 + user_biases[users] + item_biases[items] + noise * random.standard_normal(len(users), np.float32)
        for j in range(n_components):  # one factor at a time, to save memory
            values += codes[users, j] * factors[items, j]
        parts.append((users.astype(np.int32), items.astype(np.int32), values.astype(np.float32)))
    users, items, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return users, items, values


def _counts(random: np.random.Generator, n_users: int, n_items: int, n_ratings: int, spread: float) -> Array:
    """Return the number of ratings of each user (n_users,)."""
    activity = np.exp(spread * random.standard_normal(n_users))
    counts = np.zeros(n_users)
    for _ in range(ROUNDS):  # users below the bound get what exceeds it for others
        free = counts < n_items // 2
        counts[free] += activity[free] * max(n_ratings - counts.sum(), 0) / max(activity[free].sum(), 1e-12)
        counts = np.minimum(counts, n_items // 2)
    return np.maximum(np.round(counts), 1).astype(np.int64)


def _pairs(random: np.random.Generator, counts: Array, steps: Array, n_items: int) -> tuple[Array, Array]:
    """Return users, counted from 0, and items; no pair twice."""
    pairs = np.zeros(0, np.int64)
    missing = counts
    for _ in range(ROUNDS):
        users = np.repeat(np.arange(len(counts)), missing)
        items = np.minimum(np.searchsorted(steps, random.random(len(users))), n_items - 1)
        pairs = np.unique(np.concatenate([pairs, users * n_items + items]))
        missing = np.maximum(counts - np.bincount(pairs // n_items, minlength=len(counts)), 0)
    return pairs // n_items, pairs % n_items
