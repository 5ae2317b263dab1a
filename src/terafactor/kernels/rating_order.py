"""Ratings put in order: by user, then within a batch of users by item. Counting, no comparison."""

from __future__ import annotations

from terafactor.kernels.jit import jit


@jit
def count_keys(keys, counts):
    """Add to ``counts`` how often each key occurs. keys (n,) integers, counts (m,) in/out."""
    for place in range(len(keys)):
        counts[keys[place]] += 1


@jit
def place_by_user(ranks, users, items, values, ends, placed_items, placed_values):
    """Write items and values in the order of ``ranks[users]``, ratings of one user in the order they came.

    ranks (n_users,); users, items, values (n,); ends (n_users,) in/out: where the next rating of each rank goes, at
    first where its ratings begin; placed_items, placed_values (n,) out.
    """
    for rating in range(len(users)):
        rank = ranks[users[rating]]
        at = ends[rank]
        ends[rank] = at + 1
        placed_items[at] = items[rating]
        placed_values[at] = values[rating]


@jit
def place_by_item(starts, items, values, ends, placed_users, placed_values):
    """Write the ratings of a batch by item.

    starts (b + 1,): where the ratings of each user begin, from 0; items, values (n,); ends (p,) in/out: where the next
    rating of each item goes; placed_users, placed_values (n,) out: users are counted from the first of the batch.
    """
    for user in range(len(starts) - 1):
        for rating in range(starts[user], starts[user + 1]):
            item = items[rating]
            at = ends[item]
            ends[item] = at + 1
            placed_users[at] = user
            placed_values[at] = values[rating]


@jit
def mark_keys(keys, low, seen):
    """Mark which integers occur: ``seen[keys - low] = True``. keys (n,), seen (m,) out."""
    for place in range(len(keys)):
        seen[keys[place] - low] = True


@jit
def number_keys(keys, low, numbers, out):
    """``out = numbers[keys - low]``. keys, out (n,); numbers (m,)."""
    for place in range(len(keys)):
        out[place] = numbers[keys[place] - low]


@jit
def first_repeated(starts, items, last_user):
    """Return the place of the first rating whose user rated its item before, -1 without any.

    starts (n_users + 1,), items (n,): ratings by user; last_user (p,): scratch that holds -1.
    """
    for user in range(len(starts) - 1):
        for rating in range(starts[user], starts[user + 1]):
            if last_user[items[rating]] == user:
                return rating
            last_user[items[rating]] = user
    return -1
