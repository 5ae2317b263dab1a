"""Text files with one rating per line."""

from __future__ import annotations

import codecs
import csv
import glob
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.data.sources.formats import require
from terafactor.errors import DataError
from terafactor.ratings.table.ids import MAX_ID_LENGTH
from terafactor.ratings.table.open import check_roles, find_columns
from terafactor.ratings.table.table import MAX_RATING, Duplicates, RatingTable

SHOWN = 80
"""Characters of an invalid line that an error shows."""

CHUNK = 2**20
"""Number of bytes surveyed at a time: intermediate results fit into the cache."""

OVERLAP = 8
"""Bytes that chunks share, more than the beginning of a field such as ``"-0``."""

NEWLINE, RETURN, SPACE, QUOTE, ZERO, PLUS, MINUS = b'\n\r "0+-'
"""Bytes that a survey looks for."""

SEPARATORS = ",;\t|"
"""Separators recognized in a header, whatever the suffix of the file."""

QUOTED = '^".*"$'
"""Text in quotes, as a polars pattern."""

DATE = re.compile(r"\d{4}-\d\d-\d\d")

FINITE = re.compile(r"[ \t]*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""Text that polars parses as a finite number; Python accepts more, such as ``1_0``."""

EMPTY_LINES = re.compile(rb"\n\s*\n")
"""Blank lines, from the end of the line before them to the end of the last one."""

QUOTED_OR_RETURN = re.compile(rb'"[^"]*"|\r(?!\n)')
"""Text in quotes, or a carriage return that no line feed follows."""

ESCAPED = re.compile(rb'\\(["\\])')
"""Quote or backslash after a backslash."""

IGNORE_TIMES = "pass columns={'time': ''}, on the command line --column time=, to ignore times"


@dataclass(frozen=True)
class TextLayout:
    """Layout of a text file of ratings."""

    separator: str
    """Separator of the fields."""

    positions: Mapping[str, int] | None = None
    """Positions of user, item, rating and time in a file without a header."""

    @property
    def polars_separator(self) -> str:
        """Separator for polars, which supports single characters: ``::`` becomes ``:`` and an empty field."""
        return self.separator[0]

    @property
    def stride(self) -> int:
        """Number of fields that polars finds per field."""
        return len(self.separator)


DOUBLE_COLON = TextLayout("::", {"user": 0, "item": 1, "rating": 2, "time": 3})
TAB_WITHOUT_HEADER = TextLayout("\t", {"user": 0, "item": 1, "rating": 2, "time": 3})
COMMA, TAB = TextLayout(","), TextLayout("\t")


def read_text(
    path: Path, layout: TextLayout, duplicates: Duplicates, columns: Mapping[str, str] | None = None
) -> RatingTable:
    """Read a text file; raise DataError with the first line that is not a rating."""
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    refuse_utf16(path)
    layout = detect_separator(path, layout)
    first = _first_line(path, layout)
    if not first:
        raise DataError(f"{path} is empty")
    positions = _positions(first, layout, columns)
    dates = _has_dates(path, layout, positions)

    def parse(content: Path | bytes) -> Any | None:
        return _parse(polars, content, layout, positions, dates, len(first))

    frame = parse_without_blank_lines(path, parse)
    if frame is None and has_escaped_quotes(path, layout):
        frame = parse(unescaped(without_blank_lines(path)))
    if frame is None:
        raise _find_invalid_line(path, layout, positions, dates, len(first))
    times = frame["time"].to_numpy() if "time" in positions else None
    return RatingTable.of(frame["user"], frame["item"], frame["rating"].to_numpy(), times, duplicates=duplicates)


def parse_without_blank_lines(path: Path, parse: Callable[[Path | bytes], Any]) -> Any:
    """Return ``parse(path)`` or, if that is None, ``parse(content without blank lines)``.

    Most files have no blank lines and are parsed once, from the disk.
    """
    found = parse(path)
    return parse(without_blank_lines(path)) if found is None else found


def for_polars(content: Path | bytes) -> str | bytes:
    """Return a path as text with escaped wildcards, which polars would expand; return bytes unchanged."""
    return glob.escape(str(content)) if isinstance(content, Path) else content


def load_parquet(polars: Any, path: Path, columns: Sequence[str]) -> Any:
    """Return columns of a Parquet file; refuse them if their uncompressed size exceeds the memory limit."""
    n_rows = polars.scan_parquet(for_polars(path)).select(polars.len()).collect().item()
    check_size(8 * n_rows * len(columns), str(path), max_bytes())
    return polars.read_parquet(for_polars(path), columns=list(columns))


def without_blank_lines(path: Path) -> bytes:
    """Return the content of a file without blank lines."""
    return EMPTY_LINES.sub(b"\n", b"\n" + path.read_bytes() + b"\n")[1:]


def has_escaped_quotes(path: Path, layout: TextLayout) -> bool:
    """Return whether quotes inside quoted fields are escaped by a backslash instead of doubled."""
    if layout.stride > 1 or _count_records(path, layout) is not None:
        return False
    return _count_records(path, layout, escape="\\") is not None


def unescaped(content: bytes) -> bytes:
    """Replace backslash-escaped quotes by doubled quotes, and escaped backslashes by backslashes."""
    return ESCAPED.sub(lambda found: b'""' if found[1] == b'"' else b"\\", content)


@dataclass(frozen=True)
class Survey:
    """What the bytes of a text show before it is parsed."""

    n_lines: int
    """Number of lines."""

    escaped_quotes: bool
    """Whether a quote follows a backslash."""

    bare_returns: bool
    """Whether a carriage return, perhaps in a quoted field, is not followed by a line feed."""

    unusual_integers: bool
    """Whether a field may be an integer in an unusual form, such as ``007``, ``+7`` and ``-0``."""


def survey(content: Path | bytes, layout: TextLayout) -> Survey:
    """Survey a text, in a few per cent of the time of parsing it."""
    n_lines, escaped_quotes, bare_returns, unusual_integers, tail = 0, False, False, False, b"\n"
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        while chunk := file.read(CHUNK):
            text = tail + chunk
            codes = np.frombuffer(text, np.uint8)
            newlines = codes == NEWLINE
            n_lines += int(np.count_nonzero(newlines[len(tail) :]))  # faster than bytes.count
            escaped_quotes |= b"\\" in text and b'\\"' in text
            bare_returns |= b"\r" in text and bool(np.any((codes[:-1] == RETURN) > newlines[1:]))  # > is "and not"
            unusual_integers = unusual_integers or _has_unusual_integers(text, codes, newlines, layout)
            tail = text[-OVERLAP:]
    n_lines += not tail.endswith(b"\n")
    return Survey(n_lines, escaped_quotes, bare_returns or tail.endswith(b"\r"), unusual_integers)


def _has_unusual_integers(text: bytes, codes: Array, newlines: Array, layout: TextLayout) -> bool:
    """Return whether a field may be an integer in an unusual form; other fields, such as times, may look like one."""
    starts = newlines | (codes == ord(layout.polars_separator))
    if b" " in text:
        spaces = codes == SPACE
        starts[1:] |= spaces[1:] & (starts[:-1] | spaces[:-1])
    if b'"' in text:
        starts |= codes == QUOTE
    zeros = codes == ZERO
    return bool(
        np.any(starts[:-2] & zeros[1:-1] & (codes[2:] - ZERO < 10))
        or (PLUS in text and np.any(starts[:-1] & (codes[1:] == PLUS)))
        or (MINUS in text and np.any(starts[:-2] & (codes[1:-1] == MINUS) & zeros[2:]))
    )


def reads_every_record(seen: Survey, content: Path | bytes, layout: TextLayout, n_records: int) -> bool:
    """Return whether a text has this many records: polars may join lines at quotes that are not doubled.

    If there is one record per line and no backslash before a quote, nothing is parsed again.
    """
    if layout.stride > 1 or (seen.n_lines == n_records and not seen.escaped_quotes):
        return seen.n_lines == n_records
    return _count_records(content, layout) == n_records


def _count_records(content: Path | bytes, layout: TextLayout, escape: str | None = None) -> int | None:
    """Return the number of records that are not blank, None if a quote inside a quoted field is not escaped."""
    try:
        return sum(bool(layout.separator.join(fields).strip()) for fields in _strict_records(content, layout, escape))
    except csv.Error:
        return None


def _strict_records(content: Path | bytes, layout: TextLayout, escape: str | None = None) -> Iterator[list[str]]:
    """Yield the fields of each record; raise csv.Error(line number) if a quote inside a quoted field is not escaped."""
    binary = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
    with io.TextIOWrapper(binary, encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=layout.separator, strict=True, escapechar=escape)
        try:
            yield from reader
        except csv.Error as error:
            raise csv.Error(reader.line_num) from error


def refuse_utf16(path: Path) -> None:
    """Refuse a UTF-16 file, as some spreadsheets write: it has a byte order mark, or null bytes."""
    with path.open("rb") as file:
        beginning = file.read(100)
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning:
        raise DataError(
            f"{path} seems to be UTF-16, and text must be UTF-8: convert it, for example with "
            f"iconv -f utf-16 -t utf-8 {shlex.quote(str(path))} > converted{path.suffix}"
        )


def detect_separator(path: Path, layout: TextLayout) -> TextLayout:
    """Return the layout with the separator found in the header, if the expected one does not occur there."""
    header = _first_line(path, layout)
    if layout.positions is not None or len(header) != 1:
        return layout
    likely = max(SEPARATORS, key=header[0].count)
    return replace(layout, separator=likely) if likely in header[0] else layout


def _first_line(path: Path, layout: TextLayout) -> list[str]:
    return next((fields for _, fields in _lines(path, layout)), [])


def _positions(first: list[str], layout: TextLayout, columns: Mapping[str, str] | None) -> dict[str, int]:
    """Return the position of each role, given the fields of the first line."""
    if layout.positions is not None:
        check_roles(columns)
        found = {role: place for role, place in layout.positions.items() if place < max(len(first), 3)}
        return {role: place for role, place in found.items() if role != "time" or (columns or {}).get(role) != ""}
    header = [name.lstrip("\ufeff") for name in first]
    try:
        return {role: header.index(name) for role, name in find_columns(header, columns).items()}
    except DataError as error:
        raise DataError(f"{error}. A file without a header needs one, such as user,item,rating") from error


def _has_dates(path: Path, layout: TextLayout, positions: Mapping[str, int]) -> bool:
    """Return whether the first time is a date like ``2020-01-31``, not a number."""
    if "time" not in positions:
        return False
    lines = islice(_lines(path, layout), 0 if layout.positions is not None else 1, None)
    first = next((fields for _, fields in lines), [])
    return len(first) > positions["time"] and bool(DATE.match(first[positions["time"]]))


def _parse(
    polars: Any,
    content: Path | bytes,
    layout: TextLayout,
    positions: Mapping[str, int],
    dates: bool,
    n_fields: int,
) -> Any | None:
    """Return a data frame of the ratings, None if a line is not a rating.

    Ids of users are integers if all are, in their usual form (``007`` and ``7`` are different users), otherwise text
    without surrounding white space; so are ids of items. Quotes enclose fields. If the file cannot be parsed that way
    and ids do not both begin and end with quotes, quotes are part of the fields, as in ``12" pipe``.
    """
    seen = survey(content, layout)
    if seen.bare_returns and first_bare_return(content) is not None:
        return None
    id_types = (polars.String,) if seen.unusual_integers else (polars.Int64, polars.String)
    names = {place * layout.stride: role for role, place in positions.items()}
    for quote, id_type in product(('"', None), id_types):
        types = {"user": id_type, "item": id_type, "rating": polars.Float32}
        types |= {"time": polars.Datetime if dates else polars.Float64}
        fields = [names.get(number, f"field {number}") for number in range((n_fields - 1) * layout.stride + 1)]
        try:
            frame = polars.read_csv(
                for_polars(content),
                separator=layout.polars_separator,
                quote_char=quote,
                has_header=False,
                skip_rows=0 if layout.positions is not None else 1,
                schema={field: types.get(field, polars.String) for field in fields},
                columns=list(names),
            )
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
            continue
        if quote and not reads_every_record(seen, content, layout, len(frame) + (layout.positions is None)):
            continue
        text = [polars.col(role) for role in ("user", "item") if frame[role].dtype == polars.String]
        frame = frame.with_columns([ids.str.strip_chars() for ids in text])
        complete = not any(frame[role].null_count() for role in positions)
        lengths = [ids.str.len_chars() for ids in text]
        complete = complete and not _any(frame, [(length == 0) | (length > MAX_ID_LENGTH) for length in lengths])
        quoted = quote is None and _any(frame, [ids.str.starts_with('"') for ids in text])
        enclosed = quoted and _any(frame, [ids.str.ends_with('"') for ids in text])
        if not complete or enclosed or not np.isfinite(frame["rating"].to_numpy()).all():
            return None
        return frame.with_columns(_as_integers(polars, frame[role]) for role in ("user", "item"))
    return None


def _as_integers(polars: Any, ids: Any) -> Any:
    """Return ids as integers if all are, in their usual form; otherwise unchanged."""
    if ids.dtype != polars.String:
        return ids
    integers = ids.cast(polars.Int64, strict=False)
    return ids if integers.null_count() or (integers.cast(polars.String) != ids).any() else integers


def _any(frame: Any, conditions: list[Any]) -> bool:
    """Return whether one of the conditions holds for some row of a data frame."""
    return any(frame.select(condition).to_series().any() for condition in conditions)


def _find_invalid_line(
    path: Path, layout: TextLayout, positions: Mapping[str, int], dates: bool, n_fields: int
) -> DataError:
    """Return an error that names the first invalid line, found by a second, slower pass."""
    bare_return = find_bare_return(path)
    if bare_return is not None:
        return bare_return
    lines = _lines(path, layout)
    before = next(lines)[0] if layout.positions is None else 0
    for number, fields in lines:
        problem = _problem(fields, layout, positions, dates, n_fields)
        if problem:
            return DataError(f"{path}, line {number}: {problem}: {_source_lines(path, before, number)[:SHOWN]!r}")
        before = number
    return (
        _find_not_utf8(path)
        or find_invalid_quote(path, layout)
        or find_unclosed_quote(path)
        or DataError(f"{path} has no valid ratings")
    )


def _source_lines(path: Path, before: int, number: int) -> str:
    """Return the lines after ``before`` up to ``number``: a field in quotes may span several lines."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return "".join(islice(file, before, number)).strip("\r\n")


def _find_not_utf8(path: Path) -> DataError | None:
    """Return an error that names the first line in another encoding, None if there is none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return DataError(
                    f"{path}, line {number} is not UTF-8: {line[:SHOWN]!r}; convert the file, for example with "
                    "iconv -f latin1 -t utf-8 if it is Latin-1"
                )
    return None


def first_bare_return(content: Path | bytes) -> int | None:
    """Return the line of the first carriage return outside quotes that no line feed follows, None if there is none."""
    text = content.read_bytes() if isinstance(content, Path) else content
    places = (found.start() for found in QUOTED_OR_RETURN.finditer(text) if found[0] == b"\r")
    place = next(places, None)
    return None if place is None else 1 + text.count(b"\n", 0, place)


def find_bare_return(path: Path) -> DataError | None:
    """Return an error that names the first line that a carriage return would end, None if there is none."""
    number = first_bare_return(path)
    if number is None:
        return None
    return DataError(
        f"{path}, line {number} has a carriage return that is not followed by a line feed: "
        f"{_source_lines(path, number - 1, number)[:SHOWN]!r}; convert the line ends, for example with "
        f"tr '\\r' '\\n' < {shlex.quote(str(path))} > converted{path.suffix}"
    )


def find_invalid_quote(path: Path, layout: TextLayout) -> DataError | None:
    """Return an error that names the first quoted field with a quote that is not doubled, None if there is none."""
    if layout.stride > 1:
        return None
    try:
        for _ in _strict_records(path, layout):
            pass
    except csv.Error as error:
        number = int(error.args[0])
        return DataError(
            f"{path}, line {number}: a quote inside a quoted field is not doubled, or a field is not closed: "
            f"{_source_lines(path, number - 1, number)[:SHOWN]!r}; write quotes inside a field twice"
        )
    return None


def find_unclosed_quote(path: Path) -> DataError | None:
    """Return an error that names the first line with an unclosed quote, None if there is none."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.count('"') % 2:
                return DataError(
                    f"{path}, line {number} has a quote that is not closed, and other quotes enclose fields: "
                    f"{line.rstrip()[:SHOWN]!r}; enclose the field in quotes, and double the quote inside"
                )
    return None


def _lines(path: Path, layout: TextLayout) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each record, skipping blank lines."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        if layout.stride > 1:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n").split(layout.separator)
            return
        reader, end = csv.reader(file, delimiter=layout.separator), 0
        try:
            for fields in reader:
                end = reader.line_num
                if layout.separator.join(fields).strip():
                    yield end, fields
        except csv.Error as error:
            raise DataError(
                f"{path}, line {end + 1}: a field has more than {csv.field_size_limit():,} characters: "
                "a quote is not closed, or the file does not hold ratings"
            ) from error


def _problem(
    fields: list[str], layout: TextLayout, positions: Mapping[str, int], dates: bool, n_fields: int
) -> str | None:
    """Return what is wrong with a line, None if it is valid."""
    if len(fields) <= max(positions.values()):
        return f"{len(fields)} fields instead of at least {max(positions.values()) + 1}"
    if len(fields) > n_fields:
        return f"{len(fields)} fields, but the first line has {n_fields}"
    if layout.stride > 1 and any(layout.polars_separator in field for field in fields):
        return f"a field contains {layout.polars_separator!r}, and {layout.separator!r} separates fields"
    empty = [role for role, place in positions.items() if not fields[place].strip()]
    if empty:
        return f"the {empty[0]} is empty" + (f" ({IGNORE_TIMES})" if empty[0] == "time" else "")
    for role in ("user", "item"):
        if len(fields[positions[role]].strip()) > MAX_ID_LENGTH:
            length = len(fields[positions[role]].strip())
            return f"the {role} has {length:,} characters, at most {MAX_ID_LENGTH:,} are allowed"
    if dates and not _is_date(fields[positions["time"]]):
        return f"the time is not a date like 2020-01-31 ({IGNORE_TIMES})"
    for role in ("rating",) if dates else ("rating", "time"):
        if role in positions:
            text = fields[positions[role]]
            number = float(text) if FINITE.fullmatch(text) else math.nan
            if not math.isfinite(number):
                advice = f" or a date like 2020-01-31 ({IGNORE_TIMES})" if role == "time" else ""
                return f"the {role} is not a finite number{advice}"
            if role == "rating" and abs(number) > MAX_RATING:
                return f"the rating is beyond the {MAX_RATING:.2g} that float32 holds"
    return None


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
