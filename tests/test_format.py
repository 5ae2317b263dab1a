"""Numbers as people read them."""

import math

import numpy as np
import pytest

from terafactor import ElasticNet
from terafactor._format import count, data_size, duration, number, percent, setting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.23456, "1.235"),
        (-0.00012, "-0.00012"),
        (1234.5, "1,234"),
        (5e8, "5e+08"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (0.5, "50 %"), (0.004, "0.4 %"), (0.123, "12 %"), (1, "100 %"), (0.995, "99.5 %"), (math.nan, "-")],
)
def test_percent(value, text):
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_999, "1 MB"), (1.234e9, "1.23 GB"), (5e15, "5e+03 TB")],
)
def test_data_size(value, text):
    assert data_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.0421, "42.1 ms"),
        (12.34, "12.3 s"),
        (59.99, "60 s"),
        (200, "3 min 20 s"),
        (3599.9, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_duration(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (1e-3, "0.001"),
        (True, "True"),
        ("l1", "l1"),
        ((), "none"),
        ([print, "x"], "print, x"),
        (np.ones((2, 3)), "array of shape (2, 3)"),
        (ElasticNet(0.5), str(ElasticNet(0.5))),
    ],
)
def test_setting(value, text):
    assert setting(value) == text


def test_count():
    assert count(1234567) == "1,234,567"
