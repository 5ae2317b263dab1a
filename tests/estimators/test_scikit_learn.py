"""The estimator does all that scikit-learn expects of one."""

import pickle
from unittest import SkipTest

import joblib
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from terafactor import ArraySource, ElasticNet, MaskedDictionaryLearning, NormBall, RandomMasks, open_source
from terafactor.errors import DataError

CONFIGURATIONS = [
    MaskedDictionaryLearning(),
    MaskedDictionaryLearning(2, reduction=2),
    MaskedDictionaryLearning(3, penalty="l2", constraint="l1", alpha=0.1),
    MaskedDictionaryLearning(3, positive_code=True, positive_dict=True),
    MaskedDictionaryLearning(2, reduction=RandomMasks(2, "masked"), batch_size=5),
    MaskedDictionaryLearning(2, reduction=1.5),
    MaskedDictionaryLearning(3, penalty=ElasticNet(0.5), constraint=NormBall("elastic-net"), n_threads=2),
]


@parametrize_with_checks(CONFIGURATIONS)
def test_passes_every_check_of_scikit_learn(estimator, check):
    try:
        check(estimator)
    except SkipTest as skipped:
        if "SCIPY_ARRAY_API" not in str(skipped):
            pytest.fail(f"skipped for another reason than the array API being off: {skipped}")
        pytest.skip("scikit-learn runs its array API checks only when SCIPY_ARRAY_API=1 is set")


def test_works_as_a_step_of_a_pipeline(X):
    learner = MaskedDictionaryLearning(3, random_state=0)
    codes = make_pipeline(StandardScaler(), learner).fit_transform(X)
    np.testing.assert_array_equal(codes, clone(learner).fit_transform(StandardScaler().fit_transform(X)))


@pytest.mark.parametrize("grid", [{"alpha": [5.0, 0.05]}, {"reduction": [12, 1]}, {"n_components": [1, 4]}])
def test_a_grid_search_picks_the_lowest_objective_on_rows_left_out(X, grid):
    learner = MaskedDictionaryLearning(
        3, alpha=0.05, reduction=RandomMasks(1, "masked"), batch_size=10, n_epochs=2, random_state=0
    )
    search = GridSearchCV(learner, grid, cv=KFold(3), error_score="raise").fit(X)
    ((name, values),) = grid.items()
    objectives = [
        np.mean(
            [
                clone(learner).set_params(**{name: value}).fit(X[train]).objective(X[test])
                for train, test in KFold(3).split(X)
            ]
        )
        for value in values
    ]
    assert objectives[0] != objectives[1]
    assert search.best_params_ == {name: values[int(np.argmin(objectives))]}
    assert search.score(X) == -search.best_estimator_.objective(X)


def test_a_clone_learns_the_same(X):
    learner = MaskedDictionaryLearning(
        3, penalty=ElasticNet(0.3), constraint=NormBall("l1", radius=2.0), reduction=3, init=X[:3], random_state=4
    )
    copy = clone(learner.fit(X))
    assert not hasattr(copy, "components_")
    np.testing.assert_array_equal(copy.fit(X).components_, learner.components_)


@pytest.mark.parametrize("reduction", [1, 3])
def test_a_pickle_continues_where_the_original_was(X, reduction):
    original = MaskedDictionaryLearning(3, reduction=reduction, batch_size=7, random_state=0).fit(X[:60])
    loaded = pickle.loads(pickle.dumps(original))
    assert joblib.hash(vars(loaded)) == joblib.hash(vars(original))
    np.testing.assert_array_equal(loaded.transform(X), original.transform(X))
    before = original.components_.copy()
    original.partial_fit(X[60:])
    loaded.partial_fit(X[60:])
    assert not np.array_equal(original.components_, before)
    np.testing.assert_array_equal(loaded.components_, original.components_)


def test_codes_can_be_a_data_frame(X):
    frame = pd.DataFrame(X, index=[f"row {i}" for i in range(len(X))]).add_prefix("feature ")
    learner = MaskedDictionaryLearning(3, random_state=0).set_output(transform="pandas").fit(frame)
    codes = learner.transform(frame)
    assert isinstance(codes, pd.DataFrame)
    assert list(codes.index) == list(frame.index)
    assert list(codes.columns) == list(learner.get_feature_names_out())
    assert list(codes.columns) == [f"maskeddictionarylearning{i}" for i in range(3)]
    np.testing.assert_array_equal(codes.to_numpy(), learner.set_output(transform="default").transform(frame))


@pytest.mark.parametrize("name", ["codes.npy", "codes.zarr"])
def test_codes_in_a_file_stay_there_whatever_the_output_is_set_to(tmp_path, X, name):
    learner = MaskedDictionaryLearning(3, random_state=0).fit(X)
    expected = learner.transform(X)
    codes = learner.set_output(transform="pandas").transform(X, out=tmp_path / name)
    assert isinstance(codes, np.memmap if name == "codes.npy" else zarr.Array)
    np.testing.assert_array_equal(codes[:], expected)
    assert isinstance(learner.transform(X), pd.DataFrame)


def test_numpy_booleans_are_booleans(X):
    plain, numpy = (MaskedDictionaryLearning(3, positive_dict=true, random_state=0).fit(X) for true in (True, np.True_))
    np.testing.assert_array_equal(plain.components_, numpy.components_)


