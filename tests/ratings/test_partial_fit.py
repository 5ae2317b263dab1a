"""Incremental updates: partial_fit."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from terafactor import MatrixCompletion, RatingTable, load_model
from terafactor.datasets import make_ratings
from terafactor.errors import DataError, ParameterError
from terafactor.ratings import split_randomly
from terafactor.ratings.methods.biases import Biases
from terafactor.ratings.methods.state import CompletionState
from terafactor.ratings.serving.model import RatingModel
from terafactor.ratings.table.history import RatingHistory
from terafactor.ratings.table.ids import Ids
from terafactor.solver.state_dict import StateDict

METHODS = [
    {},
    {"alpha": 0.1},
    {"explicit_biases": True},
    {"statistics": "masked"},
    {"statistics": "masked", "projection": "exact"},
    {"statistics": "masked", "codes": "last", "damping": 2.0},
]


def fitted(X, **parameters):
    return MatrixCompletion(**({"n_components": 5, "random_state": 0, "n_epochs": 5} | parameters)).fit(X)


def earlier(X):
    """Return X without every third rating of the first 40 users."""
    entries = X.tocoo()
    kept = (entries.row >= 40) | (np.arange(X.nnz) % 3 > 0)
    return sparse.csr_array((entries.data[kept], (entries.row[kept], entries.col[kept])), shape=X.shape)


def changed(X):
    """Return X with other values for every second rating."""
    return sparse.csr_array((X.data + np.arange(X.nnz) % 2, X.indices, X.indptr), shape=X.shape)


def assert_equal_models(one, other):
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.user_factors_, other.user_factors_)
    np.testing.assert_array_equal(one.user_biases_, other.user_biases_)
    assert one.n_steps_ == other.n_steps_


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_new_users_and_items_are_learned(parameters):
    users, items, values = make_ratings(600, 60, 10800)
    early = (users < 300) & (items < 50)
    model = fitted((users[early], items[early], values[early]), **parameters)
    later = users >= 300
    model.partial_fit((users[later], items[later], values[later]))
    assert set(model.users_) == set(users[early | later])
    assert set(model.items_) == set(range(60))
    seen = {item for user, item in zip(users, items, strict=True) if user == 450}
    assert not seen & set(model.recommend([450], n=10)[0][0])
    for some in (later, later & (items >= 50)):
        left = values[some] - values[some].mean()
        assert -model.score((users[some], items[some], values[some])) < 0.5 * np.sqrt(np.mean(left**2))


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_new_ratings_of_a_known_user_are_added_and_others_stay(X, parameters):
    model = fitted(X, **parameters)
    row = sparse.lil_array((1, 60))
    row[0, [1, 2, 3]] = [5, 1, 4]
    before = model.user_factors_.copy()
    model.partial_fit(row.tocsr())
    np.testing.assert_array_equal(model.user_factors_[1:], before[1:])
    assert not np.allclose(model.user_factors_[0], before[0])
    merged = X[[0]].tolil()
    merged[0, [1, 2, 3]] = [5, 1, 4]
    if model.codes == "refit":
        np.testing.assert_allclose(model.user_factors_[0], model.transform(merged.tocsr())[0], rtol=1e-4, atol=1e-6)
    assert len(model.users_) == 120
    seen = set(merged.nonzero()[1].tolist())
    assert set(range(60)) - set(model.recommend([0], n=60 - len(seen))[0][0]) == seen
    assert model.range_ == (min(1, X.data.min()), max(5, X.data.max()))


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_streaming_items_equals_streaming_users_of_the_transpose(X, parameters):
    columns = sparse.random_array((125, 70), density=0.1, rng=0, format="csc")
    columns = sparse.hstack([sparse.csc_array((125, 50)), columns[:, 50:]], format="csc")
    by_item = fitted(X, stream="items", **parameters).partial_fit(columns)
    by_user = fitted(X.T, **parameters).partial_fit(columns.T)
    assert (len(by_item.users_), len(by_item.items_)) == (125, 70)
    users, items = (axis.ravel() for axis in np.indices((125, 70)))
    np.testing.assert_array_equal(by_item.predict((users, items)), by_user.predict((items, users)))
    seen = {*X[[7]].nonzero()[1], *columns[[7]].nonzero()[1]}
    assert set(range(70)) - set(by_item.recommend([7], n=70 - len(seen))[0][0]) == seen


@pytest.mark.parametrize("parameters", [*METHODS, {"stream": "items"}], ids=str)
def test_partial_fit_gives_the_same_bits_for_any_number_of_threads(X, parameters):
    further = changed(X[:40])
    one, two = (fitted(earlier(X), n_threads=n, n_epochs=1, **parameters).partial_fit(further) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.user_factors_, two.user_factors_)


def test_the_first_rows_are_fitted(X):
    one, two = MatrixCompletion(2, random_state=0).partial_fit(X), MatrixCompletion(2, random_state=0).fit(X)
    np.testing.assert_array_equal(one.components_, two.components_)


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_new_users_without_ratings_are_average(X, parameters):
    model = fitted(X, **parameters)
    taller = sparse.coo_array((X[:1].data, (np.full(X[:1].nnz, 121), X[:1].nonzero()[1])), shape=(122, 60))
    model.partial_fit(taller)
    assert len(model.users_) == 122
    np.testing.assert_allclose(model.predict(([120], [5])), model.predict(([999], [5])), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 4}, "n_components is 4, but the model was fitted with 5"),
        ({"statistics": "masked"}, "statistics is 'masked', but the model was fitted with 'per_feature'"),
        ({"stream": "items"}, "stream is 'items', but the model was fitted with 'users': reset it, or call fit"),
    ],
)
def test_structural_parameters_cannot_change(X, change, message):
    model = fitted(X).set_params(**change)
    with pytest.raises(ParameterError, match=message):
        model.partial_fit(X)


@pytest.mark.parametrize("as_known", [int, str])
def test_ids_of_another_type_are_those_of_the_model(X, tmp_path, as_known):
    entries = X.tocoo()
    users, items = ([as_known(number) for number in numbers] for numbers in (entries.row, entries.col))
    model, same = fitted((users, items, entries.data)), fitted((users, items, entries.data))
    users, items, values = [0, "1", 500], ["0", 5, 6], [1.0, 5.0, 3.0]
    model.partial_fit((users if as_known is str else [0.0, "1", 500], items, values))
    same.partial_fit(([as_known(user) for user in users], [as_known(item) for item in items], values))
    assert_equal_models(model, same)
    assert model.users_.dtype.kind == ("U" if as_known is str else "i")
    assert len(model.users_) == 121
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="user 0 rates item 5 more than once"):
        model.partial_fit(([0, "0"], [5, 5], [1.0, 2.0]))


@pytest.mark.parametrize(("role", "bad"), [("user", "x"), ("item", "007"), ("item", 1.5)])
def test_ids_that_cannot_have_the_type_of_the_model_are_named(X, role, bad):
    model = fitted(X)
    before = model.user_factors_.copy()
    pairs = {"user": [0, 1], "item": [0, 1]} | {role: [0, bad]}
    with pytest.raises(DataError, match=f"{role} {bad!r} is not an integer, as the {role}s of the model are"):
        model.partial_fit((pairs["user"], pairs["item"], [3.0, 4.0]))
    np.testing.assert_array_equal(model.user_factors_, before)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("parameters", [*METHODS, {"stream": "items"}], ids=str)
def test_a_partial_fit_that_fails_leaves_the_model_as_it_was(X, parameters, error):
    def fail(snapshot):
        if snapshot.batches_done == 3:
            raise error("from the callback")

    model, untouched = fitted(X, batch_size=10, **parameters), fitted(X, batch_size=10, **parameters)
    before = dict(vars(model))
    with pytest.raises(error):
        model.set_params(callbacks=[fail]).partial_fit(sparse.vstack([X, 2 * X[:50]]))
    assert vars(model.set_params(callbacks=())) == before
    np.testing.assert_array_equal(model.predict(X).data, untouched.predict(X).data)
    more, less = (learner.partial_fit(changed(X[:40])).predict(X).data for learner in (model, untouched))
    np.testing.assert_array_equal(more, less)


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_callbacks_run_and_stop_after_each_step(X, parameters):
    calls = []

    def stop_after_two(snapshot):
        calls.append((snapshot.batches_done, snapshot.batches_to_do, snapshot.stopped_by))
        return snapshot.batches_done >= 2

    model = fitted(earlier(X), batch_size=10, **parameters)
    n_steps, row = model.n_steps_, model.user_factors_[35].copy()
    model.set_params(callbacks=[stop_after_two]).partial_fit(X[:40])
    done = calls[-1][0]
    assert calls[-1] == (done, 4, "callback")
    assert model.n_steps_ == n_steps + done
    if model.codes == "last":
        np.testing.assert_array_equal(model.user_factors_[35], row)
    else:
        np.testing.assert_allclose(model.user_factors_[:40], model.transform(X[:40]), rtol=1e-4, atol=1e-5)


def test_ctrl_c_ends_a_partial_fit_after_its_step(X, python_handles_ctrl_c):
    def press(snapshot):
        if snapshot.batches_done == 2 and snapshot.stopped_by is None:
            os.kill(os.getpid(), signal.SIGINT)

    model = fitted(earlier(X), batch_size=10)
    n_steps = model.n_steps_
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[press]).partial_fit(X[:40])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert model.n_steps_ == n_steps + 2
    stopped = fitted(earlier(X), batch_size=10).set_params(callbacks=[lambda snapshot: snapshot.batches_done == 2])
    np.testing.assert_array_equal(model.components_, stopped.partial_fit(X[:40]).components_)


def test_biases_of_items_that_had_ratings_stay(table):
    nothing = Biases(float(table.values.mean(dtype=np.float64)), np.zeros(0, np.float32), np.zeros(0, np.float32))
    whole = Biases.of(table, damping=1.0)
    none_rated = nothing.after(table, np.zeros(60, bool), damping=1.0)
    np.testing.assert_array_equal(none_rated.items, whole.items)
    np.testing.assert_array_equal(none_rated.users, whole.users)

    more = RatingTable(
        np.array([3, 3, 120], np.int32), np.array([5, 60, 60], np.int32), np.array([5, 4, 2], np.float32),
        Ids(np.arange(121)), Ids(np.arange(61)),
    )  # fmt: skip
    after = whole.after(more, np.arange(61) < 60, damping=1.0)
    np.testing.assert_array_equal(after.items[:60], whole.items)
    np.testing.assert_array_equal(np.delete(after.users[:120], 3), np.delete(whole.users, 3))
    left = more.values - whole.offset - after.items[more.items]
    np.testing.assert_allclose(after.users[[3, 120]], [left[:2].sum() / 3, left[2] / 2], atol=1e-5)
    left = more.values - whole.offset - after.users[more.users]
    assert after.items[60] == pytest.approx(left[1:].sum() / 3, abs=1e-3)


@pytest.mark.parametrize("parameters", [*METHODS, {"stream": "items"}], ids=str)
def test_known_ratings_change_nothing(X, parameters):
    model, untouched = fitted(X, **parameters), fitted(X, **parameters)
    for _ in range(3):
        model.partial_fit(X[:40])
    assert_equal_models(model, untouched)


@pytest.mark.parametrize("parameters", [*METHODS, {"stream": "items"}], ids=str)
def test_further_ratings_count_once(X, parameters):
    once, often = (fitted(earlier(X), **parameters).partial_fit(changed(X[:40])) for _ in range(2))
    for _ in range(3):
        often.partial_fit(changed(X[:40]))
    assert_equal_models(once, often)


def test_users_keep_their_history():
    train, test = split_randomly(RatingTable.of(*make_ratings(400, 80, 9600)), 0.2)
    model = fitted(train, n_epochs=8)
    first = np.zeros(len(test), bool)
    first[np.unique(test.users, return_index=True)[1]] = True
    before = -model.score(test.take(~first))
    model.partial_fit(test.take(first))
    assert -model.score(test.take(~first)) < 1.02 * before


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.1}, {"explicit_biases": True}], ids=str)
def test_a_changed_rating_replaces_the_earlier_one(X, parameters):
    model = fitted(X, **parameters)
    entries = X[[5]].tocoo()
    opposite = sparse.csr_array((6 - entries.data, (entries.row + 5, entries.col)), shape=(6, 60))
    same = sparse.csr_array((entries.data, (entries.row + 5, entries.col)), shape=(6, 60))
    before = model.components_.copy()
    changed_once = model.partial_fit(opposite).components_.copy()
    for _ in range(3):
        model.partial_fit(same)
        model.partial_fit(opposite)
    moved = np.linalg.norm(changed_once - before)
    assert moved > 1e-3
    assert np.linalg.norm(model.components_ - changed_once) < 0.3 * moved
    np.testing.assert_allclose(model.predict(opposite).data, opposite.data, atol=1.5)


def test_the_history_survives_a_file(X, tmp_path):
    model = fitted(earlier(X))
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    for one in (model, loaded):
        one.partial_fit(X[:40])
    assert_equal_models(model, loaded)


@pytest.mark.parametrize("levels", [2, 256, 257])
def test_histories_are_stored_with_one_byte_per_rating_where_possible(levels):
    random = np.random.default_rng(0)
    pairs = random.permutation(40 * 30)[:900]
    values = np.append(np.arange(levels), random.integers(0, levels, 900 - levels)).astype(np.float32)
    table = RatingTable.of(pairs // 30, pairs % 30, values)
    history = RatingHistory.of(table.take(slice(0, 700)), table.take(slice(700, None)))
    stored = history.state_dict()
    assert ("level" in stored.arrays) == (levels <= 256)
    found = RatingHistory.from_state_dict(stored, *table.shape)
    for name in ("starts", "items", "values", "held_out"):
        np.testing.assert_array_equal(getattr(found, name), getattr(history, name))
    assert found.complete


def test_models_of_earlier_versions_report_what_they_cannot_do(caplog):
    model = load_model(Path(__file__).parent / "golden" / "without_history")
    users, items, _ = make_ratings(12, 8, 40)
    assert model.predict(([3, 3], [5, 1])) == pytest.approx([3.84558151, 3.12552442])
    assert model.recommend([3], n=3)[0].tolist() == [[3, 6, 0]]
    model.partial_fit(([20], [2], [4.0]))
    assert not caplog.text
    model.partial_fit(([3], [6], [4.0]))
    assert "does not hold the earlier ratings of 1 of these users" in caplog.text
    seen = {*items[users == 3].tolist(), 6}
    assert set(range(8)) - set(model.recommend([3], n=8 - len(seen))[0][0]) == seen
    caplog.clear()
    model.partial_fit(([3, 20], [0, 1], [2.0, 3.0]))  # the ratings of both are known by now
    assert not caplog.text


def test_a_damaged_history_is_refused():
    history = RatingHistory.of(RatingTable.of([0, 1], [0, 1], [1.0, 2.0]))
    for name, bad in (("starts", [0, 2, 1]), ("starts", [0, 1, 3]), ("items", [0, 7]), ("level", [0, 9])):
        arrays = history.state_dict().arrays
        damaged = StateDict({}, {**arrays, name: np.array(bad, arrays[name].dtype)})
        with pytest.raises(DataError, match=f"invalid seen.{name}"):
            RatingHistory.from_state_dict(damaged, 2, 2)


def test_factors_that_overflow_are_an_error(X):
    model = MatrixCompletion(3, random_state=0).fit(X)
    model._state.factors[:] = 1e30
    with pytest.raises(DataError, match="the fit diverged to NaN or infinity"):
        model.partial_fit(X[::-1] * 2)


@pytest.mark.parametrize(
    ("kind", "name", "bad"),
    [(CompletionState, "noise", -0.5), (CompletionState, "scale", 0.0), (CompletionState, "n_errors", -1.0),
     (RatingModel, "noise", 0.0), (RatingModel, "scale", -1.0), (RatingModel, "alpha", -1.0)],
)  # fmt: skip
def test_numbers_that_no_fit_gives_are_refused(kind, name, bad):
    model = MatrixCompletion(2, random_state=0, n_epochs=1).fit(make_ratings(12, 8, 40))
    stored = {CompletionState: model._state, RatingModel: model._model}[kind].state_dict()
    damaged = StateDict({**stored.numbers, name: bad}, stored.arrays)
    with pytest.raises(DataError, match=f"{name} in the file must be at least"):
        kind.from_state_dict(damaged, *([2] if kind is RatingModel else []))
