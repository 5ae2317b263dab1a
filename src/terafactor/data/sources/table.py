"""Tables of numbers: Parquet and Arrow files, data frames."""

from __future__ import annotations

import difflib
import glob
import json
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.data.source import MatrixSource
from terafactor.data.sources.array import ArraySource, as_numeric
from terafactor.data.sources.arrow import check_arrow_buffers
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import (
    READER_ERRORS,
    Format,
    check_matrix,
    ends_with,
    is_a,
    reading_dtype,
    refuse_inside,
    require,
)
from terafactor.errors import DataError, FitWarning

BLOCK_ROWS = 1024
"""Rows of a table that are read together: reading single rows of a columnar file is expensive."""

NUMBER_TYPES = {
    "Boolean": "bool",
    **{name: name.lower() for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")},
    **{name: name.lower() for name in ("Float16", "Float32", "Float64")},
}
"""Numeric column types of polars, and their NumPy names."""

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")

MAX_EXPANSION = 1000
"""Compressed tables that take more times their size in memory are checked against the limit."""

MAX_LISTED = 10
"""Columns that an error lists."""

DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
"""A number with a decimal comma."""

NO_COMMAS = "write decimal points, not commas"
"""Advice about decimal commas, which does not include dropping the columns: usually, all columns have them."""

RATING_COLUMNS = [
    re.compile(names, re.IGNORECASE)
    for names in ("user([ _]?id)?|uid", "(item|movie|product|book|song|track)([ _]?id)?|iid", "ratings?|stars|score")
]
"""Names of the columns of users, items and ratings."""

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""Name that pandas gives the stored column of an unnamed index."""


class TableSource(ChunkedSource):
    """A Parquet or Arrow file, each column a feature; only the columns that are needed are read.

    Parameters
    ----------
    path : Path
    columns : sequence of str, optional
        Columns to read, in this order; by default all except the index of a pandas frame.
    drop : sequence of str, optional
        Columns to skip.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None) -> None:
        polars = require("polars", extra="tables", purpose=f"reading {path}")
        self.name = str(path)
        is_arrow = path.name.lower().endswith(ARROW_SUFFIXES)
        if is_arrow:
            check_arrow_buffers(path)
        try:
            scan = polars.scan_ipc if is_arrow else polars.scan_parquet
            self._table = scan(glob.escape(str(path)))  # otherwise polars treats t[1].parquet as a pattern
            schema = self._table.collect_schema()
            n_rows = self._table.select(polars.len()).collect().item()
            index = _stored_index(polars, path)
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, *READER_ERRORS) as error:
            raise DataError(f"{path} cannot be read as a table: {error}") from error
        self.columns = _select_columns(schema, columns, self.name, index, drop)
        refuse_text(_texts(schema, self.columns), self.name)
        self.shape = check_matrix((n_rows, len(self.columns)), self.name)
        self.dtype = _common_dtype([schema[column] for column in self.columns], self.name)
        self._check_expansion(path.stat().st_size)
        self.chunk = (min(BLOCK_ROWS, n_rows), 1)
        self.feature_names = self.columns
        self._path = path
        self._errors = (polars.exceptions.PolarsError, polars.exceptions.PanicException)

    def _check_expansion(self, stored: int) -> None:
        """Refuse a small file with columns larger than memory: reading a few rows may decompress a whole column."""
        column = self.shape[0] * self.dtype.itemsize
        if column * self.shape[1] > MAX_EXPANSION * stored:
            check_size(column, f"a column of {self.name}", max_bytes())

    def reorder_features(self, names: Sequence[str]) -> MatrixSource:
        return FORMAT.open(self._path, columns=names)

    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        part = self._table.slice(rows.start, rows.stop - rows.start).select(self.columns[columns])
        try:
            return np.asarray(part.collect().to_numpy(), self.dtype)
        except self._errors as error:
            raise DataError(f"{self.name} cannot be read any more: {error}; restore it") from error


