"""The interface through which the solver reads a matrix."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.describe import describe_as
from terafactor.data.origin import Origin, open_origin
from terafactor.errors import DataError, DataTypeError

MUST_BE_FINITE = "every entry must be finite: drop such rows or columns, or fill them in"
"""Advice in errors about infinities, which never mark missing values, and about NaN where nothing may be missing."""

MAY_BE_MISSING = (
    "every entry must be finite: drop such rows or columns, fill them in, or fit with missing='nan' (--missing nan)"
)
"""Advice in errors about NaN where an estimator can treat it as missing."""

CHECKED_ROWS = 64
"""Rows whose values are checked at once; an error names the first row that has one."""


@dataclass(frozen=True)
class FeatureTiles:
    """Groups of features that are cheap to read together: runs of equal width in some order.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.data import FeatureTiles
    >>> FeatureTiles(width=2).members(np.array([2, 0]), n_features=5).tolist()
    [0, 1, 4]
    """

    width: int = 1
    """Features per tile; the last tile may have fewer."""

    order: Indices | None = None
    """Order of the features that is cut into tiles (p,); None for ascending order."""

    fewest: int = 64
    """Smallest number of tiles in a mask; masks with fewer are drawn from single features, which are more diverse."""

    def members(self, chosen: Indices, n_features: int) -> Indices:
        """Return the features (s,) of the tiles ``chosen`` (m,), ascending."""
        if self.width == 1 and self.order is None:
            return np.sort(chosen)
        if self.order is not None:
            tiles = [self.order[tile * self.width : (tile + 1) * self.width] for tile in chosen.tolist()]
            return np.sort(np.concatenate(tiles)).astype(np.int64, copy=False)
        features = (np.sort(chosen)[:, np.newaxis] * self.width + np.arange(self.width)).ravel()
        return features[: np.searchsorted(features, n_features)]

    def run(self, first: int, count: int, n_features: int) -> Indices:
        """Return the features (s,) of ``count`` consecutive tiles from ``first`` on, wrapping around, in tile order."""
        order = np.arange(n_features) if self.order is None else self.order
        wrapped = max(first + count - -(-n_features // self.width), 0)
        features = order[first * self.width : (first + count) * self.width]
        if wrapped:
            features = np.concatenate([features, order[: wrapped * self.width]])
        return features.astype(np.int64, copy=False)


SPARSE_SHARE = 0.05
"""Largest share of stored entries of a sparse matrix: the pairs of entries in a column grow with its square."""


class MatrixSource(ABC):
    """A matrix that can be read in parts.

    A subclass sets ``shape`` and ``dtype``, implements :meth:`read`, and overrides what describes cheap reads. It must
    pass :class:`terafactor.testing.SourceContract`. Several threads may call :meth:`read` at the same time.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MatrixSource
    >>> class Ramp(MatrixSource):
    ...     shape, dtype = (3, 4), np.dtype(np.float64)
    ...
    ...     def read(self, rows, columns=None):
    ...         columns = np.arange(4) if columns is None else columns
    ...         return 10.0 * rows[:, np.newaxis] + columns
    >>> Ramp().read(np.array([2]), np.array([0, 3])).tolist()
    [[20.0, 23.0]]
    """

    shape: tuple[int, int]
    """Numbers of rows and features."""

    dtype: np.dtype[np.floating]
    """float32 or float64: the type that :meth:`read` returns."""

    in_memory: bool = False
    """Whether rows are in memory, so that reading fewer features saves nothing."""

    whole_records: bool = False
    """Whether reading any row loads its whole record, so that the batches of a record should be consecutive."""

    checked: bool = False
    """Whether the constructor refused infinities, and NaN unless ``holds_nan``."""

    holds_nan: bool = False
    """Whether a checked source may contain NaN, as missing values."""

    stored_share: float = 1.0
    """Share of the entries that are stored; the others, of a sparse matrix, are zeros."""

    geometry: tuple[int, ...] | None = None
    """Shape of a row as an image, for drawing atoms."""

    feature_names: Sequence[str] | None = None
    """Names of the features, such as the columns of a table; None without names."""

    origin: Origin | None = None
    """Where :func:`terafactor.open_source` opened the source; None for data that have no path."""

    @property
    def is_sparse(self) -> bool:
        """Whether so few entries are stored that computing with these alone is faster than with whole rows."""
        return self.stored_share <= SPARSE_SHARE

    @property
    def records(self) -> Sequence[range]:
        """Rows of each record, such as a file or a scan. A batch never mixes records."""
        return (range(self.shape[0]),)

    def record_name(self, record: int) -> str:
        """Return the name of a record in error messages."""
        return f"record {record}"

    def record_label(self, record: int) -> str:
        """Return a name of a record that does not depend on where the data are stored: a file name without folders."""
        path, separator, inside = self.record_name(record).partition("::")
        return f"{PurePath(path).name}{separator}{inside}"

    def locate(self, row: int) -> tuple[int, int]:
        """Return the record of a row, and the row's number in the original record, which counts held-out rows."""
        record = next(record for record, rows in enumerate(self.records) if row in rows)
        return record, row - self.records[record].start

    def row_blocks(self, record: int) -> Sequence[range] | None:
        """Return blocks of rows of one record that are cheap to read together; None if any rows are."""
        return None

    def tiles(self, record: int) -> FeatureTiles:
        """Return groups of features of one record that are cheap to read together; by default single features."""
        return FeatureTiles()

    def record_identity(self, record: int) -> str | None:
        """Return text that identifies the content of a record where reading its values is expensive; None otherwise."""
        return None

    def describe(self) -> dict[str, Any] | None:
        """Return plain values from which another process opens the same source; None if only this one has the data.

        :func:`terafactor.data.open_description` opens it. Sources that are opened from a path have one.
        """
        return None if self.origin is None else describe_as(self, open_origin, **asdict(self.origin))

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        """Return how many bytes :meth:`read` reads from storage for ``rows`` (b,) and ``columns`` (s,) or None."""
        return len(rows) * (self.shape[1] if columns is None else len(columns)) * self.dtype.itemsize

    def absent_as_missing(self) -> Self:
        """Return the source with NaN in place of entries that are not stored; only sparse sources support it."""
        raise DataTypeError(
            f"missing='absent' is for sparse matrices, and {self.record_name(0)} is dense: "
            "mark missing entries of a dense matrix with NaN and pass missing='nan'"
        )

    def reorder_features(self, names: Sequence[str]) -> MatrixSource:
        """Return the source with its features in the order of ``names``; only tables support it."""
        raise DataError(
            f"{self.record_name(0)} has its features in another order, from {(self.feature_names or [''])[0]!r} on, "
            f"but {names[0]!r} must be first: bring its columns into the same order"
        )

    def read_stored(self, rows: Indices) -> Any:
        """Return the ``rows`` (b,) as a canonical ``scipy.sparse.csr_array`` (b, p); only sparse sources support it."""
        raise DataTypeError(f"{self.record_name(0)} is dense: read its rows with read()")

    @abstractmethod
    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        """Return a new array (b, s) of the values at ``rows`` (b,) and ``columns`` (s,); None reads all features."""


