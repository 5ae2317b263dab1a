"""What cannot work is refused with the value, the need and the way out, and changes nothing."""

import re

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from terafactor import ArraySource, ElasticNet, MaskedDictionaryLearning, NormBall, RandomMasks
from terafactor.errors import DataError, ParameterError

WRONG_PARAMETERS = [
    ({"n_components": 0}, ["n_components", ">= 1", "got 0", "number of atoms"]),
    ({"n_components": -3}, ["n_components", ">= 1", "got -3"]),
    ({"n_components": 2.5}, ["n_components", "integer", "got 2.5"]),
    ({"n_components": True}, ["n_components", "integer", "got True"]),
    ({"reduction": 0.5}, ["reduction", ">= 1", "got 0.5", "reduction=10"]),
    ({"reduction": 25}, ["reduction", "got 25", "n_features=24", "reduction=10"]),
    ({"reduction": np.nan}, ["reduction", "got nan"]),
    ({"alpha": -1}, ["alpha", ">= 0", "got -1", "no penalty"]),
    ({"alpha": np.nan}, ["alpha", ">= 0", "got nan"]),
    ({"alpha": np.inf}, ["alpha", ">= 0", "got inf"]),
    ({"alpha": "1"}, ["alpha", "number", "got '1'"]),
    ({"penalty": "l3"}, ["penalty", "elastic-net, group-lasso", "got 'l3'"]),
    ({"penalty": ["l1"]}, ["penalty", "elastic-net, group-lasso", "got ['l1']"]),
    ({"constraint": "max"}, ["constraint", "elastic-net, l1, l2", "got 'max'"]),
    ({"reduction": "most"}, ["reduction", ">= 1, 'auto' or RandomMasks", "got 'most'"]),
    ({"missing": "zero"}, ["missing", "None", "got 'zero'"]),
    ({"positive_code": "no"}, ["positive_code", "True or False", "got 'no'"]),
    ({"positive_dict": 1}, ["positive_dict", "True or False", "got 1"]),
    ({"callbacks": None}, ["callbacks", "sequence of callables", "got None"]),
    ({"callbacks": print}, ["callbacks", "sequence of callables", "got ", "callbacks=[f]"]),
    ({"callbacks": ["print"]}, ["callbacks", "sequence of callables", "got ['print']"]),
    ({"forgetting": 0.5}, ["forgetting", "above 0.5", "got 0.5", "1 forgets nothing"]),
    ({"forgetting": 1.1}, ["forgetting", "at most 1", "got 1.1"]),
    ({"forgetting": "slow"}, ["forgetting", "above 0.5", "got 'slow'"]),
    ({"batch_size": 0}, ["batch_size", ">= 1", "got 0", "rows per step"]),
    ({"batch_size": 2.0}, ["batch_size", "integer", "got 2.0"]),
    ({"n_threads": 0}, ["n_threads", ">= 1", "None for all cores", "got 0"]),
    ({"random_state": -1}, ["random_state", ">= 0", "got -1"]),
    ({"random_state": "seed"}, ["random_state", "None, an integer or a NumPy generator", "got 'seed'"]),
    ({"init": np.ones((2, 24))}, ["init", "(2, 24)", "(3, 24)", "n_components"]),
    ({"init": np.ones((3, 23))}, ["init", "(3, 23)", "(3, 24)", "features of X"]),
    ({"init": np.ones(24)}, ["init", "(24,)", "(3, 24)"]),
]


def assert_mentions(raised, words):
    missing = [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}", str(raised.value))]
    assert not missing, f"{missing} not in the message: {raised.value}"


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("parameters", "words"), WRONG_PARAMETERS, ids=lambda value: next(iter(value), None))
def test_a_wrong_parameter_is_named_with_what_it_needs(X, parameters, words, method):
    learner = MaskedDictionaryLearning(**({"n_components": 3} | parameters))
    with pytest.raises(ParameterError) as raised:
        getattr(learner, method)(X)
    assert_mentions(raised, words)


@pytest.mark.parametrize("value", [-1, np.nan, "one"])
@pytest.mark.parametrize(("name", "need"), [("n_epochs", "> 0"), ("max_time", "> 0, or None"), ("tol", ">= 0")])
def test_what_ends_a_fit_must_make_sense(X, name, need, value):
    with pytest.raises(ParameterError) as raised:
        MaskedDictionaryLearning(3, **{name: value}).fit(X)
    assert_mentions(raised, [name, need, f"got {value!r}"])


