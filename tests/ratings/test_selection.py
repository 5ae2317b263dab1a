"""Splits, metrics and the choice of alpha."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from terafactor import MatrixCompletion, MatrixCompletionCV, RatingTable
from terafactor.datasets import make_ratings
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.ratings import split_by_time, split_per_user, split_randomly
from terafactor.ratings.evaluation.cross_validation import path_errors
from terafactor.ratings.evaluation.evaluate import evaluate_model
from terafactor.ratings.evaluation.metrics import mae, ndcg_at, recall_at, rmse
from terafactor.ratings.methods.biases import Biases
from terafactor.ratings.parameters import method_of


@pytest.mark.parametrize("split", [split_randomly, split_per_user])
def test_a_split_is_of_the_ratings_and_a_function_of_the_seed(table, split):
    train, test = split(table, 0.25, seed=3)
    assert len(train) + len(test) == len(table)
    assert len(test) == pytest.approx(0.25 * len(table), rel=0.1)
    pairs = {*zip(train.users, train.items, strict=True)} | {*zip(test.users, test.items, strict=True)}
    assert len(pairs) == len(table)
    np.testing.assert_array_equal(test.values, split(table, 0.25, seed=3)[1].values)
    assert not np.array_equal(test.items, split(table, 0.25, seed=4)[1].items)


def test_a_split_per_user_takes_the_same_share_of_each(table):
    _, test = split_per_user(table, 0.3)
    counts = np.bincount(table.users)
    np.testing.assert_array_equal(np.bincount(test.users, minlength=len(counts)), np.floor(0.3 * counts))


def test_a_split_by_time_tests_on_the_future(ratings):
    times = np.random.default_rng(0).permutation(len(ratings[0]))
    train, test = split_by_time(RatingTable.of(*ratings, times), 0.2)
    assert train.times.max() < test.times.min()
    with pytest.raises(DataError, match="have no times"):
        split_by_time(RatingTable.of(*ratings))
    with pytest.raises(ParameterError, match="test_share must be between 0 and 1, got 2"):
        split_randomly(RatingTable.of(*ratings), 2)


def test_metrics_of_known_answers():
    assert rmse(np.array([1.0, 4.0]), np.array([1.0, 2.0])) == pytest.approx(np.sqrt(2))
    assert mae(np.array([1.0, 4.0]), np.array([1.0, 2.0])) == 1
    lists, starts = np.array([[1, 2], [3, 4], [5, -1]]), np.array([0, 1, 4, 4])
    relevant = np.array([2, 3, 4, 9])
    assert recall_at(lists, starts, relevant) == pytest.approx((1 + 1) / 2)
    assert ndcg_at(lists, starts, relevant) == pytest.approx((1 / np.log2(3) + 1) / 2)
    assert np.isnan(recall_at(lists[:0], np.array([0]), relevant[:0]))


def test_evaluation_of_a_model(table):
    train, test = split_randomly(table, 0.2)
    model = MatrixCompletion(4, random_state=0).fit(train)
    facts = evaluate_model(model, test, n=10)
    assert facts["rmse"] == pytest.approx(-model.score(test))
    assert facts["mae"] < facts["rmse"]
    by_chance = evaluate_model(MatrixCompletion(1, random_state=0, n_epochs=0.1).fit(train), test, n=10)
    assert facts["ndcg@10"] > by_chance["ndcg@10"] > 0
    assert 0 < facts["recall@10"] <= 1


def test_places_without_an_item_are_not_hits():
    users, items = (axis.ravel() for axis in np.indices((12, 6)))
    table = RatingTable.of(users, items, (users + items) % 5 + 1.0)
    is_test = table.items >= 4
    model = MatrixCompletion(2, random_state=0).fit(table.take(~is_test))
    facts = evaluate_model(model, table.take(is_test), n=10, relevant=0)
    assert facts["recall@10"] == facts["ndcg@10"] == 1


def test_what_the_model_has_seen_is_not_relevant(table):
    train, test = split_randomly(table, 0.2)
    model = MatrixCompletion(4, random_state=0).fit(train)
    alone, both = (evaluate_model(model, ratings, n=60) for ratings in (test, table))
    assert (alone["recall@60"], alone["ndcg@60"]) == (both["recall@60"], both["ndcg@60"])
    assert alone["recall@60"] == 1
    assert evaluate_model(model, train)["recall@10"] is None


def test_evaluation_counts_who_is_not_known(table):
    model = MatrixCompletion(2, random_state=0, n_epochs=1).fit(table)
    facts = evaluate_model(model, RatingTable.of([1, 900, 901, 901], [2, 3, 950, 4], [5.0] * 4))
    assert (facts["unknown_users"], facts["unknown_items"]) == (2, 1)


@pytest.mark.parametrize(
    ("users", "items", "roles"),
    [
        (["1", "2"], [1, 2], ["user"]),
        (["1", "2"], ["1", "2"], ["user", "item"]),
        ([901, 902], [901, 902], ["user", "item"]),
        ([901, 902], [1, 2], []),
        ([901, 2], [1, 901], []),
        ([], [], []),
    ],
    ids=str,
)
def test_ids_that_are_all_unknown_are_reported(table, caplog, users, items, roles):
    model = MatrixCompletion(2, random_state=0, n_epochs=1).fit(table)
    model.predict((users, items))
    assert [record.args[0] for record in caplog.records] == roles
    if roles:
        assert f"{users[0]!r} is none of the 120 ids of the model, such as 0" in caplog.text


def test_the_best_alpha_is_found():
    table = RatingTable.of(*make_ratings(300, 60, 5400, noise=1.0))
    search = MatrixCompletionCV(
        MatrixCompletion(4, random_state=0, n_epochs=4), alphas=[10.0, 0.1, 1e-4], n_components=[1, 4], n_splits=2
    ).fit(table)
    assert (search.best_.alpha, search.best_.n_components) == (0.1, 4)
    assert len(search.results_) == 6
    assert all(len(result.errors) == 2 for result in search.results_)
    assert search.best_.mean == min(result.mean for result in search.results_)
    assert search.estimator_.alpha == search.alpha_ == pytest.approx(0.67 * 0.1)
    assert search.score(table) == search.estimator_.score(table)
    assert search.recommend([3], n=2)[0].shape == (1, 2)


@pytest.mark.parametrize("parameters", [{}, {"statistics": "masked"}, {"stream": "items"}], ids=str)
def test_default_grids_have_fifteen_values_and_a_curve(table, tmp_path, parameters):
    base = MatrixCompletion(3, random_state=0, n_epochs=1, batch_size=60, **parameters)
    search = MatrixCompletionCV(base, n_splits=1).fit(table)
    assert len(search.results_) == 15
    errors = [result.mean for result in search.results_]
    assert min(errors) < 0.9 * max(errors)
    picture = search.plot(tmp_path / "curve.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_curve_that_cannot_be_written_leaves_the_earlier_one(table, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def fail(figure, file, **options):
        file.write(b"half") if hasattr(file, "write") else Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    search = MatrixCompletionCV(MatrixCompletion(2, random_state=0, n_epochs=1), alphas=[0.1], n_splits=1).fit(table)
    (tmp_path / "curve.png").write_bytes(b"earlier")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(StorageError, match=r"curve\.png"):
        search.plot(tmp_path / "curve.png")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("curve.png", b"earlier")]


@pytest.mark.parametrize(
    ("parameters", "strengths"),
    [
        ({}, [None, 0.3]),
        ({"stream": "items"}, [None, 0.3]),
        ({"statistics": "masked"}, [2.0]),
        ({"statistics": "masked", "stream": "items"}, [2.0]),
    ],
    ids=str,
)
def test_errors_are_those_of_a_fit_of_its_own(table, parameters, strengths):
    train, test = split_randomly(table, 0.33)
    base = MatrixCompletion(3, random_state=5, n_epochs=2, **parameters)
    for strength, error in path_errors(base, train, test, strengths, 4, seed=5):
        own = clone(base).set_params(alpha=strength, n_components=4).fit(train)
        assert error == -own.score(test)


def test_errors_are_clipped_only_where_predictions_are(table):
    def error(clip):
        base = MatrixCompletion(8, random_state=0, n_epochs=2, clip=clip)
        return MatrixCompletionCV(base, alphas=[1e-3], n_splits=1).fit(table).best_.mean

    assert error(clip=True) != error(clip=False)


def test_the_strengths_of_a_path_share_their_biases(table, monkeypatch):
    base = MatrixCompletion(3, random_state=0, n_epochs=2, statistics="masked", batch_size=20)
    first, second = (method_of(clone(base).set_params(alpha=alpha), 0) for alpha in (2.0, 1.0))
    start = first.learn(table).warm_start()
    assert start.numbers["offset"] == Biases.of(table).offset
    np.testing.assert_array_equal(start.arrays["item_biases"], Biases.of(table).items)
    np.testing.assert_array_equal(start.arrays["user_biases"], Biases.of(table).users)
    monkeypatch.setattr(Biases, "of", None)
    assert second.learn(table, start=start).n_steps > 0


def test_a_warm_start_ends_where_a_cold_one_does(table):
    def errors(alphas):
        base = MatrixCompletion(3, random_state=0, n_epochs=15)
        return MatrixCompletionCV(base, alphas=alphas, n_splits=1).fit(table).results_[-1].mean

    assert errors([0.3, 0.1]) == pytest.approx(errors([0.1]), rel=0.05)


def test_a_search_without_anything_to_try_is_refused(table):
    with pytest.raises(ParameterError, match="must not be empty"):
        MatrixCompletionCV(alphas=[]).fit(table)
    with pytest.raises(ParameterError, match="splitter must be callable or one of random, per_user, by_time"):
        MatrixCompletionCV(splitter="odd").fit(table)


def test_ratings_too_few_for_a_split_are_refused(table):
    few = RatingTable.of([1, 2, 3], [1, 2, 3], [3.0, 4.0, 5.0])
    message = "3 ratings split with test_share=0.33 give 3 training and 0 test ratings.* pass at least 4 ratings"
    with pytest.raises(DataError, match=message):
        MatrixCompletionCV().fit(few)
    with pytest.raises(DataError, match="pass at least 5 ratings of a user"):
        MatrixCompletionCV(splitter="per_user", test_share=0.2).fit(few)
    with pytest.raises(DataError, match="give 0 training"):
        MatrixCompletionCV(splitter=lambda table, share, seed: (table.take(slice(0)), table)).fit(table)
    four = RatingTable.of([1, 2, 3, 4], [1, 2, 3, 4], [3.0, 4.0, 5.0, 4.0])
    assert MatrixCompletionCV(MatrixCompletion(1), alphas=[0.1]).fit(four).best_.mean >= 0
