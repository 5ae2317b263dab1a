"""Locating columns in tiles of features, and copying them from there."""

import numpy as np

from terafactor.kernels.jit import jit

MIN_RUN = 8
"""Mean length of runs of adjacent columns from which on copying run by run is faster."""


@jit
def find_tiles(columns, order, place, width, at, numbers):
    """Find the positions of ``columns`` (s,) in the stored order, and number the tiles that hold some of them.

    order (p,): the stored order of the features, of which each tile holds the next ``width``; place (p,): its inverse;
    at (s,) out: ``place[columns]``; numbers (tiles,) out: 0, 1, ... for the tiles that hold columns, -1 for the others.
    Returns the number of tiles with columns. Runs of columns that are adjacent in ``order`` are followed there, with
    sequential access, rather than looked up in ``place``, with random access.
    """
    numbers[:] = -1
    following, here = False, -2
    start, end = 0, 0  # of the current tile
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
def locate_columns(columns, order, place, width, distance, chosen, places):
    """Find the tiles that hold ``columns`` (s,), and the position of each column once these tiles are read; count them.

    Arguments as in :func:`find_tiles`; distance: numbers from one tile to the next in memory; chosen (tiles,) out: the
    tiles, ascending; places (s,) out: the position of each column in row 0 of its tile. Returns the number of tiles.
    """
    numbers = np.empty(len(chosen), np.int64)
    count = find_tiles(columns, order, place, width, places, numbers)
    for tile in range(len(numbers)):
        if numbers[tile] >= 0:
            chosen[numbers[tile]] = tile
    start, end, shift = 0, 0, 0  # of the current tile
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
    """``out[i, j] = numbers[rows[i] * width + places[j]]`` if most columns are adjacent; otherwise return False.

    numbers (n,): tiles one after another, each in rows of ``width`` numbers; rows (b,); places (s,): positions of the
    columns in row 0 of their tile, see :func:`locate_columns`; out (b, s). Returns whether it copied them.
    """
    n_columns, n_runs = len(places), 1
    for j in range(1, n_columns):
        n_runs += places[j] != places[j - 1] + 1
    if n_columns < MIN_RUN * n_runs:
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