@pytest.mark.parametrize("n_epochs", [0, np.inf])
def test_a_fit_makes_some_passes_and_ends(X, n_epochs):
    with pytest.raises(ParameterError) as raised:
        MaskedDictionaryLearning(3, n_epochs=n_epochs).fit(X)
    assert_mentions(raised, ["n_epochs", "> 0", f"got {n_epochs!r}"])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ElasticNet(1.5), ["l1_ratio of the penalty", "between 0 and 1", "got 1.5"]),
        (lambda: ElasticNet("half"), ["l1_ratio of the penalty", "between 0 and 1", "got 'half'"]),
        (lambda: ElasticNet(positive="no"), ["positive of the penalty", "True or False", "got 'no'"]),
        (lambda: NormBall(positive="no"), ["positive of the ball", "True or False", "got 'no'"]),
        (lambda: NormBall("l3"), ["norm of the ball", "'elastic-net'", "got 'l3'"]),
        (lambda: NormBall(radius=0), ["radius of the ball", "> 0", "got 0"]),
        (lambda: NormBall(radius=np.inf), ["radius of the ball", "> 0", "got inf"]),
        (lambda: NormBall(radius="wide"), ["radius of the ball", "> 0", "got 'wide'"]),
        (lambda: NormBall("elastic-net", l1_ratio=-0.1), ["l1_ratio of the ball", "between 0 and 1", "got -0.1"]),
    ],
)
def test_a_wrong_part_of_the_problem_is_refused_when_it_is_built(build, words):
    with pytest.raises(ParameterError) as raised:
        build()
    assert_mentions(raised, words)


WRONG_ROWS = [
    (np.ones(24), ValueError, ["Expected 2D array, got 1D array", "reshape(1, -1)"]),
    (np.ones((2, 3, 4)), ValueError, ["dim 3", "dim <= 2"]),
    (np.ones((0, 24)), ValueError, ["0 sample(s)", "minimum of 1"]),
    (np.ones((5, 0)), ValueError, ["0 feature(s)", "minimum of 1"]),
    (np.array([["a", "b"]] * 4, object), ValueError, ["could not convert string to float", "'a'"]),
    (np.ones((5, 24), complex), ValueError, ["Complex data not supported"]),
]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("rows", "error", "words"), WRONG_ROWS, ids=[words[0] for *_, words in WRONG_ROWS])
def test_rows_of_the_wrong_shape_or_type_are_refused(rows, error, words, method):
    with pytest.raises(error) as raised:
        getattr(MaskedDictionaryLearning(3), method)(rows)
    assert_mentions(raised, words)


@pytest.mark.parametrize("wrap", [np.asarray, ArraySource])
@pytest.mark.parametrize("method", ["partial_fit", "transform", "score", "objective"])
def test_another_number_of_features_is_refused(X, method, wrap):
    learner = MaskedDictionaryLearning(3).fit(X)
    with pytest.raises(ValueError, match=r"7 features.*24") as raised:
        getattr(learner, method)(wrap(X[:, :7]))
    assert_mentions(raised, ["X has"])


def test_fit_may_change_the_number_of_features(X):
    learner = MaskedDictionaryLearning(3).fit(X).fit(X[:, :7])
    assert learner.transform(X[:, :7]).shape == (len(X), 3)


@pytest.mark.parametrize("parameters", [{}, {"missing": "nan"}, {"reduction": 2, "n_epochs": 20}])
@pytest.mark.parametrize("types", [(np.float32, np.float64), (np.float64, np.float32)])
def test_validation_rows_of_another_precision_have_the_same_objective(X, types, parameters):
    learned, held_out = types
    learner = MaskedDictionaryLearning(3, alpha=0.1, batch_size=10, random_state=0, **parameters)
    learner.fit(X[20:].astype(learned), validation=X[:20].astype(held_out))
    expected = learner.objective(X[:20].astype(learned))
    assert learner.history_[-1].objective == pytest.approx(expected, rel=1e-4)


def test_validation_rows_of_another_width_are_refused(X):
    with pytest.raises(ValueError, match=r"7 features.*24"):
        MaskedDictionaryLearning(3).fit(X, validation=X[:, :7])


def test_codes_of_another_width_are_refused(X):
    with pytest.raises(DataError, match="codes have 5 columns, but the model has 3 atoms"):
        MaskedDictionaryLearning(3).fit(X).inverse_transform(np.ones((2, 5)))


@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score"])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 1), (1999, 39)])
def test_the_first_entry_that_is_not_finite_is_located(row, column, value, name, method):
    rows = np.random.default_rng(0).standard_normal((2000, 40)).astype(np.float32)
    learner = MaskedDictionaryLearning(2).fit(rows[:50])
    rows[row, column] = value
    rows[row + 1 :, 0] = np.nan  # later ones are not what is asked for
    with pytest.raises(DataError) as raised:
        getattr(learner, method)(rows)
    assert_mentions(raised, ["X contains", name, f"row {row}, column {column}", "must be finite", "drop", "fill"])


