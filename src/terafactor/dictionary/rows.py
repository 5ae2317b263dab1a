"""Validation of rows given by the user."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from terafactor.data import ArraySource, MatrixSource, SparseSource, open_source
from terafactor.data.open import needs_opening
from terafactor.data.sources.sparse import check_sparse
from terafactor.data.sources.table import prepare_for_validation
from terafactor.errors import DataError, DataTypeError, FitWarning, ParameterError

if TYPE_CHECKING:
    from terafactor.dictionary.estimator import MaskedDictionaryLearning

KEPT_DTYPES = [np.float64, np.float32]
"""Types that are kept; other numeric types become float64."""

UNNAMED = "Unnamed: 0"
"""Name that pandas gives to a first column without a name when it reads a text file."""


def rows_of(estimator: MaskedDictionaryLearning, X: Any, *, reset: bool, name: str = "X") -> MatrixSource:
    """Return a source of validated numbers, checked against the features of the model unless ``reset``."""
    if estimator.missing not in (None, "nan", "absent"):
        raise ParameterError(f"missing must be None, 'nan' or 'absent', got {estimator.missing!r}")
    if needs_opening(X):
        X = open_source(X)
        if reset:
            _take_features(estimator, X)
            _notice_index(X)
        else:
            _check_features(estimator, X, name)
        return X.absent_as_missing() if estimator.missing == "absent" else X
    X = _fill_masked(estimator, prepare_for_validation(X, name), name)
    if issparse(X):
        check_sparse(X, name)
    if not reset and name != "X" and np.ndim(X) == 2 and X.shape[1] != estimator.n_features_in_:
        raise DataError(f"{name} has {X.shape[1]} features, but X has {estimator.n_features_in_}")
    array = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=KEPT_DTYPES,
        accept_sparse="csr",
        ensure_all_finite=False,
        accept_large_sparse=True,
    )
    allow_nan = estimator.missing is not None
    if issparse(array):
        absent = np.nan if estimator.missing == "absent" else 0.0
        return SparseSource(array, name, absent=absent, allow_nan=allow_nan)
    if estimator.missing == "absent":
        raise DataTypeError(
            f"missing='absent' is for sparse matrices, got {name} of type {type(X).__name__}: "
            "mark missing entries of a dense matrix with NaN and pass missing='nan'"
        )
    names = getattr(estimator, "feature_names_in_", None)
    source = ArraySource(array, name, allow_nan=allow_nan, feature_names=None if names is None else list(names))
    if reset:
        _notice_index(source)
    return source


def _take_features(estimator: MaskedDictionaryLearning, source: MatrixSource) -> None:
    """Set the number and names of features, as ``validate_data`` does for arrays and data frames."""
    estimator.n_features_in_ = source.shape[1]
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.array(source.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _notice_index(source: MatrixSource) -> None:
    """Warn if the first feature has the name that pandas gives to the index of a text file."""
    names = source.feature_names or ()
    if len(names) > 1 and names[0] == UNNAMED:
        name = source.record_name(0)
        warnings.warn(
            f"column {UNNAMED!r} of {name} looks like a row index but is used as a feature: {drop_advice(source, 0)}",
            FitWarning,
            stacklevel=2,
        )


def drop_advice(source: MatrixSource, column: int) -> str:
    """Return how to leave out a column of a source, as the end of a warning."""
    if source.feature_names is None:
        return "leave it out"
    name = source.feature_names[column]
    if source.record_name(0) == "X":  # a data frame
        return f"leave it out with X.drop(columns=[{name!r}])"
    return f"leave it out with drop=[{name!r}] (--drop {shlex.quote(name)})"


def _check_features(estimator: MaskedDictionaryLearning, source: MatrixSource, name: str) -> None:
    """Raise DataError if the features of a source are not those of the model; names are compared if both have some."""
    if source.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"{name} has {source.shape[1]} features, but the model was fitted with {estimator.n_features_in_}"
        )
    needed = getattr(estimator, "feature_names_in_", None)
    if source.feature_names is None or needed is None:
        return
    pairs = enumerate(zip(source.feature_names, needed, strict=True))
    difference = next((f"feature {at} is {got!r}, not {want!r}" for at, (got, want) in pairs if got != want), None)
    if difference is not None:
        raise DataError(
            f"The feature names of {name} should match those that were passed during fit, in the same order: "
            f"{difference}; select them by name: open_source(table, columns=estimator.feature_names_in_)"
        )


def _fill_masked(estimator: MaskedDictionaryLearning, X: Any, name: str) -> Any:
    """Return X with NaN in place of the masked entries of a NumPy masked array."""
    if not isinstance(X, np.ma.MaskedArray) or not np.ma.is_masked(X):
        return X
    if estimator.missing != "nan":
        raise DataError(f"{name} is a masked array with masked entries: pass missing='nan' to treat them as missing")
    return np.ma.filled(X.astype(X.dtype if X.dtype in KEPT_DTYPES else np.float64), np.nan)
