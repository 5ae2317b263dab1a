"""The one interface through which the solver reads a matrix."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import DataError, DataTypeError

MUST_BE_FINITE = "every entry must be finite: drop such rows or columns, or fill them in"
"""The way out of an infinity, which is never a missing value, and of NaN where nothing can be missing."""

MAY_BE_MISSING = (
    "every entry must be finite: drop such rows or columns, fill them in, or say missing='nan' (--missing nan)"
)
"""The way out of NaN where an estimator may take it for a missing value."""


@dataclass(frozen=True)
class FeatureTiles:
    """Groups of features that are cheap to read together: runs of equal width in some order."""

    width: int = 1
    """Features per tile; the last tile may have fewer."""

    order: Indices | None = None
    """All features in the order that is cut into tiles; None: their own order."""

    fewest: int = 64
    """Tiles below which masks are made of single features: neighbours in a tile would stand for too much of a mask."""

    def members(self, chosen: Indices, n_features: int) -> Indices:
        """Return the features of the ``chosen`` tiles, ascending."""
        if self.width == 1 and self.order is None:
            return np.sort(chosen)
        if self.order is not None:
            tiles = [self.order[tile * self.width : (tile + 1) * self.width] for tile in chosen.tolist()]
            return np.sort(np.concatenate(tiles)).astype(np.int64, copy=False)
        places = (np.sort(chosen)[:, np.newaxis] * self.width + np.arange(self.width)).ravel()
        return places[: np.searchsorted(places, n_features)]

    def run(self, first: int, count: int, n_features: int) -> Indices:
        """Return the features of ``count`` tiles from ``first`` on and around the end, in their order there."""
        order = np.arange(n_features) if self.order is None else self.order
        beyond = max(first + count - -(-n_features // self.width), 0)
        features = order[first * self.width : (first + count) * self.width]
        if beyond:
            features = np.concatenate([features, order[: beyond * self.width]])
        return features.astype(np.int64, copy=False)


MOST_STORED = 0.05
"""Share of stored entries up to which a matrix counts as sparse: pairs of entries in a column grow as its square."""


class MatrixSource(ABC):
    """A matrix that can be read in parts.

    An implementation gives ``shape``, ``dtype`` and :meth:`read`, and tells what is cheap to read together; it passes
    :class:`terafactor.testing.SourceContract`. Reading is safe from several threads.
    """

    shape: tuple[int, int]
    """Rows and features."""

    dtype: np.dtype[np.floating]
    """float32 or float64: the type of what :meth:`read` returns."""

    in_memory: bool = False
    """Whether whole rows are at hand, so that reading fewer features saves nothing."""

    whole_records: bool = False
    """Whether a record is read as a whole anyway, so that all its batches should follow each other."""

    checked: bool = False
    """Whether there is no infinity, nor NaN unless ``holds_nan``: such were refused when the source was made."""

    holds_nan: bool = False
    """Whether NaN may stand for missing values in a checked source."""

    stored_share: float = 1.0
    """Share of the entries that are stored: of a sparse matrix, those that are not are zeros."""

    geometry: tuple[int, ...] | None = None
    """Shape of a row as a picture, for those who draw atoms."""

    feature_names: Sequence[str] | None = None
    """Name of each feature, such as the columns of a table; None where there are none."""

    @property
    def is_sparse(self) -> bool:
        """Whether so few entries are stored that work on these alone is faster than on whole rows."""
        return self.stored_share <= MOST_STORED

    @property
    def records(self) -> Sequence[range]:
        """Rows of each record, such as a file or a scan. A batch never mixes records."""
        return (range(self.shape[0]),)

    def record_name(self, record: int) -> str:
        """Return what errors call a record."""
        return f"record {record}"

    def record_label(self, record: int) -> str:
        """Return the name of a record wherever the data lie: that of a file without its folders."""
        path, mark, inside = self.record_name(record).partition("::")
        return f"{PurePath(path).name}{mark}{inside}"

    def locate(self, row: int) -> tuple[int, int]:
        """Return the record of a row, and the number of the row in it as users count: held-out rows count, too."""
        record = next(record for record, rows in enumerate(self.records) if row in rows)
        return record, row - self.records[record].start

    def row_blocks(self, record: int) -> Sequence[range] | None:
        """Return the blocks of rows of one record that are cheap to read together; None: any rows are."""
        return None

    def tiles(self, record: int) -> FeatureTiles:
        """Return the groups of features of one record that are cheap to read together: by default, each alone."""
        return FeatureTiles()

    def record_identity(self, record: int) -> str | None:
        """Return what tells a record from others, in place of its values where reading these is dear; None: they do."""
        return None

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        """Return how many bytes :meth:`read` takes in from where the matrix is stored."""
        return len(rows) * (self.shape[1] if columns is None else len(columns)) * self.dtype.itemsize

    def absent_as_missing(self) -> Self:
        """Return the matrix with NaN for entries that are not stored, rather than zeros; sparse sources have such."""
        raise DataTypeError(
            f"missing='absent' is for sparse matrices, and {self.record_name(0)} is dense: "
            "mark missing entries of a dense one with NaN and say missing='nan'"
        )

    def in_order(self, names: Sequence[str]) -> MatrixSource:
        """Return the matrix with its features in the order of these ``names``, which are its own; tables can."""
        raise DataError(
            f"{self.record_name(0)} has its features in another order, from {(self.feature_names or [''])[0]!r} on, "
            f"where {names[0]!r} is needed first: bring its columns into the same order"
        )

    def read_stored(self, rows: Indices) -> Any:
        """Return whole rows as a ``scipy.sparse.csr_array`` in canonical format (b, p); sparse sources have such."""
        raise DataTypeError(f"{self.record_name(0)} is dense: none of its zeros can be left out")

    @abstractmethod
    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        """Return the values at ``rows`` and ``columns`` (None: all features, in order), a new (b, s) array."""


class SourceView(MatrixSource):
    """Another look at a source: all of it is as in ``base``, unless a subclass says otherwise.

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
        return self.of(self.base.absent_as_missing())

    def in_order(self, names: Sequence[str]) -> MatrixSource:
        return self.of(self.base.in_order(names))

    def of(self, base: MatrixSource) -> Self:
        """Return the same look at another source."""
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
    # The methods min and max take a detour through Python, at every read.
    if indices.size and not (np.minimum.reduce(indices) >= 0 and np.maximum.reduce(indices) < bound):
        raise IndexError(f"{what} must be between 0 and {bound - 1}, got {indices.min()} to {indices.max()}")


