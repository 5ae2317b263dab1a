"""Which tiles of features columns lie in, and where."""

import numpy as np

from terafactor.kernels._jit import jit


@jit
def cut_into_tiles(order, width, tile, inside):
    """``tile[order], inside[order] = divmod(arange(p), width)``: where each feature lies. order, tile, inside (p,)."""
    for place in range(len(order)):
        feature = order[place]
        tile[feature] = place // width
        inside[feature] = place % width


@jit
def number_tiles(columns, tile, numbers):
    """Number the tiles that hold some of the ``columns`` (s,) from zero, ascending; return how many there are.

    tile (p,): the tile of each feature; numbers (tiles,) out: -1 for tiles that hold none.
    """
    numbers[:] = -1
    for i in range(len(columns)):
        numbers[tile[columns[i]]] = 0
    count = 0
    for each in range(len(numbers)):
        if numbers[each] == 0:
            numbers[each] = count
            count += 1
    return count


@jit
def locate(columns, tile, inside, distance, chosen, places):
    """Find the tiles that hold the ``columns`` (s,), and where columns lie when these follow each other; count them.

    tile, inside (p,): the tile of each feature, and its place in it; distance: from one tile to the next;
    chosen (tiles,) out: the tiles found, ascending; places (s,) out.
    """
    numbers = np.empty(len(chosen), np.int64)
    count = number_tiles(columns, tile, numbers)
    for each in range(len(numbers)):
        if numbers[each] >= 0:
            chosen[numbers[each]] = each
    for i in range(len(columns)):
        places[i] = numbers[tile[columns[i]]] * distance + inside[columns[i]]
    return count
