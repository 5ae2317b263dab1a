"""Random permutations, several times as fast as those of NumPy, with which drawing masks would be slow."""

import numpy as np

from terafactor.kernels.jit import jit

HALF = np.uint64(32)


@jit
def shuffle(draws, order):
    """Shuffle ``order`` (n,) in place, by the method of Fisher and Yates. draws (n,): random 32-bit integers.

    Entry i is swapped with entry ``draws[i] (i + 1) / 2^32``, uniform over 0 to i up to a bias of n / 2^32.
    """
    for i in range(len(order) - 1, 0, -1):
        other = np.int64((np.uint64(draws[i]) * np.uint64(i + 1)) >> HALF)
        order[i], order[other] = order[other], order[i]
