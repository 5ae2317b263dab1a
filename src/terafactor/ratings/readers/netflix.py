"""The text files of the Netflix Prize."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._checks import check_regular
from terafactor.data.sources.formats import require
from terafactor.errors import DataError
from terafactor.ratings.readers.text import for_polars, parse_without_blank_lines
from terafactor.ratings.table.table import RatingTable

PROBE = "probe.txt"
NO_SEPARATOR = "\x1f"
"""A character that does not occur, so that polars reads whole lines: they have one field or three."""


def is_netflix(folder: Path) -> bool:
    """Return whether a folder has the files of the prize."""
    return bool(_files(folder))


def read_netflix(folder: Path | str) -> RatingTable:
    """Read ``combined_data_*.txt``, or ``mv_*.txt`` in the folder or in ``training_set``.

    Users are customer ids, items are movie ids, times are days since 1970.
    """
    folder = Path(folder)
    files = _files(folder)
    if not files:
        raise DataError(f"{folder} has neither combined_data_*.txt nor mv_*.txt nor training_set/mv_*.txt")
    polars = require("polars", extra="ratings", purpose=f"reading {folder}")
    frame = polars.concat([_read(polars, file, 3) for file in files])
    return RatingTable.of(frame["user"], frame["item"], frame["rating"], frame["time"].to_numpy())


def split_probe(table: RatingTable, folder: Path | str) -> tuple[RatingTable, RatingTable]:
    """Split a table into training ratings and those of the probe set, listed in ``probe.txt`` in the folder."""
    path = Path(folder) / PROBE
    if not path.is_file():
        raise DataError(f"{folder} has no {PROBE}: pass the folder with this file of the Netflix Prize")
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    pairs = _read(polars, path, 1)
    users, items = table.user_ids.find(pairs["user"]), table.item_ids.find(pairs["item"])
    if np.any(users < 0) or np.any(items < 0):
        raise DataError(
            f"{path} lists customers or movies without a rating in {folder}: use the probe.txt of the same data"
        )
    wanted = users * table.shape[1] + items
    is_probe = np.isin(table.users.astype(np.int64) * table.shape[1] + table.items, wanted)
    return table.take(~is_probe), table.take(is_probe)


def _files(folder: Path) -> list[Path]:
    for pattern in ("combined_data_*.txt", "mv_*.txt", "training_set/mv_*.txt"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def _read(polars: Any, path: Path, n_fields: int) -> Any:
    """Read a file; raise DataError with the first line that is neither a movie nor a rating."""
    check_regular(path)
    frame = parse_without_blank_lines(path, lambda content: _parse(polars, content, n_fields))
    if frame is None:
        raise _find_invalid_line(path, n_fields)
    return frame


def _parse(polars: Any, content: Path | bytes, n_fields: int) -> Any | None:
    """Return the ratings with their movie, None if a line is invalid: ``7:`` precedes the lines of movie 7."""
    whole = polars.col("line").str.split_exact(",", n_fields - 1)
    first = polars.col("field_0")
    columns = {"user": first.cast(polars.Int64), "item": polars.col("item")}
    if n_fields == 3:
        columns["rating"] = polars.col("field_1").cast(polars.Float32)
        columns["time"] = polars.col("field_2").str.to_date("%Y-%m-%d").cast(polars.Int64)
    try:
        lines = polars.read_csv(
            for_polars(content),
            has_header=False,
            separator=NO_SEPARATOR,
            quote_char=None,
            schema={"line": polars.String},
        )
        lines = lines.select(whole.struct.field(f"field_{number}") for number in range(n_fields))
        is_movie = first.str.ends_with(":")
        below = lines.with_columns(
            item=polars.when(is_movie).then(first.str.strip_chars_end(":")).cast(polars.Int64).forward_fill()
        ).filter(~is_movie)
        below = below.select(**columns)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
        return None
    return None if any(below[name].null_count() for name in columns) else below


def _find_invalid_line(path: Path, n_fields: int) -> DataError:
    """Return an error that names the first invalid line, found by a second, slower pass."""
    rating = re.compile(r"\d+" + (r",\d+(\.\d+)?,\d{4}-\d\d-\d\d" if n_fields == 3 else ""))
    below_a_movie = False
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip("\r\n")
            if not text.strip():
                continue
            below_a_movie = below_a_movie or bool(re.fullmatch(r"\d+:", text))
            if not below_a_movie or not (re.fullmatch(r"\d+:", text) or rating.fullmatch(text)):
                return DataError(f"{path}, line {number} is neither 'movie:' nor a rating below one: {text[:80]!r}")
    return DataError(f"{path} cannot be read as a file of the Netflix Prize: download it again")