class FrameSource(ArraySource):
    """A table in memory, each column a feature. Missing entries are NaN.

    Parameters
    ----------
    frame : polars.DataFrame
    name : str
        Name in error messages.
    columns : sequence of str, optional
        Columns to read, in this order; by default all except ``index``.
    index : collection of str
        Columns that the pandas metadata declare an index.
    drop : sequence of str, optional
        Columns to skip.
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
        names = _select_columns(frame.schema, columns, name, index, drop)
        texts = _texts(frame.schema, names)
        refuse_text(texts, name, example=_first_text(frame, texts))
        dtype = _common_dtype([frame.schema[column] for column in names], name)
        array = np.ascontiguousarray(frame.select(names).to_numpy(), dtype)
        super().__init__(array, name, allow_nan=True, feature_names=names)

    def reorder_features(self, names: Sequence[str]) -> MatrixSource:
        reordered = copy(self)
        reordered.array = self.array[:, [(self.feature_names or []).index(name) for name in names]]
        reordered.feature_names = list(names)
        reordered.origin = self.origin and replace(self.origin, options={"columns": list(names)})
        return reordered


def open_table(
    path: Path, inside: str | None = None, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None
) -> MatrixSource:
    """Return the columns of a Parquet or Arrow file as features."""
    refuse_inside(path, inside)
    return TableSource(path, columns, drop)


def open_frame(frame: Any, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None) -> MatrixSource:
    """Return the columns of a data frame or table in memory as features.

    Missing entries are NaN, which is an error when read unless it marks missing values.
    """
    polars = require("polars", extra="tables", purpose=f"reading a {type(frame).__name__}")
    name, index = f"the {type(frame).__name__}", frozenset[str]()
    if is_a(frame, "pyarrow", "Table"):
        index = _index_columns(frame.schema.pandas_metadata or {})
        frame = polars.from_arrow(frame)
    is_polars = is_a(frame, "polars", "DataFrame", "LazyFrame")
    try:
        frame = frame.lazy().collect() if is_polars else polars.from_pandas(_dense(frame))
    except (TypeError, ValueError, polars.exceptions.PolarsError) as error:
        raise DataError(f"{name} cannot be read as columns of numbers: {error}") from error
    return FrameSource(frame, name, columns, index, drop)


def prepare_for_validation(data: Any, name: str = "X") -> Any:
    """Return data in memory in a form that scikit-learn validates; refuse what is not a matrix of numbers, by name.

    Collects a lazy frame, drops the pandas index of an Arrow table, and replaces pd.NA by NaN. A pandas frame whose
    columns are all sparse with fill value 0 stays sparse.
    """
    if is_a(data, "polars", "LazyFrame"):
        data = data.collect()
    if is_a(data, "polars", "DataFrame"):
        refuse_text(
            {key: kind for key, kind in data.schema.items() if not _may_be_numeric(str(kind))},
            name,
            way_out="X.drop({names})",
        )
        return data
    if is_a(data, "pandas", "DataFrame"):
        sparse = all(_is_sparse(dtype) and dtype.fill_value == 0 for dtype in data.dtypes)
        data = data if sparse else _without_na(_dense(data))
        columns = ((key, data.iloc[:, place]) for place, key in enumerate(data.columns))
        refuse_text(
            {key: column.dtype for key, column in columns if not _is_numeric(column)},
            name,
            way_out="X.drop(columns={names})",
        )
        return data
    if is_a(data, "pyarrow", "Table"):
        index = _index_columns(data.schema.pandas_metadata or {})
        data = data.select([column for column in data.column_names if not _is_index(column, index)])
        refuse_text(
            {field.name: field.type for field in data.schema if not _may_be_numeric(str(field.type))},
            name,
            way_out="X.drop_columns({names})",
        )
        return data
    return as_numeric(data, name)


def _may_be_numeric(kind: str) -> bool:
    """Return whether a type of polars or Arrow, by its name, can be converted to numbers."""
    return kind.lower().startswith(("int", "uint", "float", "half", "double", "decimal", "bool", "null"))


def _is_numeric(column: Any) -> bool:
    """Return whether a column of pandas can be converted to numbers."""
    if column.dtype != object:
        return column.dtype.kind in "fiubc"
    try:
        column.astype(float)
    except (TypeError, ValueError):
        return False
    return True


def _dense(frame: Any) -> Any:
    """Return a pandas frame with its sparse columns made dense."""
    stored = {name: dtype.subtype for name, dtype in frame.dtypes.items() if _is_sparse(dtype)}
    return frame.astype(stored) if stored else frame


def _is_sparse(dtype: Any) -> bool:
    return is_a(dtype, "pandas", "SparseDtype")


def _without_na(frame: Any) -> Any:
    """Return a pandas frame with NaN in place of pd.NA in object columns, which cannot be converted to numbers."""
    return frame.mask(frame.isna(), np.nan) if object in frame.dtypes.tolist() else frame


def _stored_index(polars: Any, path: Path) -> frozenset[str]:
    """Return the columns of a Parquet file that hold the index of a pandas frame; Arrow metadata are not read."""
    if path.name.lower().endswith(ARROW_SUFFIXES) or not hasattr(polars, "read_parquet_metadata"):  # older versions
        return frozenset()
    return _index_columns(json.loads(polars.read_parquet_metadata(path).get("pandas", "{}")))


def _index_columns(pandas_metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that the pandas metadata declare an index; a RangeIndex is not stored as a column."""
    return frozenset(column for column in pandas_metadata.get("index_columns", ()) if isinstance(column, str))


