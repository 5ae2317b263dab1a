"""Error of predictions, and quality of top-n lists."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array, Indices


def rmse(predicted: Array, true: Array) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(predicted, np.float64) - true) ** 2)))


def mae(predicted: Array, true: Array) -> float:
    """Return the mean absolute error."""
    return float(np.mean(np.abs(np.asarray(predicted, np.float64) - true)))


def recall_at(lists: Indices, starts: Indices, relevant: Array) -> float:
    """Return the mean recall at n over users: relevant items in the list, divided by min(n, relevant items).

    lists (b, n): recommended items, padded with -1; starts (b + 1,), relevant: relevant items of each user. Users
    without relevant items are ignored; NaN if no user is left.
    """
    hits, counts = _hits(lists, starts, relevant)
    return _mean(hits.sum(axis=1)[counts > 0] / np.minimum(counts, lists.shape[1])[counts > 0])


def ndcg_at(lists: Indices, starts: Indices, relevant: Array) -> float:
    """Return the mean NDCG at n over users, with binary relevance and a discount of 1 / log2(rank + 1).

    The arguments are those of :func:`recall_at`.
    """
    hits, counts = _hits(lists, starts, relevant)
    discounts = 1 / np.log2(np.arange(2, lists.shape[1] + 2))
    best = np.concatenate([[0], np.cumsum(discounts)])[np.minimum(counts, lists.shape[1])]
    return _mean((hits @ discounts)[counts > 0] / best[counts > 0])


def _hits(lists: Indices, starts: Indices, relevant: Array) -> tuple[Array, Indices]:
    """Return which list entries are relevant (b, n), and the number of relevant items of each user (b,)."""
    hits = np.zeros(lists.shape, bool)
    for user in range(len(lists)):
        hits[user] = np.isin(lists[user], relevant[starts[user] : starts[user + 1]])
    return hits, np.diff(starts)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
