"""Tables of numbers: Parquet and Arrow files, data frames."""

from __future__ import annotations

import glob
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data.source import MatrixSource
from terafactor.data.sources.array import ArraySource
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import Format, check_matrix, ends_with, is_a, reading_dtype, refuse_inside, require
from terafactor.errors import DataError

ROWS_TOGETHER = 1024
"""Rows of a table read together: a file of columns gives up single rows at a high price."""

NUMBERS = {
    "Boolean": "bool",
    **{name: name.lower() for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")},
    **{name: name.lower() for name in ("Float16", "Float32", "Float64")},
}
"""Types of columns that are numbers, and what NumPy calls them."""

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")

INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls the column of an index without a name."""


class TableSource(ChunkedSource):
    """A Parquet or Arrow file, each column a feature; only the columns asked for are read.

    Parameters
    ----------
    path : Path
    columns : sequence of str, optional
        Which columns, in this order; by default all of them but the index of a pandas frame.
    drop : sequence of str
        Columns to leave out.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None) -> None:
        polars = require("polars", extra="tables", purpose=f"reading {path}")
        self.name = str(path)
        try:
            scan = polars.scan_ipc if path.name.endswith(ARROW_SUFFIXES) else polars.scan_parquet
            self._table = scan(glob.escape(str(path)))  # polars would take t[1].parquet for a pattern
            schema = self._table.collect_schema()
            n_rows = self._table.select(polars.len()).collect().item()
            index = _stored_index(polars, path)
        except (polars.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{path} cannot be read as a table: {error}") from error
        self.columns = _check_columns(schema, columns, self.name, index, drop)
        self.shape = check_matrix((n_rows, len(self.columns)), self.name)
        self.dtype = _common_dtype([schema[column] for column in self.columns], self.name)
        self.chunk = (min(ROWS_TOGETHER, n_rows), 1)
        self.feature_names = self.columns
        self._path = path

    def in_order(self, names: Sequence[str]) -> MatrixSource:
        return type(self)(self._path, names)

    def box(self, rows: slice, columns: slice) -> Array:
        part = self._table.slice(rows.start, rows.stop - rows.start).select(self.columns[columns])
        return np.asarray(part.collect().to_numpy(), self.dtype)


class FrameSource(ArraySource):
    """A table in memory, each column a feature. Missing entries are NaN.

    Parameters
    ----------
    frame : polars.DataFrame
    name : str
        What errors call it.
    columns : sequence of str, optional
        Which columns, in this order; by default all of them but ``index``.
    index : collection of str
        Columns that pandas says are an index.
    drop : sequence of str
        Columns to leave out.
    """

    def __init__(
        self,
        frame: Any,
        name: str,
        columns: Sequence[str] | None = None,
        index: Collection[str] = frozenset(),
        drop: Sequence[str] | None = None,
    ) -> None:
        check_matrix(frame.shape, name)
        names = _check_columns(frame.schema, columns, name, index, drop)
        dtype = _common_dtype([frame.schema[column] for column in names], name)
        super().__init__(np.ascontiguousarray(frame.select(names).to_numpy(), dtype), name, allow_nan=True)
        self.feature_names = names

    def in_order(self, names: Sequence[str]) -> MatrixSource:
        moved = copy(self)
        moved.array = self.array[:, [(self.feature_names or []).index(name) for name in names]]
        moved.feature_names = list(names)
        return moved


def open_table(
    path: Path, inside: str | None = None, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None
) -> MatrixSource:
    """Return the columns of a Parquet or Arrow file as features."""
    refuse_inside(path, inside)
    return TableSource(path, columns, drop)


def open_frame(frame: Any, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None) -> MatrixSource:
    """Return the columns of a data frame or table in memory as features.

    Missing entries are NaN, refused when they are read unless they stand for missing.
    """
    polars = require("polars", extra="tables", purpose=f"reading a {type(frame).__name__}")
    name, index = f"the {type(frame).__name__}", frozenset[str]()
    if is_a(frame, "pyarrow", "Table"):
        index = _index_columns(frame.schema.pandas_metadata or {})
        frame = polars.from_arrow(frame)
    is_polars = is_a(frame, "polars", "DataFrame", "LazyFrame")
    frame = frame.lazy().collect() if is_polars else polars.from_pandas(_dense(frame))
    return FrameSource(frame, name, columns, index, drop)


def at_hand(thing: Any) -> Any:
    """Return what validation takes: a lazy frame computed, an Arrow table without an index of pandas, NaN for pd.NA.

    A frame of pandas stays sparse where all it leaves out are zeros; anything else is returned as it is.
    """
    if is_a(thing, "polars", "LazyFrame"):
        return thing.collect()
    if is_a(thing, "pandas", "DataFrame"):
        sparse = all(_is_sparse(dtype) and dtype.fill_value == 0 for dtype in thing.dtypes)
        return thing if sparse else _without_na(_dense(thing))
    if type(thing) is np.ndarray and thing.dtype == object and "pandas" in sys.modules:
        return np.where(sys.modules["pandas"].isna(thing), np.nan, thing)
    if is_a(thing, "pyarrow", "Table"):
        index = _index_columns(thing.schema.pandas_metadata or {})
        return thing.select([name for name in thing.column_names if not _is_index(name, index)])
    return thing


def _dense(frame: Any) -> Any:
    """Return a frame of pandas whose sparse columns are dense, what they leave out filled in."""
    stored = {name: dtype.subtype for name, dtype in frame.dtypes.items() if _is_sparse(dtype)}
    return frame.astype(stored) if stored else frame


def _is_sparse(dtype: Any) -> bool:
    return is_a(dtype, "pandas", "SparseDtype")


def _without_na(frame: Any) -> Any:
    """Return a frame of pandas with NaN for pd.NA among objects, which no conversion to numbers takes."""
    return frame.mask(frame.isna(), np.nan) if object in frame.dtypes.tolist() else frame


def _stored_index(polars: Any, path: Path) -> frozenset[str]:
    """Return the columns of a file that hold the index of a pandas frame; an Arrow file tells by their names only."""
    if path.name.endswith(ARROW_SUFFIXES) or not hasattr(polars, "read_parquet_metadata"):  # older versions
        return frozenset()
    return _index_columns(json.loads(polars.read_parquet_metadata(path).get("pandas", "{}")))


def _index_columns(pandas_metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that pandas says are its index; one that just counts the rows is not stored as a column."""
    return frozenset(column for column in pandas_metadata.get("index_columns", ()) if isinstance(column, str))


def _is_index(column: str, told: Collection[str]) -> bool:
    """Whether a column is an index of pandas: its metadata ``told`` so, or its name does."""
    return column in told or INDEX.fullmatch(column) is not None


def _check_columns(
    schema: Any,
    columns: Sequence[str] | None,
    name: str,
    index: Collection[str] = frozenset(),
    drop: Sequence[str] | None = None,
) -> list[str]:
    """Return ``columns``, by default all but an index, without those in ``drop``; raise if any is not usable."""
    features = [column for column in schema if not _is_index(column, index)]
    chosen, dropped = features if columns is None else list(columns), list(drop or ())
    missing = [column for column in (*chosen, *dropped) if column not in schema]
    if missing:
        raise DataError(f"{name} has no column {missing[0]!r}; it has {', '.join(list(schema)[:20])}")
    chosen = [column for column in chosen if column not in dropped]
    if not chosen:
        raise DataError(f"no column of {name} is left: select at least one")
    words = [column for column in chosen if str(schema[column]) not in NUMBERS]
    if words:
        raise DataError(
            f"column {words[0]!r} of {name} holds {schema[words[0]]}, which is no number: leave it out with "
            f"open_source(..., drop={words!r}) (--drop {','.join(words)}), or select others with columns= (--columns)"
        )
    return chosen


def _common_dtype(types: Sequence[Any], name: str) -> np.dtype[np.floating]:
    """Return float32 when all columns fit it exactly."""
    read_as = [reading_dtype(NUMBERS[str(kind)], name) for kind in set(types)]
    return max(read_as, key=lambda dtype: dtype.itemsize)


FORMAT = Format(
    name="table",
    understands=".parquet, .arrow, .feather files of numbers, data frames of polars, pandas and Arrow tables",
    is_path=ends_with(".parquet", ".pq", *ARROW_SUFFIXES),
    open_path=open_table,
    is_object=lambda thing: (
        is_a(thing, "polars", "DataFrame", "LazyFrame")
        or is_a(thing, "pyarrow", "Table")
        or is_a(thing, "pandas", "DataFrame")
    ),
    open_object=open_frame,
)
