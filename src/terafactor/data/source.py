"""The one interface through which the solver reads a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import DataError

MUST_BE_FINITE = "every entry must be finite: drop such rows or columns, fill them in, or say missing='nan'"


@dataclass(frozen=True)
class FeatureTiles:
    """Groups of features that are cheap to read together: runs of equal width in some order."""

    width: int = 1
    """Features per tile; the last tile may have fewer."""

    order: Indices | None = None
    """All features in the order that is cut into tiles; None: their own order."""

    def members(self, chosen: Indices, n_features: int) -> Indices:
        """Return the features of the ``chosen`` tiles, ascending."""
        places = (np.sort(chosen)[:, np.newaxis] * self.width + np.arange(self.width)).ravel()
        places = places[: np.searchsorted(places, n_features)]
        return places if self.order is None else np.sort(self.order[places]).astype(np.int64, copy=False)


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
    """Whether a record comes as a whole only, so that all its batches should follow each other."""

    geometry: tuple[int, ...] | None = None
    """Shape of a row as a picture, for those who draw atoms."""

    @property
    def records(self) -> Sequence[range]:
        """Rows of each record, such as a file or a scan. A batch never mixes records."""
        return (range(self.shape[0]),)

    def record_name(self, record: int) -> str:
        """Return what errors call a record."""
        return f"record {record}"

    def row_blocks(self, record: int) -> Sequence[range] | None:
        """Return the blocks of rows of one record that are cheap to read together; None: any rows are."""
        return None

    def tiles(self, record: int) -> FeatureTiles:
        """Return the groups of features of one record that are cheap to read together: by default, each alone."""
        return FeatureTiles()

    def identity(self) -> str | None:
        """Return what tells this matrix from others without reading it; None: its values have to."""
        return None

    @abstractmethod
    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        """Return the values at ``rows`` and ``columns`` (None: all features, in order), a new (b, s) array."""


def check_indices(indices: Indices, bound: int, what: str) -> None:
    """Raise an IndexError unless all ``indices`` are between 0 and ``bound`` - 1."""
    if indices.size and not (indices.min() >= 0 and indices.max() < bound):
        raise IndexError(f"{what} must be between 0 and {bound - 1}, got {indices.min()} to {indices.max()}")


def check_finite(values: Array, name: str = "X", *, allow_nan: bool = False, rows_at_once: int = 64) -> None:
    """Raise an error that names row and column of the first NaN or infinity in ``values`` (n, p)."""
    for start in range(0, len(values), rows_at_once):
        found = first_not_finite(values[start : start + rows_at_once], allow_nan)
        if found is not None:
            row, column, value = found
            raise DataError(f"{name} contains {value} at row {start + row}, column {column}; {MUST_BE_FINITE}")


def read_finite(
    source: MatrixSource, rows: Indices, columns: Indices | None = None, *, allow_nan: bool = False
) -> Array:
    """Read from a source, and refuse NaN and infinity; those in memory refused them when they were made.

    allow_nan: whether NaN may stand for missing values.
    """
    values = source.read(rows, columns)
    found = None if source.in_memory else first_not_finite(values, allow_nan)
    if found is None:
        return values
    row, column, value = int(rows[found[0]]), found[1], found[2]
    number = next(number for number, record in enumerate(source.records) if row in record)
    feature = column if columns is None else int(columns[column])
    raise DataError(
        f"{source.record_name(number)} contains {value} at row {row - source.records[number].start}, "
        f"feature {feature}; {MUST_BE_FINITE}"
    )


def first_not_finite(values: Array, allow_nan: bool = False) -> tuple[int, int, str] | None:
    """Return row, column and kind of the first NaN or infinity, None when there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return None
    finite = ~np.isinf(values) if allow_nan else np.isfinite(values)
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return int(row), int(column), "NaN" if np.isnan(values[row, column]) else "infinity (inf)"