def _is_index(column: str, declared: Collection[str]) -> bool:
    """Return whether a column is a pandas index: ``declared`` by the metadata, or recognized by its name."""
    return column in declared or UNNAMED_INDEX.fullmatch(column) is not None


def _select_columns(
    schema: Any,
    columns: Sequence[str] | None,
    name: str,
    index: Collection[str] = frozenset(),
    drop: Sequence[str] | None = None,
) -> list[str]:
    """Return ``columns``, by default all except an index, without ``drop``; refuse unknown ones."""
    chosen = [column for column in schema if not _is_index(column, index)] if columns is None else _names(columns)
    dropped = [] if drop is None else _names(drop)
    unknown = [column for column in (*chosen, *dropped) if column not in schema]
    if unknown:
        listed, more = ", ".join(map(repr, list(schema)[:MAX_LISTED])), len(schema) - MAX_LISTED
        close = difflib.get_close_matches(str(unknown[0]), list(schema), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        listed += f" and {more:,} more" if more > 0 else ""
        raise DataError(f"{name} has no column {unknown[0]!r}{hint}; it has {listed}")
    chosen = [column for column in chosen if column not in dropped]
    if not chosen:
        raise DataError(f"no column of {name} is left: select at least one")
    if columns is None:
        _warn_of_ratings(chosen, name)
    return chosen


def _warn_of_ratings(columns: Sequence[str], name: str) -> None:
    """Warn about a table of ratings, whose ids are not features."""
    found = [[column for column in columns if pattern.fullmatch(column)] for pattern in RATING_COLUMNS]
    if all(found):
        warnings.warn(
            f"{name} looks like ratings ({', '.join(names[0] for names in found)}): ids are not features to factorize; "
            "to predict ratings, use MatrixCompletion or terafactor ratings fit",
            FitWarning,
            stacklevel=2,
        )


def _texts(schema: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the types of those columns that do not hold numbers."""
    return {column: schema[column] for column in columns if str(schema[column]) not in NUMBER_TYPES}


def _first_text(frame: Any, texts: Collection[str]) -> str:
    """Return where the first text that is not a number is, and how to replace it; empty if there is none."""
    for column in texts:
        for row, value in enumerate(frame[column]):
            if isinstance(value, str) and not _is_number(value):
                comma = DECIMAL_COMMA.fullmatch(value)
                advice = NO_COMMAS if comma else "write a number, or nothing if it is missing, or "
                return f"{column!r} contains {value!r} at row {row}: {advice}"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names(columns: Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def refuse_text(types: Mapping[str, Any], name: str, *, example: str = "", way_out: str = "") -> None:
    """Refuse columns that do not hold numbers, if there are any. types: their types by name.

    example: what to replace, as :func:`_first_text` returns it. way_out: code that leaves out the columns ``{names}``.
    """
    if not types:
        return
    some = list(types)[:MAX_LISTED]
    listed = ", ".join(f"{column!r} ({types[column]})" for column in some)
    more = f" and {len(types) - MAX_LISTED} more" if len(types) > MAX_LISTED else ""
    noun, verb = ("column", "is not a number") if len(types) == 1 else ("columns", "are not numbers")
    if example.endswith(NO_COMMAS):
        raise DataError(f"{noun} {listed}{more} of {name} {verb}: {example}")
    rest = ("", "") if len(types) <= MAX_LISTED else (", ...", ",...")
    names, option = (f"[{', '.join(map(repr, some))}{rest[0]}]", ",".join(map(str, some)) + rest[1])
    default = f"open_source(..., drop={names}) (--drop {option}), or select others with columns= (--columns)"
    raise DataError(
        f"{noun} {listed}{more} of {name} {verb}: {example}leave out the {noun} with "
        f"{way_out.format(names=names) or default}"
    )


def _common_dtype(types: Sequence[Any], name: str) -> np.dtype[np.floating]:
    """Return float32 if it represents all columns exactly, float64 otherwise."""
    read_as = [reading_dtype(NUMBER_TYPES[str(kind)], name) for kind in set(types)]
    return max(read_as, key=lambda dtype: dtype.itemsize)


FORMAT = Format(
    name="table",
    description=".parquet, .arrow, .feather files of numbers, data frames of polars, pandas and Arrow tables",
    is_path=ends_with(".parquet", ".pq", *ARROW_SUFFIXES),
    open_path=open_table,
    is_object=lambda data: (
        is_a(data, "polars", "DataFrame", "LazyFrame")
        or is_a(data, "pyarrow", "Table")
        or is_a(data, "pandas", "DataFrame")
    ),
    open_object=open_frame,
)
