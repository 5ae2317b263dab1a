"""Random permutations: all equally likely, and a function of the random numbers."""

import itertools

import numpy as np
import pytest

from terafactor.kernels.shuffle import shuffle


def shuffled(n, seed):
    order = np.arange(n)
    shuffle(np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32), order)
    return order


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_keeps_every_number(n):
    np.testing.assert_array_equal(np.sort(shuffled(n, 0)), np.arange(n))


def test_all_permutations_are_equally_likely():
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(4800):
        counts[tuple(shuffled(4, seed).tolist())] += 1
    expected = 4800 / len(counts)
    distance = sum((count - expected) ** 2 / expected for count in counts.values())  # chi squared, 23 degrees
    assert distance < 45  # other seeds would exceed it once in 250 times


def test_the_largest_draw_stays_within_bounds():
    order = np.arange(5)
    shuffle(np.full(5, 2**32 - 1, np.uint32), order)
    np.testing.assert_array_equal(order, np.arange(5))
