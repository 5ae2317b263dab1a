"""Text files of numbers, one row per line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import textwrap
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

from terafactor._format import counted
from terafactor._memory import check_size, max_bytes
from terafactor.data.source import MatrixSource
from terafactor.data.sources.formats import Format, ends_with, refuse_inside, require
from terafactor.data.sources.table import FrameSource
from terafactor.errors import DataError, FitWarning

SEPARATORS = ",;\t|"
"""Characters that may separate two numbers."""

BLANK_LINES = re.compile(rb"\n[ \r\n]*\n")
"""Blank lines, with the line break before them. Lines of tabs are not blank: tabs separate missing numbers."""

PIECE_BYTES = 2**24
"""Bytes read at a time."""

MEMORY_PER_BYTE = 4
"""Memory that loading text takes, at least, per byte: the text, copies of it and the numbers."""

MEMORY_PER_HEADER_BYTE = 12
"""The same for the first line, whose names have more copies."""

MESSAGE_LENGTH = 1000
"""Characters of the longest error message of polars that is shown."""

MISSING = ("", "NA", "N/A", "NaN", "nan", "null")
"""Fields that mark a missing number."""


def open_text(
    path: Path, inside: str | None = None, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None
) -> MatrixSource:
    """Return the columns of a text file as features, loaded whole, since the starts of rows are unknown.

    The first line names the columns unless it holds only numbers; 0, 1, 2, ... are names. An unnamed first column is an
    index, and skipped unless ``columns`` selects it. Missing entries are NaN, which is an error when read unless it
    marks missing values.
    """
    refuse_inside(path, inside)
    polars = require("polars", extra="tables", purpose=f"reading {path}")
    try:
        read = _read_bounded(path)
        content = _without_blank_lines(read)
        header = content[: content.find(b"\n")]
        check_size(MEMORY_PER_HEADER_BYTE * len(header), str(path), max_bytes())
        first = header.decode("utf-8-sig").rstrip("\r")
        separator = max(SEPARATORS, key=first.count)
        fields = [field.strip().strip('"') for field in first.split(separator)]
        numbered = _are_default_names(fields)
        named = numbered or not all(map(_is_number, fields))
        frame = polars.read_csv(
            content, separator=separator, has_header=named, infer_schema_length=None, null_values=list(MISSING)
        )
    except (
        polars.exceptions.PolarsError,
        polars.exceptions.PanicException,
        OSError,
        EOFError,
        zlib.error,
        UnicodeDecodeError,
    ) as error:
        reason = textwrap.shorten(str(error), MESSAGE_LENGTH)  # polars quotes fields of any length
        raise DataError(f"{path} cannot be read as lines of numbers in UTF-8: {reason}") from error
    if frame[:, -1].null_count():
        _refuse_short_lines(read, separator, len(frame.columns), path)
    if len(frame.columns) == 1 and _is_row_of_numbers(frame[0, 0] if len(frame) else None):
        raise DataError(f"no separator found in {path}: separate numbers by , ; | or tabs")
    if numbered and columns is None:
        warnings.warn(f"the first line of {path}, 0, 1, 2, ..., is read as column names", FitWarning, stacklevel=2)
    index = {""} if named and frame.columns[0] == "" and len(frame.columns) > 1 else set[str]()
    if index and columns is None and "" not in (drop or ()):
        example = f"columns={['', *frame.columns[1:3]]!r}".replace("]", ", ...]")
        warnings.warn(
            f"the first column of {path} has no name: it is skipped as an index; to keep it, name it in the file, or "
            f"select it with open_source(..., {example}) (--columns)",
            FitWarning,
            stacklevel=2,
        )
    source = FrameSource(frame, str(path), columns, index, drop)
    if not named:
        source.feature_names = None
    return source


def _is_row_of_numbers(value: object) -> bool:
    """Return whether a field holds several numbers, separated by spaces."""
    fields = value.split() if isinstance(value, str) else []
    return len(fields) > 1 and all(map(_is_number, fields))


def _are_default_names(fields: list[str]) -> bool:
    """Return whether fields are the default column names of pandas, 0, 1, 2, ..., after an unnamed index or not."""
    has_index = fields[0] == ""
    names = fields[has_index:]
    return names == [str(number) for number in range(len(names))] and len(fields) >= 3


def _read_bounded(path: Path) -> bytes:
    """Return the content of a file, decompressed; refuse it as soon as it exceeds the limit on memory."""
    limit, content = max_bytes(), bytearray()
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            content += piece
            check_size(MEMORY_PER_BYTE * len(content), str(path), limit)
    return bytes(content)


def _without_blank_lines(content: bytes) -> bytes:
    """Return the content of a file without blank lines."""
    return BLANK_LINES.sub(b"\n", b"\n" + content + b"\n")[1:]


def _refuse_short_lines(content: bytes, separator: str, expected: int, path: Path) -> None:
    """Refuse a file with a line that has too few fields, which polars fills with missing numbers."""
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""), delimiter=separator)
    end = 0
    try:
        for fields in lines:
            end = lines.line_num
            blank = len(fields) <= 1 and not "".join(fields).strip()
            if not blank and len(fields) < expected:
                found, wanted = counted(len(fields), "field"), f"{expected} expected"
                raise DataError(f"line {end} of {path} has {found}, {wanted}: complete or remove it")
    except csv.Error as error:
        raise DataError(f"line {end + 1} of {path} holds no numbers: {error}") from error


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return field in MISSING
    return True


FORMAT = Format(
    name="text",
    description=".csv and .tsv files of numbers, .gz or not",
    is_path=ends_with(".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    open_path=open_text,
)
