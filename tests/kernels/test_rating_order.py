"""Integer keys are counted, marked and renumbered as NumPy does it."""

import numpy as np

from terafactor.kernels.rating_order import count_keys, mark_keys, number_keys

KEYS = np.array([7, 5, 7, 9, 5, 7])


def test_count_keys():
    counts = np.ones(11, np.int64)
    count_keys(KEYS, counts)
    np.testing.assert_array_equal(counts, 1 + np.bincount(KEYS, minlength=11))


def test_mark_and_number_keys():
    seen, out = np.zeros(5, np.bool_), np.empty(len(KEYS), np.int64)
    mark_keys(KEYS, 5, seen)
    assert seen.tolist() == [True, False, True, False, True]
    number_keys(KEYS, 5, np.array([10, 11, 12, 13, 14]), out)
    np.testing.assert_array_equal(out, KEYS + 5)
