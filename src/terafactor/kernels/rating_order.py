"""Counting sorts of ratings: by user, then by item within a batch of users."""

from __future__ import annotations

from terafactor.kernels.jit import jit


@jit
def count_keys(keys, counts):
    """``counts += np.bincount(keys)``. keys (n,) integers; counts (m,) in/out."""
    for place in range(len(keys)):
        counts[keys[place]] += 1


@jit
def sort_by_user(ranks, users, items, values, next_place, sorted_items, sorted_values):
    """Sort items and values by ``ranks[users]``, stably.

    ranks (n_users,); users, items, values (n,); next_place (n_users,) in/out: where the next rating of each rank goes,
    initially the start of its ratings; sorted_items, sorted_values (n,) out.
    """
    for rating in range(len(users)):
        rank = ranks[users[rating]]
        place = next_place[rank]
        next_place[rank] = place + 1
        sorted_items[place] = items[rating]
        sorted_values[place] = values[rating]


@jit
def sort_by_item(starts, items, values, next_place, sorted_users, sorted_values):
    """Sort the ratings of a batch of users by item, stably.

    starts (b + 1,): start of the ratings of each user, from 0; items, values (n,); next_place (p,) in/out: where the
    next rating of each item goes; sorted_users, sorted_values (n,) out: users are numbered within the batch.
    """
    for user in range(len(starts) - 1):
        for rating in range(starts[user], starts[user + 1]):
            item = items[rating]
            place = next_place[item]
            next_place[item] = place + 1
            sorted_users[place] = user
            sorted_values[place] = values[rating]


@jit
def first_duplicate(starts, items, last_user):
    """Return the place of the first rating whose user has rated its item before, -1 if there is none.

    starts (n_users + 1,), items (n,): ratings by user; last_user (p,): scratch, filled with -1.
    """
    for user in range(len(starts) - 1):
        for rating in range(starts[user], starts[user + 1]):
            if last_user[items[rating]] == user:
                return rating
            last_user[items[rating]] = user
    return -1