def check_finite(
    values: Array, name: str = "X", *, allow_nan: bool = False, about_nan: str = MAY_BE_MISSING, rows_at_once: int = 64
) -> None:
    """Raise an error that names row and column of the first NaN, infinity or value too large in ``values`` (n, p).

    allow_nan: whether NaN may stand for missing values. about_nan: the way out that the error tells, if it may not.
    """
    for start in range(0, len(values), rows_at_once):
        part = values[start : start + rows_at_once]
        if (found := first_unusable(part, allow_nan)) is not None:
            fault, advice = described(part[found], about_nan)
            raise DataError(f"{name} contains {fault} at row {start + found[0]}, column {found[1]}; {advice}")


def is_checked(source: MatrixSource, allow_nan: bool) -> bool:
    """Whether the values of a source need no look any more."""
    return source.checked and (allow_nan or not source.holds_nan)


def read_stored_finite(source: MatrixSource, rows: Indices) -> Any:
    """Read the stored entries of whole rows, as :func:`read_finite` does all entries."""
    stored = source.read_stored(rows)
    if not is_checked(source, allow_nan=False) and not np.isfinite(stored.data).all():
        read_finite(source, rows)  # which says where
    return stored


def read_finite(
    source: MatrixSource,
    rows: Indices,
    columns: Indices | None = None,
    *,
    allow_nan: bool = False,
    about_nan: str = MAY_BE_MISSING,
) -> Array:
    """Read from a source, and refuse what :func:`check_finite` refuses, unless it did so when it was made.

    allow_nan, about_nan: as in :func:`check_finite`.
    """
    values = source.read(rows, columns)
    found = None if is_checked(source, allow_nan) else first_unusable(values, allow_nan)
    if found is None:
        return values
    fault, advice = described(values[found], about_nan)
    record, row = source.locate(int(rows[found[0]]))
    feature = found[1] if columns is None else int(columns[found[1]])
    raise DataError(f"{source.record_name(record)} contains {fault} at row {row}, feature {feature}; {advice}")


def described(value: Any, about_nan: str) -> tuple[str, str]:
    """Return what an error calls a value that cannot be used, and the way out."""
    if np.isnan(value):
        return "NaN", about_nan
    if np.isinf(value):
        return f"infinity ({value})", MUST_BE_FINITE
    return f"{value:.2g}", f"{value.dtype} has no room for squares of such values: rescale the rows, or drop these"


def first_unusable(values: Array, allow_nan: bool = False, n_features: int | None = None) -> tuple[int, int] | None:
    """Return row and column of the first NaN, infinity, or value whose squares may not add up over a row; or None.

    n_features: entries of a row, where ``values`` are some of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        in_order = values.flags.c_contiguous  # the first is a third faster, but copies what is not
        squares = np.vdot(values, values) if in_order else np.einsum("ij,ij->", values, values)
    if np.isfinite(squares):
        return None
    largest = math.sqrt(float(np.finfo(values.dtype).max) / (n_features or values.shape[1]))
    sizes = np.abs(values)
    unusable = sizes > largest if allow_nan else ~(sizes <= largest)
    if not unusable.any():
        return None
    row, column = np.argwhere(unusable)[0]
    return int(row), int(column)
