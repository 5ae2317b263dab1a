"""Predictions of pairs, and top-n items of users."""

from __future__ import annotations

import numpy as np

from terafactor.kernels.jit import jit

USERS_PER_BLOCK = 16
"""Users that share a tile of factors while it is in the cache."""

ITEMS_PER_TILE = 256
"""Items scored at once. A constant length compiles to one vector loop, so all items are summed in the same order."""


@jit
def predict_pairs(
    users, items, user_factors, user_biases, mean_user, item_factors, item_biases, mean_item, start, stop, out
):
    """Compute ``out = user bias + item bias + code . factors`` for the pairs from start to stop.

    users, items (n,): rows of the factors (n_users, width) and (p, width); -1 is an unknown user or item, with factors
    ``mean_user`` or ``mean_item`` (width,) and no bias; out (n,) out.
    """
    for pair in range(start, stop):
        user, item = users[pair], items[pair]
        code = user_factors[user] if user >= 0 else mean_user
        factor = item_factors[item] if item >= 0 else mean_item
        total = user_biases[user] if user >= 0 else np.float32(0)
        total += item_biases[item] if item >= 0 else np.float32(0)
        for j in range(len(mean_user)):
            total += code[j] * factor[j]
        out[pair] = total


@jit
def sift_down(scores, items, n):
    """Restore a heap whose first entry was replaced; the worst of the n best items is on top.

    scores, items (n,) in/out; an item is worse if its score is lower, or equal and its number higher.
    """
    place = 0
    score, item = scores[0], items[0]
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        other = child + 1
        if other < n and (
            scores[other] < scores[child] or (scores[other] == scores[child] and items[other] > items[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and items[child] < item):
            break
        scores[place], items[place] = scores[child], items[child]
        place = child
    scores[place], items[place] = score, item


@jit
def select_best(row, columns, excluded, best_scores, best_items):
    """Select the n best items of a row of scores, best first; ties go to the lower item number.

    row (q,): scores of the items ``columns`` (q,), ascending; excluded: items to skip, ascending; best_scores,
    best_items (n,) out, padded with item -1.
    """
    n = len(best_items)
    best_scores[:] = -np.inf
    best_items[:] = np.iinfo(np.int64).max
    at = 0
    for place in range(len(row)):
        score, item = row[place], columns[place]
        if score <= best_scores[0] and best_items[0] != np.iinfo(np.int64).max:
            continue
        while at < len(excluded) and excluded[at] < item:
            at += 1
        if at < len(excluded) and excluded[at] == item:
            continue
        best_scores[0], best_items[0] = score, item
        sift_down(best_scores, best_items, n)
    for last in range(n - 1, 0, -1):  # heap sort: the worst of the first entries is on top
        best_scores[0], best_scores[last] = best_scores[last], best_scores[0]
        best_items[0], best_items[last] = best_items[last], best_items[0]
        sift_down(best_scores, best_items, last)
    for place in range(n):
        if best_items[place] == np.iinfo(np.int64).max:
            best_items[place] = -1


@jit
def score_tile(code, factors, first, scores):
    """``scores[tile] += code @ factors[:, tile]`` for the tile of items that begins at ``first``.

    code (width,), with width a multiple of 4; factors (width, q), q a multiple of ITEMS_PER_TILE; scores (q,) in/out.
    BLAS is no option: the order of its sums depends on the shape of the matrices, so equal users would get other last
    bits, and other lists, in another batch or with another number of threads.
    """
    tile = scores[first : first + ITEMS_PER_TILE]
    for j in range(0, len(code), 4):  # four at a time: a quarter of the loads and stores of the scores
        a, b, c, d = code[j], code[j + 1], code[j + 2], code[j + 3]
        row_a, row_b = factors[j, first : first + ITEMS_PER_TILE], factors[j + 1, first : first + ITEMS_PER_TILE]
        row_c, row_d = factors[j + 2, first : first + ITEMS_PER_TILE], factors[j + 3, first : first + ITEMS_PER_TILE]
        for place in range(ITEMS_PER_TILE):
            tile[place] += a * row_a[place] + b * row_b[place] + c * row_c[place] + d * row_d[place]


@jit
def recommend_users(codes, factors, item_biases, columns, starts, seen, start, stop, best_scores, best_items):
    """Find the best items of the users from start to stop.

    codes (b, width); factors (width, q'), item_biases (q',): of the items ``columns`` (q,), ascending, zero-padded to a
    multiple of ITEMS_PER_TILE; starts (b + 1,), seen: items of each user to skip, ascending; best_scores, best_items
    (b, n) out.
    """
    n_padded = len(item_biases)
    scores = np.empty((USERS_PER_BLOCK, n_padded), codes.dtype)
    for first in range(start, stop, USERS_PER_BLOCK):
        n_users = min(USERS_PER_BLOCK, stop - first)
        for place in range(n_users):
            for column in range(n_padded):
                scores[place, column] = item_biases[column]
        for tile in range(0, n_padded, ITEMS_PER_TILE):
            for place in range(n_users):
                score_tile(codes[first + place], factors, tile, scores[place])
        for place in range(n_users):
            user = first + place
            excluded = seen[starts[user] : starts[user + 1]]
            select_best(scores[place, : len(columns)], columns, excluded, best_scores[user], best_items[user])
