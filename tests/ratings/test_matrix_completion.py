"""The estimator: what it learns, predicts and recommends."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from terafactor import MatrixCompletion, RatingTable, load_model
from terafactor._threads import Threads
from terafactor.datasets import make_ratings
from terafactor.errors import DataError, ParameterError
from terafactor.ratings import split_randomly

METHODS = [
    {},
    {"alpha": 0.1},
    {"explicit_biases": True},
    {"stream": "items"},
    {"statistics": "masked"},
    {"statistics": "masked", "projection": "exact"},
    {"statistics": "masked", "codes": "last", "damping": 2.0},
    {"statistics": "masked", "stream": "items"},
]


def fitted(X, **parameters):
    return MatrixCompletion(**({"n_components": 4, "random_state": 0, "n_epochs": 5} | parameters)).fit(X)


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_every_method_predicts_better_than_biases(parameters):
    train, test = split_randomly(RatingTable.of(*make_ratings(400, 80, 9600)), 0.2)
    model = fitted(train, n_epochs=10, **parameters)
    means = np.bincount(train.items, train.values, 80) / np.bincount(train.items, minlength=80)
    of_means = np.sqrt(np.mean((means[test.items] - test.values) ** 2))
    assert -model.score(test) < 0.7 * of_means


def test_the_default_comes_close_to_the_noise():
    train, test = split_randomly(RatingTable.of(*make_ratings(800, 100, 24000)), 0.2)
    model = fitted(train, n_components=8, n_epochs=10)
    assert -model.score(test) < 1.2 * 0.3
    assert 0.27 < model.noise_ < 0.36


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_an_exported_model_predicts_with_plain_numpy(X, tmp_path, parameters):
    """This is the formula of docs/ratings.md, of which -1 is one who is unknown."""
    model = fitted(X, n_epochs=2, **parameters)
    model.export(tmp_path / "model.npz")
    users, items = [3, 3, 119, -1, 7, -1], [5, 59, 0, 8, -1, -1]
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        learned = dict(arrays)
    codes = np.vstack([learned["user_factors_"], learned["mean_user_"]])[users]
    factors = np.vstack([learned["components_"].T, learned["mean_item_"]])[items]
    biases = np.append(learned["user_biases_"], 0)[users] + np.append(learned["item_biases_"], 0)[items]
    ratings = learned["mean_rating_"] + learned["spread_"] * (biases + (codes * factors).sum(axis=1))
    np.testing.assert_allclose(np.clip(ratings, *learned["range_"]), model.predict((users, items)), rtol=1e-5)
    assert learned["spread_"].shape == ()


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(X, parameters):
    one, two = (fitted(X, n_threads=n, n_epochs=2, **parameters) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.user_factors_, two.user_factors_)
    assert one.recommend(n=3)[0].tolist() == two.recommend(n=3)[0].tolist()


def test_recommendations_depend_on_the_user_alone():
    model = fitted(make_ratings(70, 301, 3000), n_components=30, n_epochs=1, clip=False)
    items, ratings = model.set_params(n_threads=1).recommend(n=301, exclude_seen=False)
    for users, n_threads in ((None, 3), ([7, 3], 2), ([7, 3], 1), ([69], 1)):
        found = model.set_params(n_threads=n_threads).recommend(users, n=301, exclude_seen=False)
        rows = slice(None) if users is None else users
        np.testing.assert_array_equal(found[0], items[rows])
        np.testing.assert_array_equal(found[1], ratings[rows])
    some, values = model.recommend([7], n=99, exclude_seen=False, allowed=model.items_[::3])
    expected = np.isin(items[7], model.items_[::3])
    np.testing.assert_array_equal(some[0], items[7][expected][:99])
    np.testing.assert_array_equal(values[0], ratings[7][expected][:99])
    similar, cosines = model.similar_items(model.items_, n=300)
    alone, cosine = model.similar_items([5], n=300)
    np.testing.assert_array_equal(alone[0], similar[5])
    np.testing.assert_array_equal(cosine[0], cosines[5])


def test_equal_scores_are_ranked_by_item_number():
    users, items = (axis.ravel() for axis in np.indices((6, 9)))
    model = fitted((users, items, np.full(54, 3.0)))
    for n_threads in (1, 2):
        found, _ = model.set_params(n_threads=n_threads).recommend(n=9, exclude_seen=False)
        np.testing.assert_array_equal(found, np.tile(np.arange(9), (6, 1)))


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.1}], ids=str)
@pytest.mark.parametrize(("scale", "shift"), [(20.0, 0.0), (-3.0, 0.0), (1.0, 1000.0), (1e-3, -5.0)])
def test_predictions_follow_scale_sign_and_origin_of_ratings(ratings, parameters, scale, shift):
    users, items, values = ratings
    before = fitted(ratings, n_epochs=3, **parameters).predict((users, items))
    changed = fitted((users, items, scale * values.astype(np.float64) + shift), n_epochs=3, **parameters)
    np.testing.assert_allclose(
        changed.predict((users, items)), scale * before + shift, atol=0.02 * abs(scale) + 1e-5 * abs(shift)
    )


def test_a_checkerboard_without_its_diagonal_is_completed():
    board = (np.add.outer(np.arange(40), np.arange(40)) % 2).astype(float) * 4 + 1
    np.fill_diagonal(board, np.nan)
    board = np.where(np.eye(40, k=1, dtype=bool), np.nan, board)  # of odd places too, one per user: a 5
    for parameters in ({}, {"alpha": 0.02}):
        model = fitted(board, n_components=3, n_epochs=10, **parameters)
        first = model.recommend(n=1)[0][:39, 0]
        np.testing.assert_array_equal(first, np.arange(1, 40))


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.1}, {"statistics": "masked"}], ids=str)
def test_folding_in_a_known_user_gives_the_code_it_has(X, parameters):
    model = fitted(X, **parameters)
    np.testing.assert_allclose(model.transform(X), model.user_factors_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.transform(X[[5, 3]]), model.user_factors_[[5, 3]], rtol=1e-4, atol=1e-5)


def test_predictions_of_pairs_of_a_sparse_pattern_and_of_unknown_ids(X):
    model = fitted(X)
    users, items = X.nonzero()
    as_matrix = model.predict(X)
    np.testing.assert_array_equal(model.predict((users, items)), as_matrix.tocoo().data)
    np.testing.assert_array_equal(model.predict(np.column_stack([users, items])), as_matrix.tocoo().data)
    twice = sparse.coo_array((np.ones(2), (users[[0, 0]], items[[0, 0]])), shape=as_matrix.shape)
    assert model.predict(twice).tocoo().data.tolist() == model.predict((users[:1], items[:1])).tolist()
    unknown = model.predict(([10**6, 0, 10**6], [0, 10**6, 10**6]))
    assert np.isfinite(unknown).all()
    assert unknown[2] == pytest.approx(X.data.mean(), abs=0.5)
    with pytest.raises(DataError, match="shape \\(3,\\)"):
        model.predict([1, 2, 3])


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_pairs_of_a_data_frame_go_by_the_names_of_its_columns(ratings, package):
    DataFrame = pytest.importorskip(package).DataFrame
    users, items, values = ratings
    frame = DataFrame({"user": users, "item": items + 1000, "rating": values})
    model = fitted(frame)
    expected = model.predict((users, items + 1000))
    assert expected.std() > 0.3
    for columns in (["user", "item"], ["item", "user"], ["rating", "item", "user"]):
        np.testing.assert_array_equal(model.predict(frame[columns]), expected)
    unnamed = DataFrame({"a": users, "b": items + 1000})
    np.testing.assert_array_equal(model.predict(unnamed), expected)
    with pytest.raises(DataError, match="no column is recognized as user among who, item"):
        model.predict(DataFrame({"who": users, "item": items}))
    named = DataFrame({"item": items + 1000, "who": users, "stars": values})
    model = fitted(named, columns={"user": "who", "rating": "stars"})
    np.testing.assert_array_equal(model.predict(named[["item", "who"]]), expected)


def test_pairs_in_a_list_keep_the_types_of_their_ids(ratings):
    users, items, values = ratings
    model = fitted((users, [f"film {item}" for item in items], values))
    pairs = [(int(users[place]), f"film {items[place]}") for place in (0, 50)]
    np.testing.assert_array_equal(model.predict(pairs), model.predict(tuple(map(list, zip(*pairs, strict=True)))))


def test_columns_may_be_numbered(ratings):
    frame = pd.DataFrame(dict(enumerate(ratings)))
    model = fitted(frame, columns={"user": 0, "item": 1, "rating": 2})
    np.testing.assert_array_equal(model.predict(frame), fitted(ratings).predict(tuple(ratings[:2])))


def test_predictions_are_clipped_unless_disabled(X):
    X.data[:] = np.clip(X.data, 2.5, 3.5)
    clipped, free = fitted(X), fitted(X, clip=False)
    pairs = tuple(axis.ravel() for axis in np.indices(X.shape))
    low, high = X.data.min(), X.data.max()
    assert clipped.range_ == (low, high)
    np.testing.assert_array_equal(clipped.predict(pairs), np.clip(free.predict(pairs), low, high))
    assert free.predict(pairs).max() > high


def test_recommendations_are_the_best_predictions_of_what_was_not_seen(X):
    model = fitted(X, clip=False)
    predicted = model.predict(tuple(axis.ravel() for axis in np.indices(X.shape))).reshape(X.shape)
    unseen = np.where(X.toarray() != 0, -np.inf, predicted)
    items, ratings = model.recommend(n=5)
    np.testing.assert_array_equal(items, np.argsort(-unseen, axis=1)[:, :5])
    np.testing.assert_allclose(ratings, np.take_along_axis(predicted, items, 1), rtol=1e-4)
    with_seen, _ = model.recommend([7], n=5, exclude_seen=False)
    np.testing.assert_array_equal(with_seen[0], np.argsort(-predicted[7])[:5])
    allowed, _ = model.recommend([7], n=2, allowed=[3, 50, 11, 10**9], exclude_seen=False)
    assert allowed[0].tolist() == sorted([3, 50, 11], key=lambda item: -predicted[7, item])[:2]
    folded, _ = model.recommend(histories=X[[7, 3]], n=5)
    np.testing.assert_array_equal(folded, items[[7, 3]])


def test_ids_are_put_in_order_once(ratings, monkeypatch):
    users, items, values = ratings
    model = fitted((users.astype(str), items.astype(str), values))
    pickled = pickle.dumps(model)
    predicted = model.predict((["7", "nobody"], ["3", "nothing"]))
    monkeypatch.setattr(np, "argsort", None)
    np.testing.assert_array_equal(model.predict((["7", "nobody"], ["3", "nothing"])), predicted)
    model.recommend(["7", "nobody"], n=2, allowed=["3", "5"])
    assert pickle.dumps(model) == pickled


def test_answers_take_no_memory_that_grows_with_the_users(X):
    few = fitted(X)._model
    many = replace(few, user_factors=np.ones((50_000, few.user_factors.shape[1]), np.float32))
    many = replace(many, user_biases=np.zeros(50_000, np.float32))

    def answers(model):
        with Threads(1) as threads:
            return [
                *model.predict(np.array([9, -1]), np.array([5, -1]), threads),
                *model.codes_of(np.array([9, -1])).biases,
            ]

    expected = answers(few)[1]
    tracemalloc.start()
    try:
        assert answers(many)[1] == expected
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_a_model_predicts_with_its_previous_fit_during_a_new_one(X):
    answers, pair = [], ([119], [59])
    model = fitted(X, clip=False)
    before = model.predict(pair)
    model.set_params(callbacks=[lambda snapshot: answers.append(model.predict(pair))]).fit(X[:10, :10])
    np.testing.assert_array_equal(answers, [before] * len(answers))
    assert answers


def test_recommendations_where_there_is_little_to_recommend(X):
    model = fitted(X)
    items, ratings = model.recommend([10**6], n=3)
    assert items.shape == (1, 3)
    assert np.isfinite(ratings).all()
    items, ratings = model.recommend([0], n=4, allowed=[2, 5], exclude_seen=False)
    assert set(items[0, :2]) == {2, 5}
    assert items[0, 2:].tolist() == [-1, -1]
    assert np.isnan(ratings[0, 2:]).all()
    none, ratings = model.recommend([0], n=2, allowed=[])
    assert none.tolist() == [[-1, -1]]
    assert np.isnan(ratings).all()
    named = fitted((["ann", "bob"], ["dune", "heat"], [3.0, 4.0]))
    assert named.recommend(["ann"], n=2)[0].tolist() == [["heat", ""]]
    for n in (3, 10**12):
        items, ratings = named.recommend(["ann"], n=n)
        assert items.tolist() == [["heat", ""]]
        assert np.isnan(ratings).tolist() == [[False, True]]
    with pytest.raises(ParameterError, match="n must be an integer >= 1, got 0"):
        model.recommend(n=0)


@pytest.mark.parametrize("pairs", [([0, 1], [0]), ([0], [0, 1]), ([], [0])], ids=str)
def test_users_and_items_of_different_lengths_are_refused(X, pairs):
    with pytest.raises(DataError, match="users and items must have the same length, got"):
        fitted(X).predict(pairs)


@pytest.mark.parametrize("bad", [[1, 2], {}, {1}, np.array([3])], ids=str)
def test_ids_that_are_not_hashable_are_named(X, bad):
    model = fitted(X)
    for call in (
        lambda: model.recommend([bad]),
        lambda: model.predict(([bad], [0])),
        lambda: MatrixCompletion(2).fit(([1, bad], [1, 2], [3.0, 4.0])),
        lambda: model.recommend([(1, bad)]),
    ):
        with pytest.raises(DataError, match=r"id number \d is .* of type .*: ids must be hashable"):
            call()


def test_items_that_are_alike_are_similar():
    users, items, values = make_ratings(300, 40, 3600)
    twin = items == 3
    both = (np.append(users, users[twin]), np.append(items, np.full(twin.sum(), 40)), np.append(values, values[twin]))
    model = fitted(both, n_components=5)
    found, cosines = model.similar_items([3, 40], n=4)
    assert found[0, 0] == 40
    assert found[1, 0] == 3
    assert cosines[0, 0] > 0.99
    assert np.all(np.diff(cosines, axis=1) <= 0)
    with pytest.raises(DataError, match="item 99 is unknown"):
        model.similar_items([99])


@pytest.mark.parametrize("n", [0, -1, 1.5, "a", None])
def test_the_number_of_items_must_be_a_positive_integer(X, n):
    model = fitted(X, n_epochs=1)
    with pytest.raises(ParameterError, match=f"n must be an integer >= 1, got {n!r}"):
        model.recommend([3], n=n)
    with pytest.raises(ParameterError, match=f"n must be an integer >= 1, got {n!r}"):
        model.similar_items([3], n=n)


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_users_and_items_without_ratings_are_average(parameters):
    users, items, values = make_ratings(60, 30, 540)
    X = sparse.coo_array((values, (users + 1, items + 1)), shape=(63, 33))
    model = fitted(X, **parameters)
    assert model.user_factors_.shape == (63, 4)
    predicted = model.predict(([0, 62, 0, 5], [4, 5, 0, 32]))
    assert np.isfinite(predicted).all()
    assert np.isfinite(model.recommend([0], n=33)[1]).all()
    assert predicted[2] == pytest.approx(values.mean(), abs=0.7)


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_one_rating_in_all(parameters):
    model = fitted(([7], ["x"], [4.0]), **parameters)
    assert model.predict(([7, 8], ["x", "y"])).tolist() == [4.0, 4.0]
    _, ratings = model.recommend([7], n=1)
    assert np.isnan(ratings).all()


@pytest.mark.parametrize("parameters", METHODS, ids=str)
@pytest.mark.parametrize("constant", [0.0, 3.0, -1e6])
def test_constant_ratings(ratings, parameters, constant, caplog):
    users, items, values = ratings
    model = fitted((users, items, np.full_like(values, constant)), n_epochs=2, clip=False, **parameters)
    predicted = model.predict((np.arange(120), np.arange(120) % 60))
    np.testing.assert_allclose(predicted, constant, rtol=1e-3, atol=1e-2)
    assert f"all ratings are {constant:g}, and so are all predictions" in caplog.text


def test_no_rating_at_all_is_refused():
    with pytest.raises(DataError, match="4 users and 5 items, but no rating: pass at least one"):
        MatrixCompletion().fit(sparse.csr_array((4, 5)))


@pytest.mark.parametrize("n_components", [1, 2, 60])
def test_any_number_of_factors(X, n_components):
    assert fitted(X, n_components=n_components).components_.shape == (n_components, 60)


def test_ids_are_returned_unchanged():
    users, items, values = make_ratings(50, 20, 300)
    names = np.array([f"user {number}" for number in range(50)])
    model = fitted((names[users], items.astype(np.int64) * -(10**15), values))
    assert model.users_.tolist() == sorted(set(names[users]))
    assert set(model.recommend(["user 3"], n=3)[0][0]) <= set(model.items_)
    assert model.items_.min() == -19 * 10**15


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_a_model_survives_a_file(X, tmp_path, parameters):
    model = fitted(X, n_epochs=2, **parameters)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    pairs = tuple(axis.ravel() for axis in np.indices(X.shape))
    np.testing.assert_array_equal(loaded.predict(pairs), model.predict(pairs))
    np.testing.assert_array_equal(loaded.recommend(n=4)[0], model.recommend(n=4)[0])
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    one, other = loaded.partial_fit(X[:10]), model.partial_fit(X[:10])
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.user_factors_, other.user_factors_)


def test_validation_is_recorded_and_a_callback_stops(X):
    train, test = split_randomly(RatingTable.from_matrix(X), 0.2)
    model = MatrixCompletion(4, random_state=0, n_epochs=4).fit(train, validation=test)
    assert model.history_[-1].objective == pytest.approx(-model.score(test), rel=1e-5)
    assert model.history_[0].objective > model.history_[-1].objective
    assert model.stopped_by_ == "n_epochs"
    stopped = fitted(X, callbacks=[lambda snapshot: snapshot.step == 3])
    assert (stopped.stopped_by_, stopped.n_steps_) == ("callback", 3)
    converged = fitted(X, tol=0.5, n_epochs=50)
    assert converged.stopped_by_ == "tol"
    assert converged.n_steps_ < 100


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer >= 1, got 0"),
        ({"n_components": 1, "explicit_biases": True}, "explicit_biases takes two"),
        ({"alpha": 0}, "alpha must be a number > 0, or None to learn it, got 0"),
        ({"statistics": "full"}, "statistics must be 'per_feature' or 'masked', got 'full'"),
        ({"stream": "rows"}, "stream must be 'users' or 'items'"),
        ({"codes": "first"}, "codes must be 'refit' or 'last'"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1 or None, got 0"),
        ({"n_epochs": 0}, "n_epochs must be a number > 0, got 0"),
        ({"memory": -1}, "memory must be a number > 0, got -1"),
        ({"damping": -1}, "damping must be a number >= 0, got -1"),
        ({"max_time": -1}, "max_time must be a number of seconds > 0, or None, got -1"),
        ({"max_time": 0}, "max_time must be a number of seconds > 0, or None, got 0"),
        ({"max_time": ""}, "max_time must be a number of seconds > 0, or None, got ''"),
        ({"clip": "no"}, "clip must be True or False, got 'no'"),
        ({"explicit_biases": "no"}, "explicit_biases must be True or False, got 'no'"),
        ({"callbacks": None}, "callbacks must be a sequence of callables, got None"),
        ({"projection": "half", "statistics": "masked"}, "projection must be"),
    ],
)
def test_parameters_that_cannot_work_are_named(X, parameters, message):
    with pytest.raises(ParameterError, match=message):
        MatrixCompletion(**parameters).fit(X)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_fit_that_fails_leaves_the_model_as_it_was(X, error):
    def fail(snapshot):
        raise error("from the callback")

    model = fitted(X)
    before, predicted = dict(vars(model)), model.predict(X)
    with pytest.raises(error):
        model.set_params(callbacks=[fail]).fit(100 * X[:7])
    model.set_params(callbacks=())
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(X).data, predicted.data)


def test_parameters_are_stored_and_cloned(X):
    model = MatrixCompletion(5, alpha=0.2, random_state=3)
    before = model.get_params()
    model.fit(X)
    assert model.get_params() == before
    assert clone(model).get_params() == before
