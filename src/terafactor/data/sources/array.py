"""A matrix in memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import FeatureTiles, MatrixSource, check_finite, check_indices
from terafactor.data.sources.formats import Format, check_matrix, reading_dtype
from terafactor.errors import DataError, DataTypeError
from terafactor.kernels.gather import gather_columns

DTYPES = (np.float32, np.float64)

WIDE = 2**17
"""Features from which on a mask takes groups of adjacent ones: a single one costs a whole cache line, 16 features."""

GROUP_WIDTH, FEWEST_GROUPS = 4, 1000
"""Features per group, and the smallest number of groups in a mask. With 1000, the objective on smooth maps is that of
single features; with a third of them it is 1.5 % higher."""


class ArraySource(MatrixSource):
    """An array of float32 or float64, in any memory order; never copied whole.

    Parameters
    ----------
    array : ndarray of shape (n_samples, n_features)
        At least one row and one feature.
    name : str
        Name in error messages.
    allow_nan : bool
        Whether NaN marks missing values; infinities are always refused.
    feature_names : sequence of str, optional
        Names of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import ArraySource
    >>> ArraySource(np.arange(6.0).reshape(2, 3)).read(np.array([1]), np.array([2, 0])).tolist()
    [[5.0, 3.0]]
    """

    in_memory = True
    checked = True

    def __init__(
        self, array: Array, name: str = "X", *, allow_nan: bool = False, feature_names: Sequence[str] | None = None
    ) -> None:
        if not (isinstance(array, np.ndarray) and array.ndim == 2 and array.size and array.dtype in DTYPES):
            what = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else repr(type(array))
            raise DataError(f"ArraySource takes a float32 or float64 array of shape (rows, features), got {what}")
        check_finite(array, name, allow_nan=allow_nan, feature_names=feature_names)
        self.array = array
        self.feature_names = feature_names
        self.name = name
        self.holds_nan = allow_nan
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = array.dtype

    def record_name(self, record: int) -> str:
        return self.name

    def tiles(self, record: int) -> FeatureTiles:
        return FeatureTiles(GROUP_WIDTH, fewest=FEWEST_GROUPS) if self.shape[1] >= WIDE else FeatureTiles()

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is None:
            return np.ascontiguousarray(self.array[rows])
        check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), len(columns)), self.dtype)
        gather_columns(self.array, rows, columns, 0, len(columns), values)
        return values


def open_array(array: Array) -> MatrixSource:
    """Return a source of the rows of a numeric array, converted if it is neither float32 nor float64.

    Reading NaN is an error unless it marks missing values.
    """
    check_matrix(array.shape, "the array")
    return ArraySource(array.astype(reading_dtype(array.dtype, "the array"), copy=False), allow_nan=True)


def as_numeric(data: Any, name: str) -> Any:
    """Return an array, or another object for scikit-learn to validate; refuse what cannot become numbers, by name."""
    if isinstance(data, list | tuple):
        try:
            data = np.asarray(data)
        except ValueError as error:
            raise DataError(f"the rows of {name} have different lengths: {error}") from error
    if not hasattr(data, "shape") and not hasattr(data, "__array__") and not hasattr(data, "__array_interface__"):
        hint = f": pandas.DataFrame({name}) converts it" if isinstance(data, dict) else ""
        raise DataTypeError(
            f"{name} must be a matrix of shape (rows, features), such as a NumPy array, a data frame, a SciPy sparse "
            f"matrix or the path of a file, got {type(data).__name__}{hint}"
        )
    if isinstance(data, np.ndarray) and not data.dtype.isnative:  # validation would convert float32 to float64
        data = data.astype(data.dtype.newbyteorder("="))
    if type(data) is not np.ndarray or data.dtype.kind in "fiubc":
        return data
    if data.dtype.kind not in "OUS":
        raise DataError(f"{name} holds {data.dtype}, which is not a number: convert it to float64 first")
    if data.dtype == object and "pandas" in sys.modules:
        data = np.where(sys.modules["pandas"].isna(data), np.nan, data)
    for place, value in zip(np.ndindex(data.shape), data.ravel().tolist(), strict=True):
        try:
            float(np.nan if value is None else value)
        except (TypeError, ValueError) as error:
            at = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), place, strict=False))
            kind = DataError if isinstance(error, ValueError) else DataTypeError
            raise kind(f"{name} contains {value!r} at {at}, which is not a number: {error}") from error
    return data


FORMAT = Format(
    name="array",
    description="NumPy arrays of shape (rows, features)",
    is_object=lambda data: type(data) is np.ndarray,
    open_object=open_array,
)
