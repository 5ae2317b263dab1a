"""Weighted sums of rows in registers equal matrix products."""

import numpy as np
import pytest

from terafactor.kernels._rows import LONG, ROWS, SHORT, add_rows, add_to_rows, add_up_rows, blend_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("start", "stop"), [(0, 100), (7, 100), (3, 5), (10, 10), (24, 72)])
@pytest.mark.parametrize(("first", "last"), [(0, 9), (2, 7), (4, 4)])
def test_add_rows(dtype, start, stop, first, last):
    random = np.random.default_rng(0)
    weights, source, target = (random.standard_normal(shape).astype(dtype) for shape in ((8, 9), (9, 100), (7, 100)))
    expected = target.copy()
    expected[2 : 2 + ROWS, start:stop] += weights[3 : 3 + ROWS, first:last] @ source[first:last, start:stop]
    add_rows(weights, 3, source, first, last, start, stop, target, 2)
    np.testing.assert_allclose(target, expected, rtol=100 * np.finfo(dtype).eps, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 8 * LONG - 1, 8 * LONG, 20 * LONG])
@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 3), (2, 2)])
@pytest.mark.parametrize("keep", [0, 0.5])
def test_blend_rows(dtype, width, first, last, keep):
    random = np.random.default_rng(0)
    source, target, weights = (random.standard_normal(shape).astype(dtype) for shape in ((6, 200), (3, 200), 5))
    rows, columns = np.array([4, 0, 5, 5, 1]), slice(7, 7 + width)
    expected = target.copy()
    shares, take = np.where(np.arange(200) % 3, keep, 0).astype(dtype), random.random(200).astype(dtype)
    added = take[columns] * (weights[first:last] @ source[rows[first:last], columns])
    expected[2, columns] = shares[columns] * target[2, columns] + added
    target[2, shares == 0] = expected[2, shares == 0] = np.nan
    expected[2, columns] = np.where(shares[columns] == 0, added, expected[2, columns])
    blend_rows(shares, take, source, rows, weights, first, last, columns.start, columns.stop, target, 2)
    np.testing.assert_allclose(target, expected, rtol=100 * np.finfo(dtype).eps, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 40, 41, 8 * SHORT, 8 * SHORT + 19])
@pytest.mark.parametrize("numbers", [np.int64, np.uint16])
@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 3), (2, 2)])
def test_short_rows(dtype, width, numbers, first, last):
    random = np.random.default_rng(0)
    source, target, weights = (random.standard_normal(shape).astype(dtype) for shape in ((6, width), (7, width), 5))
    rows, close = np.array([4, 0, 5, 5, 1], numbers), 100 * np.finfo(dtype).eps
    expected = target.copy()
    np.add.at(expected, rows[first:last], np.multiply.outer(weights[first:last], source[3]))
    add_to_rows(source, 3, rows, weights, first, last, target)
    np.testing.assert_allclose(target, expected, rtol=close, atol=close)
    expected[6] += weights[first:last] @ source[rows[first:last]]
    add_up_rows(source, rows, weights, first, last, target, 6)
    np.testing.assert_allclose(target, expected, rtol=close, atol=close)
