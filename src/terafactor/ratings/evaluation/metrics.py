"""How good predictions and lists of recommendations are."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array, Indices


def rmse(predicted: Array, true: Array) -> float:
    """Return the root of the mean squared error of ratings."""
    return float(np.sqrt(np.mean((np.asarray(predicted, np.float64) - true) ** 2)))


def mae(predicted: Array, true: Array) -> float:
    """Return the mean absolute error of ratings."""
    return float(np.mean(np.abs(np.asarray(predicted, np.float64) - true)))


def recall_at(lists: Indices, starts: Indices, relevant: Array) -> float:
    """Return the mean over users of the share of their relevant items that a list holds.

    lists (b, n): recommended items, -1 for none; starts (b + 1,), relevant: relevant items of each user. Users without
    any are left out; NaN when all are. At most n items can be found, so the share is of the smaller of n and theirs.
    """
    hits, counts = _hits(lists, starts, relevant)
    return _mean(hits.sum(axis=1)[counts > 0] / np.minimum(counts, lists.shape[1])[counts > 0])


def ndcg_at(lists: Indices, starts: Indices, relevant: Array) -> float:
    """Return the mean over users of the discounted gain of a list, relative to the best list that could be.

    Arguments as for :func:`recall_at`; an item at place j (from 1) gains 1 / log2(j + 1) if it is relevant.
    """
    hits, counts = _hits(lists, starts, relevant)
    discounts = 1 / np.log2(np.arange(2, lists.shape[1] + 2))
    best = np.concatenate([[0], np.cumsum(discounts)])[np.minimum(counts, lists.shape[1])]
    return _mean((hits @ discounts)[counts > 0] / best[counts > 0])


def _hits(lists: Indices, starts: Indices, relevant: Array) -> tuple[Array, Indices]:
    """Return which places of the lists hold a relevant item, and how many of these each user has."""
    hits = np.zeros(lists.shape, bool)
    for user in range(len(lists)):
        hits[user] = np.isin(lists[user], relevant[starts[user] : starts[user + 1]])
    return hits, np.diff(starts)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
