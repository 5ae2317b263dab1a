"""Bars of brain images: which fits they compare."""

import pytest
from benchmarks.brain import gain_at

FITS = {"short": (12.0, 1.0), "long": (10.0, 4.0)}


@pytest.mark.parametrize(("objective", "gain"), [(13.0, 8.0), (12.0, 8.0), (11.0, 2.0), (9.0, 0.0)])
def test_gain_is_that_of_the_shortest_fit_as_good(objective, gain):
    assert gain_at(objective, 8.0, FITS) == gain
