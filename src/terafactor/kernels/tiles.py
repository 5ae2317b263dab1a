"""Which tiles of features columns lie in, and where."""

import numpy as np

from terafactor.kernels._jit import jit

SHORT = 8
"""Columns next to each other, on average, below which it is slower to copy them together."""


@jit
def find(columns, order, place, width, at, numbers):
    """Put in ``at`` (s,) where the ``columns`` (s,) come in the order; number the tiles that hold some of them.

    order (p,): all features, of which each tile holds the next ``width``; place (p,): where each comes in it;
    numbers (tiles,) out: from zero, ascending, -1 for tiles that hold none. Returns how many tiles there are. Columns
    that follow each other in the order are recognised by it, without a look at all of ``place``.
    """
    n_features = len(order)
    numbers[:] = -1
    next_place, end = 0, 0  # of the tile at hand
    for i in range(len(columns)):
        column = columns[i]
        if next_place == n_features:
            next_place, end = 0, 0
        if order[next_place] != column:
            next_place = place[column]
            end = 0
        if next_place >= end:
            tile = next_place // width
            numbers[tile] = 0
            end = (tile + 1) * width
        at[i] = next_place
        next_place += 1
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
def pick(numbers, width, rows, places, out):
    """``out[i, j] = numbers[rows[i] * width + places[j]]``: rows (b,) and columns (s,) of tiles in memory.

    numbers (n,): tiles one after the other, each by rows of ``width`` numbers; places (s,): where columns lie in row 0
    of their tile, see :func:`locate`; out (b, s). Columns that lie next to each other are copied together, unless there
    are few such; then four rows are picked from at a time, so that more of memory is under way at once.
    """
    n_columns, n_runs = len(places), 1
    for j in range(1, n_columns):
        n_runs += places[j] != places[j - 1] + 1
    if n_columns < SHORT * n_runs:
        pick_one_by_one(numbers, width, rows, places, out)
        return
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


@jit
def pick_one_by_one(numbers, width, rows, places, out):
    """:func:`pick` where hardly any columns lie next to each other."""
    n_rows, n_columns = out.shape
    i = 0
    while i + 3 < n_rows:
        row0, row1, row2, row3 = rows[i] * width, rows[i + 1] * width, rows[i + 2] * width, rows[i + 3] * width
        out0, out1, out2, out3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for j in range(n_columns):
            place = places[j]
            out0[j], out1[j] = numbers[row0 + place], numbers[row1 + place]
            out2[j], out3[j] = numbers[row2 + place], numbers[row3 + place]
        i += 4
    while i < n_rows:
        row, target = rows[i] * width, out[i]
        for j in range(n_columns):
            target[j] = numbers[row + places[j]]
        i += 1
