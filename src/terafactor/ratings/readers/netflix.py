"""The text files of the Netflix Prize."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.formats import require
from terafactor.errors import DataError
from terafactor.ratings.table import RatingTable

PROBE = "probe.txt"
NO_SEPARATOR = "\x1f"
"""Occurs in no file, so that lines are read whole: they have one field or three."""


def is_netflix(folder: Path) -> bool:
    """Whether a folder holds the files of the prize."""
    return bool(_files(folder))


def read_netflix(folder: Path | str) -> RatingTable:
    """Read ``combined_data_*.txt``, or ``mv_*.txt`` in the folder or in ``training_set``.

    Ids are those of customers and movies, times are days since 1970.
    """
    folder = Path(folder)
    files = _files(folder)
    if not files:
        raise DataError(f"{folder} has neither combined_data_*.txt nor mv_*.txt nor training_set/mv_*.txt")
    polars = require("polars", extra="ratings", purpose=f"reading {folder}")
    frame = polars.concat([_read_part(polars, file) for file in files])
    return RatingTable.of(frame["user"], frame["item"], frame["rating"], frame["time"].to_numpy())


def split_probe(table: RatingTable, folder: Path | str) -> tuple[RatingTable, RatingTable]:
    """Return the ratings to learn from and those of the probe set, which ``probe.txt`` in the folder lists."""
    path = Path(folder) / PROBE
    if not path.is_file():
        raise DataError(f"{folder} has no {PROBE}")
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    pairs = _read_lines(polars, path, 1)
    users, items = table.user_ids.find(pairs["user"]), table.item_ids.find(pairs["item"])
    if np.any(users < 0) or np.any(items < 0):
        raise DataError(f"{path} lists customers or movies that have no rating in {folder}")
    wanted = users * table.shape[1] + items
    is_probe = np.isin(table.users.astype(np.int64) * table.shape[1] + table.items, wanted)
    return table.take(~is_probe), table.take(is_probe)


def _files(folder: Path) -> list[Path]:
    for pattern in ("combined_data_*.txt", "mv_*.txt", "training_set/mv_*.txt"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def _read_part(polars: Any, path: Path) -> Any:
    lines = _read_lines(polars, path, 3)
    try:
        return lines.select(
            "user", "item",
            rating=polars.col("field_1").cast(polars.Float32),
            time=polars.col("field_2").str.to_date("%Y-%m-%d").cast(polars.Int64),
        )  # fmt: skip
    except polars.exceptions.PolarsError as error:
        raise _first_bad_line(path, 3) from error


def _read_lines(polars: Any, path: Path, n_fields: int) -> Any:
    """Return the lines below their movie: ``7:`` starts the lines of movie 7."""
    whole = polars.col("line").str.split_exact(",", n_fields - 1)
    fields = [whole.struct.field(f"field_{number}") for number in range(n_fields)]
    try:
        lines = polars.read_csv(path, has_header=False, separator=NO_SEPARATOR, schema={"line": polars.String})
        lines = lines.select(fields)
        first = polars.col("field_0")
        is_movie = first.str.ends_with(":")
        numbered = lines.with_columns(
            item=polars.when(is_movie).then(first.str.strip_chars_end(":")).cast(polars.Int64).forward_fill()
        ).filter(~is_movie)
        numbered = numbered.with_columns(user=first.cast(polars.Int64))
    except polars.exceptions.PolarsError as error:
        raise _first_bad_line(path, n_fields) from error
    if any(numbered[name].null_count() for name in numbered.columns):
        raise _first_bad_line(path, n_fields)
    return numbered


def _first_bad_line(path: Path, n_fields: int) -> DataError:
    """Find the line that is neither a movie nor a rating, in a second and slower pass."""
    rating = re.compile(r"\d+" + (r",\d+(\.\d+)?,\d{4}-\d\d-\d\d" if n_fields == 3 else ""))
    below_a_movie = False
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip("\r\n")
            below_a_movie = below_a_movie or bool(re.fullmatch(r"\d+:", text))
            if not below_a_movie or not (re.fullmatch(r"\d+:", text) or rating.fullmatch(text)):
                return DataError(f"{path}, line {number} is neither 'movie:' nor a rating below one: {text[:80]!r}")
    return DataError(f"{path} cannot be read as a file of the Netflix Prize")
