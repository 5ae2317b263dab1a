"""The kernels of ratings agree with their literal twins."""

import numpy as np
import pytest

from terafactor._threads import Threads
from terafactor.kernels.blas import address
from terafactor.kernels.ranking import ITEMS_PER_TILE, predict_pairs, recommend_users
from terafactor.kernels.rating_order import first_duplicate, sort_by_item, sort_by_user
from terafactor.kernels.ratings import GATHER_ROWS, code_users, row_width, update_items
from terafactor.kernels.solve import eliminate, read_solution
from terafactor.ratings.methods.encode import split_by_ratings
from terafactor.testing import reference_ratings as reference

DTYPES = [np.float32, np.float64]
K = [1, 2, 7, 30]


def padded(rows, dtype):
    out = np.zeros((len(rows), row_width(rows.shape[1])), dtype)
    out[:, : rows.shape[1]] = rows
    return out


def tolerance(dtype):
    return {"rtol": 2e-3, "atol": 2e-4} if dtype == np.float32 else {"rtol": 1e-8, "atol": 1e-10}


def problem(k, lengths, dtype, seed=0):
    """Return items, variances, ratings by row and a prior."""
    random = np.random.default_rng(seed)
    n_items = 40
    factors, variances = random.standard_normal((n_items, k)), 0.1 * random.random((n_items, k))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    items = random.integers(n_items, size=starts[-1]).astype(np.int32)
    values = random.standard_normal(starts[-1]).astype(dtype)
    root = random.standard_normal((k, k))
    return factors, variances, starts, items, values, random.standard_normal(k), root @ root.T + np.eye(k)


def lowered(mean, precision, noise, dtype):
    k = len(mean)
    wide, linear, center = (np.zeros(s, dtype) for s in ((row_width(k), row_width(k)), row_width(k), row_width(k)))
    wide[:k, :k], linear[:k], center[:k] = noise * precision, noise * precision @ mean, mean
    return wide, linear, center


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_codes_of_users_are_those_of_the_reference(dtype, k, alpha):
    lengths = [3, 0, 1, GATHER_ROWS + 5, 2 * GATHER_ROWS, 40]
    factors, variances, starts, items, values, mean, precision = problem(k, lengths, dtype)
    noise = 0.4
    width = row_width(k)
    codes, spread, errors = np.full((6, width), np.nan, dtype), np.full((6, width), np.nan, dtype), np.empty(6, dtype)
    code_users(
        address("syrk", np.dtype(dtype)), padded(factors, dtype), padded(variances, dtype), starts, items, values,
        dtype(alpha), *lowered(mean, precision, noise, dtype), dtype(noise), k, 0, 6, codes, spread, errors,
    )  # fmt: skip
    for row, length in enumerate(lengths):
        if length == 0:
            np.testing.assert_allclose(codes[row, :k], mean, rtol=1e-6)
            assert errors[row] == 0
            continue
        mine = slice(starts[row], starts[row + 1])
        rows, ratings = factors[items[mine]], values[mine].astype(np.float64)
        found = reference.solve(rows, variances[items[mine]], ratings, alpha, noise, mean, precision)
        np.testing.assert_allclose(codes[row, :k], found.mean, **tolerance(dtype))
        np.testing.assert_allclose(spread[row, :k], found.variance, **tolerance(dtype))
        error = reference.expected_error(rows, ratings, found.mean, noise, mean, precision)
        np.testing.assert_allclose(errors[row], max(error, 0), rtol=1e-3, atol=1e-3 * (ratings @ ratings))
    assert not codes[:, k:].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", K)
def test_items_are_those_of_the_reference(dtype, k):
    random = np.random.default_rng(1)
    lengths = [2, GATHER_ROWS + 3, 1]
    codes, variances, starts, users, values, mean, precision = problem(k, lengths, dtype)
    present, n_items, noise, memory, alpha = np.array([0, 2, 3]), 5, 0.3, 0.56, 0.1
    totals = np.array([6, 1, 2 * GATHER_ROWS, 1, 0])
    width = row_width(k)
    statistics, weights = np.zeros((n_items, width, width), dtype), np.zeros(n_items, dtype)
    counts, factors, spread = np.zeros(n_items, np.int64), *np.zeros((2, n_items, width), dtype)
    before = {item: reference.ItemStatistics(np.zeros((k, k)), np.zeros(k)) for item in present.tolist()}
    for _ in range(2):
        update_items(
            address("syrk", np.dtype(dtype)), padded(codes, dtype), padded(variances, dtype), starts, users, values,
            present, memory, totals, dtype(alpha), *lowered(mean, precision, noise, dtype), dtype(noise), k, 0, 3,
            statistics, weights, counts, factors, spread,
        )  # fmt: skip
        for place, item in enumerate(present.tolist()):
            mine = slice(starts[place], starts[place + 1])
            before[item] = reference.update_item(
                before[item], codes[users[mine]], variances[users[mine]], values[mine].astype(float), memory,
                totals[item],
            )  # fmt: skip
            found = reference.solve_item(before[item], alpha, noise, mean, precision)
            np.testing.assert_allclose(factors[item, :k], found.mean, **tolerance(dtype))
            np.testing.assert_allclose(spread[item, :k], found.variance, **tolerance(dtype))
            assert counts[item] == before[item].count
        values = random.standard_normal(len(values)).astype(dtype)
    assert not factors[[1, 4]].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_singular_system_gives_finite_numbers(dtype):
    system = np.zeros((8, 8), dtype)
    system[:3, :3] = np.triu(np.ones((3, 3)))
    system[:3, -1] = [1, 1, 1]
    solution, variance = np.empty((2, 8), dtype)
    eliminate(system, 3)
    read_solution(system, 3, dtype(1), solution, variance)
    assert np.isfinite(solution).all()
    assert np.isfinite(variance).all()