def test_errors_about_entries_of_init_name_init(X):
    init = X[:3].copy()
    init[1, 5] = np.nan
    with pytest.raises(ValueError, match=r"\binit\b") as raised:
        MaskedDictionaryLearning(3, init=init).fit(X)
    assert_mentions(raised, ["NaN", "row 1, column 5"])
    assert "missing=" not in str(raised.value)


@pytest.mark.parametrize(("value", "options"), [(0.0, {}), (-1.0, {"positive_dict": True})])
def test_an_init_that_nothing_could_be_learned_from_is_refused(X, value, options):
    with pytest.raises(ParameterError) as raised:
        MaskedDictionaryLearning(3, init=np.full_like(X[:3], value), **options).fit(X)
    assert_mentions(raised, ["init", "zero everywhere", "None to use rows of X", *options])


def test_errors_about_validation_rows_name_them(X):
    held_out = X.copy()
    held_out[8, 2] = np.inf
    with pytest.raises(ValueError, match=r"\bvalidation\b") as raised:
        MaskedDictionaryLearning(3).fit(X, validation=held_out)
    assert_mentions(raised, ["inf", "row 8, column 2"])


def test_an_init_that_lost_its_atoms_is_refused_with_a_remedy(X):
    # clone, and so every grid search, drops what an estimator among the parameters has learned
    learner = clone(MaskedDictionaryLearning(3, init=MaskedDictionaryLearning(3).fit(X)))
    with pytest.raises(ParameterError) as raised:
        learner.fit(X)
    assert_mentions(raised, ["init", "not fitted", "components_"])


def test_sample_weight_is_not_accepted(X):
    with pytest.raises(TypeError, match="sample_weight"):
        MaskedDictionaryLearning(3).fit(X, sample_weight=np.ones(len(X)))


def test_partial_fit_does_not_change_the_number_of_atoms(X):
    learner = MaskedDictionaryLearning(3).fit(X).set_params(n_components=4)
    with pytest.raises(ParameterError, match=r"n_components is 4 but the model has 3 atoms: call fit"):
        learner.partial_fit(X)


def test_a_model_that_is_not_fitted_is_refused(X):
    learner = MaskedDictionaryLearning(3)
    for method in (learner.transform, learner.inverse_transform, learner.score, learner.objective):
        with pytest.raises(NotFittedError):
            method(X)


def test_a_model_whose_first_fit_failed_is_not_fitted(X):
    learner = MaskedDictionaryLearning(3)
    with pytest.raises(DataError):
        learner.fit(np.full_like(X, np.nan))
    with pytest.raises(NotFittedError):
        learner.transform(X)


def with_nan(X):
    rows = X.copy()
    rows[-1, -1] = np.nan  # in the last batch: none of the batches before it may be learned from
    return rows


@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (with_nan, {}),
        (lambda X: X[:, :7], {}),
        (lambda X: X, {"alpha": -1.0}),
        (lambda X: X, {"reduction": 1000}),
        (lambda X: X, {"reduction": 1000, "constraint": "l1"}),
    ],
    ids=["NaN", "wrong width", "wrong alpha", "wrong reduction", "wrong reduction and new constraint"],
)
def test_a_partial_fit_that_fails_leaves_the_model_as_it_was(X, rows, changes, reduction):
    learner = MaskedDictionaryLearning(3, batch_size=10, reduction=reduction, random_state=0).fit(X)
    untouched = clone(learner).fit(X)
    parameters, before = learner.get_params(), joblib.hash(vars(learner))
    with pytest.raises(ValueError, match=r"NaN|features|alpha|reduction"):
        learner.set_params(**changes).partial_fit(rows(X))
    assert joblib.hash(vars(learner.set_params(**parameters))) == before
    np.testing.assert_array_equal(learner.transform(X), untouched.transform(X))
    np.testing.assert_array_equal(learner.partial_fit(X).components_, untouched.partial_fit(X).components_)


@pytest.mark.parametrize("projection", ["masked", "exact"])
def test_a_bad_row_late_in_a_file_leaves_the_model_as_it_was(tmp_path, X, projection):
    bad = X.copy()
    bad[-1, 4] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    learner = MaskedDictionaryLearning(
        3, batch_size=10, n_epochs=1, reduction=RandomMasks(2, projection=projection), random_state=0
    ).fit(X)
    before = joblib.hash(vars(learner))
    with pytest.raises(DataError, match=f"row {len(X) - 1}, feature 4"):
        learner.partial_fit(str(tmp_path / "bad.npy"))
    assert joblib.hash(vars(learner)) == before


