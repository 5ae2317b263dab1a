"""Rows with missing values: where they are observed, and the Gram matrix of each."""

import numpy as np
import pytest

from terafactor.kernels.blas import address
from terafactor.kernels.missing import GRAM_PANEL, row_grams, split_missing
from terafactor.kernels.statistics import ROUNDING


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_missing_values_are_counted_and_set_to_zero(dtype, share):
    random = np.random.default_rng(0)
    values = random.standard_normal((5, 9)).astype(dtype)
    values[0, 0] = np.inf  # not missing: refused elsewhere
    missing = random.random(values.shape) < share
    missing[2] = False
    holes = np.where(missing, dtype(np.nan), values)
    observed, per_feature = np.ones(values.shape, np.bool_), np.full(9, 7)
    assert split_missing(holes, observed, per_feature) == missing.sum()
    np.testing.assert_array_equal(observed, ~missing)
    np.testing.assert_array_equal(per_feature, (~missing).sum(axis=0))
    np.testing.assert_array_equal(holes, np.where(missing, 0, values))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-2), (np.float64, 1e-10)])
@pytest.mark.parametrize("n_features", [10, 2 * GRAM_PANEL + 76])
def test_each_row_has_the_gram_matrix_of_its_features(dtype, tolerance, n_features):
    random, k = np.random.default_rng(0), 6
    features = random.standard_normal((n_features, k)).astype(dtype)
    observed = np.stack(
        [random.permutation(n_features) < n for n in (5, 0, n_features // 2 - 1, n_features // 2, n_features)]
    )
    precision, precise = float(np.finfo(dtype).eps), features.astype(np.float64)
    grams = np.full((4, k, k), np.nan)
    row_grams(address("syrk", np.dtype(dtype)), features, observed[1:5], precise.T @ precise, precision, grams)
    for seen, found in zip(observed[1:], grams, strict=True):
        expected = precise[seen].T @ precise[seen]
        np.testing.assert_allclose(found, expected, atol=tolerance)
        np.testing.assert_array_equal(found, found.T)


def test_a_gram_matrix_of_few_features_is_regularized():
    """One that is the difference from all features has the ridge of that one already."""
    features, k = np.random.default_rng(0).standard_normal((20, 4)), 4
    observed = np.arange(20) < np.array([[2], [18]])
    grams = np.empty((2, k, k))
    gram, precision = features.T @ features + np.eye(k), 1e-3
    row_grams(address("syrk", np.dtype(np.float64)), features, observed, gram, precision, grams)
    few, many = (features[seen].T @ features[seen] for seen in observed)
    np.testing.assert_allclose(grams[0], few + ROUNDING * precision * np.linalg.norm(few) * np.eye(k))
    np.testing.assert_allclose(grams[1], many + np.eye(k))