def test_ratings_are_placed_by_user_and_by_item_in_the_order_they_came():
    random = np.random.default_rng(0)
    users, items = random.integers(9, size=200), random.integers(7, size=200).astype(np.int32)
    values = np.arange(200, dtype=np.float32)
    ranks = random.permutation(9)
    starts = np.concatenate([[0], np.cumsum(np.bincount(ranks[users], minlength=9))])
    placed_items, placed_values = np.empty_like(items), np.empty_like(values)
    sort_by_user(ranks, users, items, values, starts[:-1].copy(), placed_items, placed_values)
    order = np.argsort(ranks[users], kind="stable")
    np.testing.assert_array_equal(placed_values, values[order])
    np.testing.assert_array_equal(placed_items, items[order])

    per_item = np.bincount(items, minlength=7)
    by_item_users, by_item_values = np.empty(200, np.int32), np.empty_like(values)
    ends = np.cumsum(per_item) - per_item
    sort_by_item(starts, placed_items, placed_values, ends, by_item_users, by_item_values)
    order = np.argsort(placed_items, kind="stable")
    np.testing.assert_array_equal(by_item_values, placed_values[order])
    np.testing.assert_array_equal(by_item_users, np.repeat(np.arange(9), np.diff(starts))[order])


def test_the_first_duplicate_pair_is_found():
    starts, items = np.array([0, 3, 3, 6]), np.array([1, 0, 2, 1, 0, 1], np.int32)
    assert first_duplicate(starts, items, np.full(3, -1, np.int32)) == 5
    assert first_duplicate(starts, np.array([1, 0, 2, 1, 0, 2], np.int32), np.full(3, -1, np.int32)) == -1


@pytest.mark.parametrize("n", [1, 3, 10, 60])
def test_recommended_items_are_those_of_a_sort(n):
    random = np.random.default_rng(n)
    n_users, n_items = 70, 50
    codes, factors = (
        padded(random.integers(-2, 3, (n_users, 7)), np.float32),
        padded(random.integers(-2, 3, (n_items, 7)), np.float32),
    )  # small integers: many equal scores, exactly
    biases = random.integers(-1, 2, n_items).astype(np.float32)
    seen = [np.sort(random.choice(n_items, random.integers(0, n_items), replace=False)) for _ in range(n_users)]
    starts = np.concatenate([[0], np.cumsum([len(mine) for mine in seen])])
    columns = np.sort(random.choice(n_items, 30, replace=False))
    scores, items = np.empty((n_users, n), np.float32), np.empty((n_users, n), np.int64)
    tiles, tile_biases = np.zeros((factors.shape[1], ITEMS_PER_TILE), np.float32), np.zeros(ITEMS_PER_TILE, np.float32)
    tiles[:, :30], tile_biases[:30] = factors[columns].T, biases[columns]
    excluded = np.concatenate(seen).astype(np.int32)
    recommend_users(codes, tiles, tile_biases, columns, starts, excluded, 0, n_users, scores, items)
    every = codes @ factors.T + biases
    for user in range(n_users):
        expected = reference.best(every[user], seen[user], columns, n)
        assert items[user].tolist() == expected + [-1] * (n - len(expected))
        np.testing.assert_array_equal(scores[user, : len(expected)], every[user, expected])


def test_predictions_of_pairs():
    random = np.random.default_rng(0)
    users, items = random.integers(-1, 6, size=30), random.integers(-1, 5, size=30)
    codes, factors = random.standard_normal((6, 8)).astype(np.float32), random.standard_normal((5, 8), np.float32)
    user_biases, item_biases = random.standard_normal(6, np.float32), random.standard_normal(5, np.float32)
    mean_user, mean_item = random.standard_normal((2, 8), np.float32)
    out = np.zeros(30, np.float32)
    predict_pairs(users, items, codes, user_biases, mean_user, factors, item_biases, mean_item, 3, 20, out)
    products = np.vstack([codes, mean_user]) @ np.vstack([factors, mean_item]).T
    expected = (products + np.append(user_biases, 0)[:, None] + np.append(item_biases, 0))[users, items]
    np.testing.assert_allclose(out[3:20], expected[3:20], rtol=1e-5, atol=1e-6)
    assert not out[:3].any()
    assert not out[20:].any()


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("lengths", [[1], [1000, 1, 1], [0, 0, 0, 7], [3] * 100])
def test_threads_share_all_rows_and_none_twice(n_threads, lengths):
    starts, calls = np.concatenate([[0], np.cumsum(lengths)]), []
    with Threads(n_threads) as threads:
        split_by_ratings(lambda start, stop: calls.append((start, stop)), starts, threads)
    rows = sorted(row for start, stop in calls for row in range(start, stop))
    assert rows == list(range(len(lengths)))