class SourceView(MatrixSource):
    """A source that forwards everything to ``base`` unless a subclass overrides it, except its description.

    Parameters
    ----------
    base : MatrixSource
    """

    def __init__(self, base: MatrixSource) -> None:
        self.base = base
        self.shape = base.shape
        self.dtype = base.dtype
        self.in_memory = base.in_memory
        self.whole_records = base.whole_records
        self.checked = base.checked
        self.holds_nan = base.holds_nan
        self.stored_share = base.stored_share
        self.geometry = base.geometry
        self.feature_names = base.feature_names

    @property
    def records(self) -> Sequence[range]:
        return self.base.records

    def record_name(self, record: int) -> str:
        return self.base.record_name(record)

    def record_label(self, record: int) -> str:
        return self.base.record_label(record)

    def record_identity(self, record: int) -> str | None:
        return self.base.record_identity(record)

    def locate(self, row: int) -> tuple[int, int]:
        return self.base.locate(row)

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        return self.base.stored_bytes(rows, columns)

    def absent_as_missing(self) -> Self:
        return self.with_base(self.base.absent_as_missing())

    def reorder_features(self, names: Sequence[str]) -> MatrixSource:
        return self.with_base(self.base.reorder_features(names))

    def with_base(self, base: MatrixSource) -> Self:
        """Return the same view of another source."""
        return type(self)(base)

    def row_blocks(self, record: int) -> Sequence[range] | None:
        return self.base.row_blocks(record)

    def tiles(self, record: int) -> FeatureTiles:
        return self.base.tiles(record)

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        return self.base.read(rows, columns)

    def read_stored(self, rows: Indices) -> Any:
        return self.base.read_stored(rows)


