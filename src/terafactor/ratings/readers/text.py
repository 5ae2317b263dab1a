"""Text files with one rating per line."""

from __future__ import annotations

import codecs
import csv
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.sources.formats import require
from terafactor.errors import DataError
from terafactor.ratings.readers.blank import read_passing_over_blank_lines
from terafactor.ratings.table.open import find_columns
from terafactor.ratings.table.table import LARGEST, Duplicates, RatingTable

SHOWN = 80
"""Characters of a bad line that an error shows."""

LOOKED_AT = 1000
"""Lines in which ids are looked at before all are read. Reading all as text is no way: numbering the ids of 2 million
lines takes 0.03 s as integers and 1.8 s as text."""

SEPARATORS = ",;\t|"
"""What may stand between the fields of a file with a header, whatever its name ends with."""

PADDED = re.compile(r"[+-]?0\d+|\+\d+|-0")
"""Text that parses as an integer but is not how the integer is written: ``007`` is another user than ``7``."""

ENCLOSED = '^".*"$'
"""Text between quotes, for polars."""

DATE = re.compile(r"\d{4}-\d\d-\d\d")

WITHOUT_TIMES = "columns={'time': ''}, on the command line --column time=, leaves times out"


@dataclass(frozen=True)
class TextLayout:
    """How a text file holds its ratings."""

    separator: str
    """What stands between fields."""

    places: Mapping[str, int] | None = None
    """Which field is the user, item, rating and time, for a file without a header."""

    @property
    def parsed_separator(self) -> str:
        """What polars splits on: it takes single characters, so that ``::`` leaves an empty field in between."""
        return self.separator[0]

    @property
    def step(self) -> int:
        """Fields that polars finds for each one there is."""
        return len(self.separator)


DOUBLE_COLON = TextLayout("::", {"user": 0, "item": 1, "rating": 2, "time": 3})
PLAIN_TAB = TextLayout("\t", {"user": 0, "item": 1, "rating": 2, "time": 3})
COMMA, TAB = TextLayout(","), TextLayout("\t")


def read_text(
    path: Path, layout: TextLayout, duplicates: Duplicates, columns: Mapping[str, str] | None = None
) -> RatingTable:
    """Read a text file, strictly: an error names the first line that is not a rating."""
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    refuse_utf16(path)
    layout = with_its_separator(path, layout)
    first = _first_line(path, layout)
    if not first:
        raise DataError(f"{path} is empty")
    places = _places(first, layout, columns)
    padded, dated = _padded(path, layout, places), _dated(path, layout, places)
    frame = read_passing_over_blank_lines(
        path, lambda content: _parse(polars, content, layout, places, padded, dated, len(first))
    )
    if frame is None:
        raise _first_bad_line(path, layout, places, dated, len(first))
    times = frame["time"].to_numpy() if "time" in places else None
    return RatingTable.of(frame["user"], frame["item"], frame["rating"].to_numpy(), times, duplicates=duplicates)


def refuse_utf16(path: Path) -> None:
    """Refuse a file in UTF-16, as spreadsheets write it: it has a mark at its beginning, or zeros among its bytes."""
    with path.open("rb") as file:
        beginning = file.read(100)
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning:
        raise DataError(
            f"{path} seems to be UTF-16, while text has to be UTF-8: convert it, as with "
            f"iconv -f utf-16 -t utf-8 {shlex.quote(str(path))} > converted{path.suffix}"
        )


def with_its_separator(path: Path, layout: TextLayout) -> TextLayout:
    """Return the layout with the separator that a file has whose header is a single name by that of the layout."""
    header = _first_line(path, layout)
    if layout.places is not None or len(header) != 1:
        return layout
    likely = max(SEPARATORS, key=header[0].count)
    return replace(layout, separator=likely) if likely in header[0] else layout


def _first_line(path: Path, layout: TextLayout) -> list[str]:
    return next((fields for _, fields in _lines(path, layout)), [])


def _places(first: list[str], layout: TextLayout, columns: Mapping[str, str] | None) -> dict[str, int]:
    """Return which field is what, given those of the first line."""
    if layout.places is not None:
        there = {role: place for role, place in layout.places.items() if place < max(len(first), 3)}
        return {role: place for role, place in there.items() if role != "time" or (columns or {}).get(role) != ""}
    header = [name.lstrip("\ufeff") for name in first]
    try:
        return {role: header.index(name) for role, name in find_columns(header, columns).items()}
    except DataError as error:
        raise DataError(f"{error}. A file without a header needs one, such as user,item,rating") from error


def _padded(path: Path, layout: TextLayout, places: Mapping[str, int]) -> list[str]:
    """Return which of user and item have ids like ``007`` in the first lines: these are text."""
    lines = [fields for _, fields in islice(_lines(path, layout), LOOKED_AT)]
    return [
        role
        for role in ("user", "item")
        if any(PADDED.fullmatch(fields[places[role]]) for fields in lines if len(fields) > places[role])
    ]


