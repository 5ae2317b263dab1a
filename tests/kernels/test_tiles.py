"""Columns are located in tiles of features, and copied from them in contiguous runs."""

import numpy as np
import pytest

from terafactor.kernels.tiles import copy_runs, find_tiles, locate_columns

N_FEATURES, WIDTH, N_ROWS = 103, 10, 6
DISTANCE = N_ROWS * WIDTH + 2


@pytest.fixture
def order():
    return np.random.default_rng(0).permutation(N_FEATURES).astype(np.int32)


def chosen_columns(order):
    """Yield single columns, all columns, and runs of the order: within a tile, across tiles, around the end."""
    random = np.random.default_rng(1)
    yield from (random.permutation(N_FEATURES)[:count] for count in (1, 7, N_FEATURES))
    yield np.arange(N_FEATURES)
    for start, stop in ((0, 103), (3, 8), (10, 20), (7, 45), (95, 120), (90, 193)):
        yield order[np.arange(start, stop) % N_FEATURES].astype(np.int64)
    yield np.concatenate([order[40:60], order[10:30], order[[5, 99]]]).astype(np.int64)
    yield order[30:60][::-1].astype(np.int64)


def test_columns_are_located_and_copied(order):
    place = np.argsort(order).astype(np.int32)
    rows = np.array([4, 0, 5, 1, 1])
    matrix = np.random.default_rng(2).standard_normal((N_ROWS, N_FEATURES)).astype(np.float32)
    for columns in chosen_columns(order):
        chosen, places = np.empty(11, np.int64), np.empty(len(columns), np.int64)
        found = locate_columns(columns, order, place, WIDTH, DISTANCE, chosen, places)
        np.testing.assert_array_equal(chosen[:found], np.unique(place[columns] // WIDTH))
        stored = np.full((found, DISTANCE), np.nan, np.float32)
        for number, tile in enumerate(chosen[:found]):
            features = order[tile * WIDTH : (tile + 1) * WIDTH]
            stored[number, : N_ROWS * WIDTH].reshape(N_ROWS, WIDTH)[:, : len(features)] = matrix[:, features]
        expected = matrix[np.ix_(rows, columns)]
        np.testing.assert_array_equal(stored.ravel()[rows[:, np.newaxis] * WIDTH + places], expected)
        out = np.full(expected.shape, np.nan, np.float32)
        copied = copy_runs(stored.ravel(), WIDTH, rows, places, out)
        n_runs = 1 + int((np.diff(places) != 1).sum())
        assert copied == (len(columns) >= 8 * n_runs)
        np.testing.assert_array_equal(out, expected if copied else np.full(expected.shape, np.nan))


def test_positions_and_tiles_are_found(order):
    place = np.argsort(order).astype(np.int32)
    for columns in chosen_columns(order):
        at, numbers = np.empty(len(columns), np.int64), np.empty(11, np.int64)
        found = find_tiles(columns, order, place, WIDTH, at, numbers)
        np.testing.assert_array_equal(at, place[columns])
        tiles = np.unique(place[columns] // WIDTH)
        assert found == len(tiles)
        expected = np.full(11, -1)
        expected[tiles] = np.arange(found)
        np.testing.assert_array_equal(numbers, expected)
