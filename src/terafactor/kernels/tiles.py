"""Which tiles of features columns lie in, and where."""

import numpy as np

from terafactor.kernels.jit import jit

SHORT = 8
"""Columns next to each other, on average, below which it is slower to copy them together."""


@jit
def find(columns, order, place, width, at, numbers):
    """Put in ``at`` (s,) where the ``columns`` (s,) come in the order; number the tiles that hold some of them.

    order (p,): all features, of which each tile holds the next ``width``; place (p,): where each comes in it;
    numbers (tiles,) out: from zero, ascending, -1 for tiles that hold none. Returns how many tiles there are. Columns
    that follow each other in the order are recognised by it, without a look at all of ``place``.
    """
    numbers[:] = -1
    following, here = False, -2
    start, end = 0, 0  # of the tile at hand
    for i in range(len(columns)):
        here += 1
        if not (following and here < len(order) and order[here] == columns[i]):
            found = place[columns[i]]
            following, here = found == here, found
        if not start <= here < end:
            tile = here // width
            numbers[tile] = 0
            start, end = tile * width, (tile + 1) * width
        at[i] = here
    count = 0
    for tile in range(len(numbers)):
        if numbers[tile] == 0:
            numbers[tile] = count
            count += 1
    return count


@jit
def locate(columns, order, place, width, distance, chosen, places):
    """Find the tiles that hold the ``columns`` (s,), and where columns lie when these follow each other; count them.

    Arguments as in :func:`find`; distance: from one tile to the next; chosen (tiles,) out: the tiles found, ascending;
    places (s,) out.
    """
    numbers = np.empty(len(chosen), np.int64)
    count = find(columns, order, place, width, places, numbers)
    for tile in range(len(numbers)):
        if numbers[tile] >= 0:
            chosen[numbers[tile]] = tile
    start, end, shift = 0, 0, 0  # of the tile at hand
    for i in range(len(places)):
        at = places[i]
        if not start <= at < end:
            tile = at // width
            start, end = tile * width, (tile + 1) * width
            shift = numbers[tile] * distance - start
        places[i] = at + shift
    return count


@jit
def copy_runs(numbers, width, rows, places, out):
    """``out[i, j] = numbers[rows[i] * width + places[j]]``, where most columns lie next to each other; else, False.

    numbers (n,): tiles one after the other, each by rows of ``width`` numbers; rows (b,); places (s,): where columns
    lie in row 0 of their tile, see :func:`locate`; out (b, s).
    """
    n_columns, n_runs = len(places), 1
    for j in range(1, n_columns):
        n_runs += places[j] != places[j - 1] + 1
    if n_columns < SHORT * n_runs:
        return False
    first = 0
    while first < n_columns:
        last = first + 1
        while last < n_columns and places[last] == places[last - 1] + 1:
            last += 1
        for i in range(len(rows)):
            start = rows[i] * width + places[first]
            source, target = numbers[start : start + last - first], out[i, first:last]
            for j in range(len(target)):
                target[j] = source[j]
        first = last
    return True
