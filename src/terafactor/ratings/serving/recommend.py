"""Top-n recommendation, and nearest items."""

from __future__ import annotations

import numpy as np

from terafactor._threads import Threads
from terafactor._typing import Array, Indices
from terafactor.kernels.ranking import ITEMS_PER_TILE, recommend_users
from terafactor.ratings.table.history import RatingHistory


def best_items(
    codes: Array, factors: Array, biases: Array, excluded: RatingHistory, n: int, allowed: Indices | None,
    threads: Threads,
) -> tuple[Indices, Array]:  # fmt: skip
    """Return the n items (b, n) with the highest ``biases + codes @ factors.T``, and these scores.

    codes (b, width); factors (p, width); biases (p,); excluded: items to skip of each user; allowed: numbers of the
    candidate items, ascending; None for all. Ties are broken by number; lists are padded with -1 and NaN. A list
    depends on the code of its user only, not on other users or threads.
    """
    columns = np.arange(len(factors)) if allowed is None else allowed
    n_padded = -(-len(columns) // ITEMS_PER_TILE) * ITEMS_PER_TILE
    tiles, tile_biases = np.zeros((codes.shape[1], n_padded), np.float32), np.zeros(n_padded, np.float32)
    tiles[:, : len(columns)], tile_biases[: len(columns)] = factors[columns].T, biases[columns]
    scores, items = np.empty((len(codes), n), np.float32), np.empty((len(codes), n), np.int64)

    def recommend(start: int, stop: int) -> None:
        recommend_users(
            codes, tiles, tile_biases, columns, excluded.starts, excluded.items, start, stop, scores, items
        )  # fmt: skip

    threads.split(recommend, len(codes))
    scores[items < 0] = np.nan
    return items, scores


def most_similar(factors: Array, items: Indices, n: int, threads: Threads) -> tuple[Indices, Array]:
    """Return the numbers of the n items (b, n) whose factors have the largest cosine with those of ``items`` (b,).

    factors (p, width). The item itself is excluded; ties are broken by number.
    """
    lengths = np.linalg.norm(factors, axis=1)
    directions = factors / np.where(lengths > 0, lengths, 1)[:, np.newaxis]
    n = min(n, len(factors) - 1)
    if n == 0:
        return np.zeros((len(items), 0), np.int64), np.zeros((len(items), 0), np.float32)
    itself = RatingHistory.of_items(items)
    return best_items(directions[items], directions, np.zeros(len(factors), np.float32), itself, n, None, threads)
