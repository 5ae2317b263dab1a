"""Missing values and sparse input, as a user meets them."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, RandomMasks
from terafactor.datasets import make_planted
from terafactor.errors import DataError, DataTypeError


def learner(**parameters):
    defaults = {"n_components": 4, "alpha": 0.1, "penalty": "l2", "n_epochs": 3, "random_state": 0, "n_threads": 1}
    return MaskedDictionaryLearning(**(defaults | parameters))


@pytest.fixture
def low_rank():
    random = np.random.default_rng(0)
    return random.standard_normal((300, 4)) @ random.standard_normal((4, 40))


def with_holes(X, share=0.3, seed=1):
    holes = np.random.default_rng(seed).random(X.shape) < share
    return np.where(holes, np.nan, X), holes


@pytest.mark.parametrize("parameters", [{}, {"reduction": 2}, {"reduction": RandomMasks(2, "masked")}])
def test_completes_a_matrix_of_low_rank(low_rank, parameters):
    X, holes = with_holes(low_rank)
    model = learner(missing="nan", alpha=1e-3, n_epochs=30, **parameters).fit(X)
    completed = model.inverse_transform(model.transform(X))
    error = np.sqrt(np.mean((completed - low_rank)[holes] ** 2))
    assert error < 0.2 * low_rank.std()


def test_a_planted_dictionary_is_recovered_from_rows_with_holes():
    from scipy.optimize import linear_sum_assignment

    X, atoms = make_planted(1000, 1500, 8)
    X, _ = with_holes(X)
    model = learner(n_components=10, alpha=1e-3, constraint="l1", batch_size=50, n_epochs=4, missing="nan").fit(X)
    correlation = np.abs(np.corrcoef(model.components_, atoms)[:10, 10:])
    assert correlation[linear_sum_assignment(-correlation)].mean() > 0.93


def test_fit_partial_fit_transform_score_and_objective_take_nan(low_rank):
    X, _ = with_holes(low_rank)
    model = learner(missing="nan").fit(X)
    model.partial_fit(X[:50])
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score(X))
    assert model.objective(X) == -model.score(X)


def test_a_feature_that_is_never_observed_keeps_its_start(low_rank):
    X, _ = with_holes(low_rank)
    X[:, 5] = np.nan
    init = np.random.default_rng(0).standard_normal((4, 40)) * 0.01
    model = learner(missing="nan", init=init).fit(X)
    np.testing.assert_array_equal(model.components_[:, 5], init[:, 5])
    assert model.feature_counts_[5] == 0


def test_a_row_without_any_value_changes_nothing_and_gets_a_zero_code(low_rank):
    X, _ = with_holes(low_rank[:80])
    model, again = learner(missing="nan", batch_size=40).fit(X), learner(missing="nan", batch_size=40).fit(X)
    empty = np.full((3, 40), np.nan)
    again.partial_fit(empty)
    np.testing.assert_array_equal(model.components_, again.components_)
    assert not model.transform(empty).any()
    assert np.isnan(model.objective(empty))
    assert model.objective(np.vstack([X, empty])) == pytest.approx(model.objective(X))


def test_nothing_observed_at_all_is_refused():
    with pytest.raises(DataError, match="no step observed any value"):
        learner(missing="nan").fit(np.full((20, 10), np.nan))
    with pytest.raises(DataError, match="no step observed any value"):
        learner(missing="nan").partial_fit(np.full((20, 10), np.nan))


def test_masks_that_miss_the_only_value_are_noticed():
    X = np.full((1, 40), np.nan)
    X[0, 7] = 1.0
    with pytest.raises(DataError, match="masks of all steps excluded"):
        learner(n_components=1, reduction=40, missing="nan", n_epochs=1).fit(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("alpha", [0, 1e-6])
def test_rows_of_few_values_among_complete_ones_do_not_blow_up(low_rank, dtype, penalty, alpha):
    X = low_rank.astype(dtype)
    X[::10, 3:] = np.nan  # three values each, five atoms
    model = learner(n_components=5, alpha=alpha, penalty=penalty, missing="nan", n_epochs=3).fit(X)
    codes = model.transform(X)
    assert np.abs(codes).max() < 1e4 * np.nanmax(np.abs(X))
    residual = np.where(np.isnan(X), 0, X - codes @ model.components_)
    assert np.abs(residual[::10]).max() < 1e-2 * np.nanmax(np.abs(X))
    alone = model.transform(X[::10])  # of a batch where such rows are the rule
    np.testing.assert_allclose(alone @ model.components_[:, :3], codes[::10] @ model.components_[:, :3], atol=1e-3)


def test_a_row_seen_only_where_atoms_are_next_to_nothing_has_a_finite_code():
    atoms = np.array([[1.0, 1e-25, 0.0]], np.float32)  # of which the square is no float32
    X = np.array([[1.0, 1.0, 1.0], [np.nan, 1.0, np.nan], [np.nan, np.nan, 1.0]], np.float32)
    model = learner(n_components=1, alpha=0, missing="nan").fit(X[:1])
    model.components_[:] = atoms
    np.testing.assert_array_equal(model.transform(X)[1:], 0)


def test_nan_is_refused_unless_asked_for_and_can_be_asked_for_after_the_fit(low_rank):
    X, _ = with_holes(low_rank)
    model = learner().fit(low_rank)
    with pytest.raises(DataError, match=r"NaN at row \d+, column \d+.*missing='nan'"):
        model.transform(X)
    assert np.isfinite(model.set_params(missing="nan").transform(X)).all()


def test_infinity_is_refused_also_among_nan(low_rank):
    X, _ = with_holes(low_rank)
    X[200, 3] = np.inf
    for missing in (None, "nan"):  # neither would take it
        with pytest.raises(DataError, match=r"inf.*row 200, column 3(?!.*missing=)"):
            learner(missing=missing).fit(X if missing else np.nan_to_num(X, posinf=np.inf))


def test_masked_arrays(low_rank):
    X, holes = with_holes(low_rank)
    masked = np.ma.masked_array(low_rank, holes)
    np.testing.assert_array_equal(
        learner(missing="nan").fit(masked).components_, learner(missing="nan").fit(X).components_
    )
    with pytest.raises(DataError, match=r"masked array.*missing='nan'"):
        learner().fit(masked)


def test_integers_with_a_sentinel_in_a_masked_array():
    X = np.random.default_rng(0).integers(0, 9, (60, 12))
    X[3, 4] = -1
    model = learner(missing="nan").fit(np.ma.masked_equal(X, -1))
    np.testing.assert_array_equal(
        model.components_, learner(missing="nan").fit(np.where(X == -1, np.nan, X)).components_
    )


@pytest.mark.parametrize("dtype", ["Float64", "Int64"])
def test_nullable_types_of_pandas(dtype):
    X = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (60, 12)), columns=list("abcdefghijkl")).astype(dtype)
    X.iloc[3, 4] = pd.NA
    expected = X.to_numpy(np.float64, na_value=np.nan)
    model = learner(missing="nan").fit(X)
    np.testing.assert_array_equal(model.components_, learner(missing="nan").fit(expected).components_)
    with pytest.raises(DataError, match="NaN at row 3, column 'e'"):
        learner().fit(X)


def sparse_columns(values, fill_values):
    columns = zip("abcdefghijkl", values.T, fill_values, strict=True)
    return pd.DataFrame({name: pd.arrays.SparseArray(column, fill_value=fill) for name, column, fill in columns})


FRAMES = {
    "objects": lambda values: pd.DataFrame(values.astype(object)).where(~np.isnan(values), pd.NA),
    "array of objects": lambda values: np.where(np.isnan(values), pd.NA, values.astype(object)),
    "sparse, filled with NaN": lambda values: sparse_columns(values, [np.nan] * 12),
    "sparse, filled with NaN and zero": lambda values: sparse_columns(values, [np.nan, 0.0] * 6),
    "sparse and dense": lambda values: sparse_columns(values, [np.nan] * 12).assign(l=values[:, 11]),
}


@pytest.mark.parametrize("frame_of", FRAMES.values(), ids=FRAMES)
def test_what_pandas_leaves_out_is_missing(frame_of):
    X = np.random.default_rng(0).integers(0, 9, (60, 12)).astype(np.float64)
    X[3, 4] = np.nan
    model = learner(missing="nan").fit(frame_of(X))
    np.testing.assert_array_equal(model.components_, learner(missing="nan").fit(X).components_)
    with pytest.raises(DataError, match=r"NaN at row 3, column (4|'e'); .*missing='nan'"):
        learner().fit(frame_of(X))


@pytest.mark.parametrize("parameters", [{}, {"reduction": 3}, {"reduction": RandomMasks(3, "masked")}])
@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array"])
def test_sparse_zeros_are_zeros(form, parameters):
    matrix = sparse.random_array((80, 60), density=0.2, rng=np.random.default_rng(0))
    dense = matrix.toarray()
    given = getattr(sparse, form)(matrix)
    one, two = learner(**parameters).fit(given), learner(**parameters).fit(dense)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.transform(given), two.transform(dense))
    assert one.objective(given) == two.objective(dense)


def test_absent_entries_can_be_missing_ones():
    matrix = sparse.random_array((80, 60), density=0.3, rng=np.random.default_rng(0)).tocsr()
    matrix.data[3] = 0.0  # a stored zero is a value
    holes = (
        sparse.csr_array((np.ones_like(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape).toarray() == 0
    )
    dense = np.where(holes, np.nan, matrix.toarray())
    one, two = learner(missing="absent").fit(matrix), learner(missing="nan").fit(dense)
    np.testing.assert_array_equal(one.components_, two.components_)
    with pytest.raises(DataTypeError, match="missing='absent' is for sparse"):
        learner(missing="absent").fit(dense)


def test_sparse_rows_that_may_have_missing_values_are_not_made_dense_as_a_whole():
    X = sparse.random_array((4000, 20000), density=5e-4, rng=np.random.default_rng(0), dtype=np.float32)
    model = learner(missing=None, n_epochs=0.01).fit(X).set_params(missing="nan")
    tracemalloc.start()
    try:
        model.transform(X)
        assert tracemalloc.get_traced_memory()[1] < 4000 * 20000 * 4 / 4
    finally:
        tracemalloc.stop()