def _dated(path: Path, layout: TextLayout, places: Mapping[str, int]) -> bool:
    """Whether times are dates like ``2020-01-31``, as in the first line below the header, and not numbers."""
    if "time" not in places:
        return False
    lines = islice(_lines(path, layout), 0 if layout.places is not None else 1, None)
    first = next((fields for _, fields in lines), [])
    return len(first) > places["time"] and bool(DATE.match(first[places["time"]]))


def _parse(
    polars: Any,
    content: str | bytes,
    layout: TextLayout,
    places: Mapping[str, int],
    padded: list[str],
    dated: bool,
    n_fields: int,
) -> Any | None:
    """Return a data frame of the fields, None if a line is not a rating.

    Ids are integers, or text where one is not, without the white space around it; those of the roles in ``padded`` are
    text in any case. Quotes enclose fields or, where that makes no sense of the file and no id is enclosed, are part of
    them, as in ``12" pipe``.
    """
    names = {place * layout.step: role for role, place in places.items()}
    for quote, id_type in product(('"', None), (polars.Int64, polars.String)):
        types = {"user": id_type, "item": id_type, "rating": polars.Float32}
        types |= {"time": polars.Datetime if dated else polars.Float64}
        types |= dict.fromkeys(padded, polars.String)
        fields = [names.get(number, f"field {number}") for number in range((n_fields - 1) * layout.step + 1)]
        try:
            frame = polars.read_csv(
                content,
                separator=layout.parsed_separator,
                quote_char=quote,
                has_header=False,
                skip_rows=0 if layout.places is not None else 1,
                schema={field: types.get(field, polars.String) for field in fields},
                columns=list(names),
            )
        except polars.exceptions.PolarsError:
            continue
        text = [polars.col(role) for role in ("user", "item") if frame[role].dtype == polars.String]
        frame = frame.with_columns([ids.str.strip_chars() for ids in text])
        complete = not any(frame[role].null_count() for role in places) and not _any(frame, [ids == "" for ids in text])
        enclosed = quote is None and _any(frame, [ids.str.contains(ENCLOSED) for ids in text])
        return frame if complete and not enclosed and np.isfinite(frame["rating"].to_numpy()).all() else None
    return None


def _any(frame: Any, conditions: list[Any]) -> bool:
    """Whether one of the conditions holds for some line of a data frame."""
    return any(frame.select(condition).to_series().any() for condition in conditions)


def _first_bad_line(path: Path, layout: TextLayout, places: Mapping[str, int], dated: bool, n_fields: int) -> DataError:
    """Find the line that is not a rating, in a second and slower pass."""
    lines = _lines(path, layout)
    before = next(lines)[0] if layout.places is None else 0
    for number, fields in lines:
        problem = _problem(fields, places, dated, n_fields)
        if problem:
            return DataError(f"{path}, line {number}: {problem}: {_as_written(path, before, number)[:SHOWN]!r}")
        before = number
    return _first_not_utf8(path) or first_odd_quote(path) or DataError(f"{path} holds no ratings that can be read")


def _as_written(path: Path, before: int, number: int) -> str:
    """Return the lines after ``before`` up to ``number``: a field between quotes may take several."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return "".join(islice(file, before, number)).strip("\r\n")


def _first_not_utf8(path: Path) -> DataError | None:
    """Find the line that is in another encoding, None when there is none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return DataError(
                    f"{path}, line {number} is not UTF-8: {line[:SHOWN]!r}; convert the file, as with "
                    "iconv -f latin1 -t utf-8 for one in Latin-1"
                )
    return None


def first_odd_quote(path: Path) -> DataError | None:
    """Find the line with a quote that no other one closes, None when there is none."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.count('"') % 2:
                return DataError(
                    f"{path}, line {number} has a quote that is not closed, while others enclose fields: "
                    f"{line.rstrip()[:SHOWN]!r}; enclose the field, and write the quote twice"
                )
    return None


def _lines(path: Path, layout: TextLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line that is not blank."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        if layout.step > 1:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n").split(layout.separator)
            return
        reader = csv.reader(file, delimiter=layout.separator)
        for fields in reader:
            if layout.separator.join(fields).strip():
                yield reader.line_num, fields


def _problem(fields: list[str], places: Mapping[str, int], dated: bool, n_fields: int) -> str | None:
    """Say what is wrong with a line, None when nothing is."""
    if len(fields) <= max(places.values()):
        return f"{len(fields)} fields, at least {max(places.values()) + 1} are needed"
    if len(fields) > n_fields:
        return f"{len(fields)} fields, the first line has {n_fields}"
    empty = [role for role, place in places.items() if not fields[place].strip()]
    if empty:
        return f"the {empty[0]} is empty" + (f" ({WITHOUT_TIMES})" if empty[0] == "time" else "")
    if dated and not _is_date(fields[places["time"]]):
        return f"the time is not a date like 2020-01-31 ({WITHOUT_TIMES})"
    for role in ("rating",) if dated else ("rating", "time"):
        if role in places:
            try:
                number = float(fields[places[role]])
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                way_out = f" or a date like 2020-01-31 ({WITHOUT_TIMES})" if role == "time" else ""
                return f"the {role} is not a finite number{way_out}"
            if role == "rating" and abs(number) > LARGEST:
                return f"the rating is beyond the {LARGEST:.2g} that float32 holds"
    return None


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