@pytest.mark.parametrize("changes", [{}, {"constraint": "l1"}], ids=["same problem", "new constraint"])
def test_a_callback_that_raises_leaves_the_model_as_it_was(X, changes):
    def fail(snapshot):
        raise RuntimeError("the disk of the callback is full")

    learner = MaskedDictionaryLearning(3, batch_size=10, random_state=0).fit(X)
    untouched = clone(learner).fit(X)
    with pytest.raises(RuntimeError, match="disk"):
        learner.set_params(callbacks=[fail], **changes).partial_fit(X)
    learner.set_params(**untouched.get_params())
    np.testing.assert_array_equal(learner.components_, untouched.components_)
    np.testing.assert_array_equal(learner.partial_fit(X).components_, untouched.partial_fit(X).components_)


@pytest.mark.parametrize("constraint", ["l1", "l2"])
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_products_beyond_the_range_of_the_type_are_refused(X, scale, constraint):
    learner = MaskedDictionaryLearning(3, alpha=0.1 * scale, constraint=constraint, random_state=0)
    with pytest.raises(DataError, match=r"rescale (X|the rows)"):
        learner.fit((scale * X).astype(np.float32))
    atoms = learner.fit(scale * X).components_
    np.testing.assert_allclose(atoms, learner.set_params(alpha=0.1).fit(X).components_, atol=1e-6)


def test_a_first_partial_fit_that_fails_binds_to_nothing(X):
    learner = MaskedDictionaryLearning(3, random_state=0)
    with pytest.raises(DataError):
        learner.partial_fit(with_nan(X))
    learner.partial_fit(X[:, :7])
    expected = MaskedDictionaryLearning(3, random_state=0).partial_fit(X[:, :7])
    np.testing.assert_array_equal(learner.components_, expected.components_)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("random_state", [None, 3])
def test_fitting_writes_to_no_parameter(X, method, random_state):
    learner = MaskedDictionaryLearning(3, init=3 * X[:3], random_state=random_state, reduction=2, callbacks=[])
    before = learner.get_params()
    contents = joblib.hash(before)
    getattr(learner, method)(X)
    after = learner.get_params()
    assert all(after[name] is before[name] for name in before)
    assert joblib.hash(after) == contents
    learner.components_[:] = 0
    assert joblib.hash(learner.get_params()) == contents


@pytest.mark.parametrize("parameters", [{}, {"reduction": 99}, {"init": np.zeros((2, 3))}])
def test_a_fit_that_fails_leaves_the_model_as_it_was(X, parameters):
    model = MaskedDictionaryLearning(3, random_state=0).fit(X)
    before = dict(vars(model))
    bad = X[:, :10].copy()
    bad[3, 4] = np.nan
    with pytest.raises(ValueError):  # noqa: PT011
        model.set_params(**parameters).fit(bad if not parameters else X[:, :10])
    model.set_params(reduction="auto", init=None)
    assert vars(model) == before
    assert model.transform(X).shape == (len(X), 3)


def test_a_partial_fit_refused_for_its_precision_does_not_project_the_atoms(X):
    estimator = MaskedDictionaryLearning(4, random_state=0).fit(X)
    before = estimator.components_.copy()
    with pytest.raises(DataError, match="float32"):
        estimator.set_params(constraint="l1").partial_fit(X.astype(np.float32))
    np.testing.assert_array_equal(estimator.components_, before)


def test_a_model_from_a_memory_map_can_go_on_learning(X, tmp_path):
    estimator = MaskedDictionaryLearning(4, reduction=2, random_state=0).fit(X)
    joblib.dump(estimator, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r").partial_fit(X)
    np.testing.assert_array_equal(mapped.components_, estimator.partial_fit(X).components_)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("init", [False, True])
def test_a_row_too_large_for_its_type_is_named(X, method, init):
    rows = X.astype(np.float32)
    rows[7] *= np.float32(1e20)
    estimator = MaskedDictionaryLearning(4, init=X[:4] if init else None, random_state=0)
    with pytest.raises(DataError, match="row 7, column 0; the squares of such values overflow float32: rescale"):
        getattr(estimator, method)(rows)


def test_missing_is_checked_whenever_rows_come(X):
    estimator = MaskedDictionaryLearning(4, random_state=0).fit(X).set_params(missing="abscent")
    for method in (estimator.transform, estimator.objective):
        with pytest.raises(ParameterError, match="missing must be None, 'nan' or 'absent', got 'abscent'"):
            method(X)


def test_init_is_not_the_name_of_a_method(X):
    with pytest.raises(ParameterError, match=r"init must be None, an array .*got 'nndsvd'"):
        MaskedDictionaryLearning(4, init="nndsvd").fit(X)


def test_an_aborted_fit_leaves_the_model_unchanged(X):
    def break_off(snapshot):
        raise KeyboardInterrupt  # as a second Ctrl-C does

    model = MaskedDictionaryLearning(3, random_state=0).fit(X)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[break_off]).fit(X[:, :10])
    assert vars(model.set_params(callbacks=before["callbacks"])) == before