def check_indices(indices: Indices, bound: int, what: str) -> None:
    """Raise an IndexError unless all ``indices`` are between 0 and ``bound`` - 1."""
    # Every read runs this; the methods min and max are slower, as they go through Python.
    if indices.size and not (np.minimum.reduce(indices) >= 0 and np.maximum.reduce(indices) < bound):
        raise IndexError(f"{what} must be between 0 and {bound - 1}, got {indices.min()} to {indices.max()}")


def check_finite(
    values: Array,
    name: str = "X",
    *,
    allow_nan: bool = False,
    about_nan: str = MAY_BE_MISSING,
    feature_names: Sequence[str] | None = None,
) -> None:
    """Raise a DataError with the row and column of the first NaN, infinity or too large value of ``values`` (n, p).

    allow_nan: whether NaN marks missing values. about_nan: the advice in the error about NaN. feature_names: names of
    the columns, for the error.
    """
    for start in range(0, len(values), CHECKED_ROWS):
        part = values[start : start + CHECKED_ROWS]
        if (found := first_unusable(part, allow_nan)) is not None:
            fault, advice = describe_unusable(part[found], about_nan)
            column = found[1] if feature_names is None else repr(feature_names[found[1]])
            raise DataError(f"{name} contains {fault} at row {start + found[0]}, column {column}; {advice}")


def read_stored_finite(source: MatrixSource, rows: Indices) -> Any:
    """Read the stored entries of whole rows (b, p), with the check of :func:`read_finite`."""
    stored = source.read_stored(rows)
    checked = source.checked and not source.holds_nan
    if not checked and not np.isfinite(stored.data).all():
        read_finite(source, rows)  # raises an error that names the entry
    return stored


def read_finite(
    source: MatrixSource,
    rows: Indices,
    columns: Indices | None = None,
    *,
    allow_nan: bool = False,
    about_nan: str = MAY_BE_MISSING,
) -> Array:
    """Read values (b, s) from a source; raise a DataError as :func:`check_finite` does, but by record and feature.

    allow_nan, about_nan: as in :func:`check_finite`.
    """
    values = blas_ready(source.read(rows, columns))
    checked = source.checked and (allow_nan or not source.holds_nan)
    found = None if checked else first_unusable(values, allow_nan)
    if found is None:
        return values
    fault, advice = describe_unusable(values[found], about_nan)
    record, row = source.locate(int(rows[found[0]]))
    feature = found[1] if columns is None else int(columns[found[1]])
    column = f"feature {feature}" if source.feature_names is None else f"column {source.feature_names[feature]!r}"
    raise DataError(f"{source.record_name(record)} contains {fault} at row {row}, {column}; {advice}")


def blas_ready(values: Array) -> Array:
    """Return a matrix in which rows or columns are contiguous, as BLAS needs; a copy of any other."""
    return values if min(values.strides) == values.itemsize else np.ascontiguousarray(values)


def describe_unusable(value: Any, about_nan: str) -> tuple[str, str]:
    """Return the description of a value that cannot be used, and advice, for an error message."""
    if np.isnan(value):
        return "NaN", about_nan
    if np.isinf(value):
        return f"infinity ({value})", MUST_BE_FINITE
    return f"{value:.2g}", f"the squares of such values overflow {value.dtype}: rescale the rows, or drop these"


def first_unusable(values: Array, allow_nan: bool = False, n_features: int | None = None) -> tuple[int, int] | None:
    """Return row and column of the first NaN, infinity or value so large that a row's sum of squares may overflow.

    Returns None if there is none. n_features: the length of a row, where ``values`` (n, s) are some of its entries.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        contiguous = values.flags.c_contiguous  # vdot is a third faster than einsum, but copies other arrays
        squares = np.vdot(values, values) if contiguous else np.einsum("ij,ij->", values, values)
    if np.isfinite(squares):
        return None
    largest = math.sqrt(float(np.finfo(values.dtype).max) / (n_features or values.shape[1]))
    magnitudes = np.abs(values)
    unusable = magnitudes > largest if allow_nan else ~(magnitudes <= largest)
    if not unusable.any():
        return None
    row, column = np.argwhere(unusable)[0]
    return int(row), int(column)
