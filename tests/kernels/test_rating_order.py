"""Integer keys are counted as NumPy does it."""

import numpy as np

from terafactor.kernels.rating_order import count_keys

KEYS = np.array([7, 5, 7, 9, 5, 7])


def test_count_keys():
    counts = np.ones(11, np.int64)
    count_keys(KEYS, counts)
    np.testing.assert_array_equal(counts, 1 + np.bincount(KEYS, minlength=11))