def test_a_data_frame_gives_the_bits_of_its_values_and_its_names(X):
    frame = pd.DataFrame(X).add_prefix("feature ")
    named = MaskedDictionaryLearning(3, random_state=0).fit(frame)
    plain = MaskedDictionaryLearning(3, random_state=0).fit(X)
    np.testing.assert_array_equal(named.components_, plain.components_)
    assert list(named.feature_names_in_) == list(frame.columns)
    assert not hasattr(plain, "feature_names_in_")
    with pytest.raises(ValueError, match="feature names should match"):
        named.transform(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="feature names should match"):
        named.partial_fit(frame[frame.columns[::-1]])
    assert not hasattr(named.fit(ArraySource(X)), "feature_names_in_")


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_that_of_the_rows(X, dtype, reduction, penalty):
    rows = X.astype(dtype)
    learner = MaskedDictionaryLearning(3, reduction=reduction, penalty=penalty, random_state=0)
    for fitted in (learner.fit(rows), learner.partial_fit(rows), clone(learner).set_params(init=X[:3]).fit(rows)):
        codes = fitted.transform(rows)
        assert fitted.components_.dtype == codes.dtype == fitted.inverse_transform(codes).dtype == dtype


def test_the_names_in_a_table_are_those_of_the_model(tmp_path, X):
    frame = pd.DataFrame(X, columns=[f"f{number}" for number in range(X.shape[1])])
    frame.to_parquet(tmp_path / "X.parquet")
    frame[frame.columns[::-1]].to_parquet(tmp_path / "reordered.parquet")
    frame.rename(columns={"f3": "other"}).to_parquet(tmp_path / "renamed.parquet")
    by_file = MaskedDictionaryLearning(3, random_state=0).fit(tmp_path / "X.parquet")
    by_frame = MaskedDictionaryLearning(3, random_state=0).fit(frame)
    assert list(by_file.feature_names_in_) == list(by_frame.feature_names_in_) == list(frame.columns)
    for learner in (by_file, by_frame):
        np.testing.assert_array_equal(learner.transform(tmp_path / "X.parquet"), learner.transform(frame))
        with pytest.raises(DataError, match=r"feature names .* match .* feature 0 is 'f23', not 'f0'.*columns="):
            learner.transform(tmp_path / "reordered.parquet")
        with pytest.raises(DataError, match="feature 3 is 'other', not 'f3'"):
            learner.partial_fit(tmp_path / "renamed.parquet")
        by_name = open_source(tmp_path / "reordered.parquet", columns=learner.feature_names_in_)
        np.testing.assert_array_equal(learner.transform(by_name), learner.transform(frame))
    assert by_file.fit(tmp_path / "X.parquet", validation=tmp_path / "X.parquet").history_
    np.save(tmp_path / "X.npy", X)
    assert not hasattr(by_file.fit(tmp_path / "X.npy"), "feature_names_in_")


def test_single_precision_is_close_to_double(X):
    single = MaskedDictionaryLearning(3, init=X[:3], random_state=0).fit(X.astype(np.float32))
    double = MaskedDictionaryLearning(3, init=X[:3], random_state=0).fit(X)
    np.testing.assert_allclose(single.components_, double.components_, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_, np.float16, ">f8"])
def test_other_numbers_become_float64(X, dtype):
    rows = np.abs(4 * X).astype(dtype)
    learner = MaskedDictionaryLearning(3, random_state=0).fit(rows)
    expected = MaskedDictionaryLearning(3, random_state=0).fit(rows.astype(np.float64))
    assert learner.components_.dtype == learner.transform(rows).dtype == np.float64
    np.testing.assert_array_equal(learner.components_, expected.components_)


def as_memmap(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


LAYOUTS = {
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "every second row": lambda X, _: np.repeat(X, 2, axis=0)[::2],
    "every second feature": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only memmap": as_memmap,
    "read-only Fortran memmap": lambda X, folder: as_memmap(np.asfortranarray(X), folder),
    "nested lists": lambda X, _: X.tolist(),
}


@pytest.mark.parametrize("statistics", ["full", "masked"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_does_not_change_a_bit(X, layout, statistics, tmp_path):
    learner = MaskedDictionaryLearning(3, reduction=RandomMasks(3, statistics), random_state=0).fit(X)
    other = LAYOUTS[layout](X, tmp_path)
    laid_out = clone(learner).fit(other)
    np.testing.assert_array_equal(laid_out.components_, learner.components_)
    np.testing.assert_array_equal(laid_out.transform(other), learner.transform(X))
    assert laid_out.score(other) == learner.score(X)


def test_the_estimator_has_few_methods_of_its_own():
    ours = [cls for cls in MaskedDictionaryLearning.__mro__ if cls.__module__.startswith("terafactor")]
    public = {
        name
        for cls in ours
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and (
            callable(value)
            or isinstance(value, classmethod | staticmethod)
            or (isinstance(value, property) and not name.endswith("_"))
        )
    }
    faces = {"fit", "partial_fit", "transform", "fit_transform", "inverse_transform", "objective", "score"}
    assert public == faces | {"plan", "save", "export", "report", "panels"}
    assert len(public) <= 14
