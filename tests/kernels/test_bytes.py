"""Flags that differ are found wherever they are in a word, or after the last one."""

import numpy as np
import pytest

from terafactor.kernels._bytes import find_unlike
from terafactor.kernels.missing import exceptions, split_missing


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("share", [0, 0.02, 0.5, 1])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 9), (0, 64), (5, 203), (128, 203)])
def test_find_unlike(usual, share, start, stop):
    flags = (np.random.default_rng(0).random((7, 29)) < share) ^ usual
    places = np.full(stop - start, -1)
    found = find_unlike(flags, start, stop, usual, places)
    np.testing.assert_array_equal(places[:found], start + np.flatnonzero(flags.ravel()[start:stop] != usual))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0, 0.02, 0.5, 1])
def test_missing_values_are_set_apart(dtype, share):
    random = np.random.default_rng(0)
    values = random.standard_normal((6, 53)).astype(dtype)
    holes = random.random(values.shape) < share
    holes[2] = True
    complete = np.where(holes, 0, values)
    values[holes] = np.nan
    observed, per_feature = np.empty(values.shape, np.bool_), np.empty(53, np.int64)
    assert split_missing(values, observed, per_feature) == holes.sum()
    np.testing.assert_array_equal(values, complete)
    np.testing.assert_array_equal(observed, ~holes)
    np.testing.assert_array_equal(per_feature, (~holes).sum(axis=0))
    few_missing, places, starts = exceptions(observed)
    np.testing.assert_array_equal(few_missing, 2 * (~holes).sum(axis=1) >= 53)
    for row, usual in enumerate(few_missing):
        expected = row * 53 + np.flatnonzero(observed[row] != usual)
        np.testing.assert_array_equal(places[starts[row] : starts[row + 1]], expected)
