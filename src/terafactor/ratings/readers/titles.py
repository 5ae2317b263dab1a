"""Files of item titles."""

from __future__ import annotations

import csv
from pathlib import Path

from terafactor._checks import check_regular
from terafactor.errors import DataError
from terafactor.ratings.readers.text import COMMA, TAB, TextLayout, detect_separator, refuse_utf16
from terafactor.ratings.table.open import NAMES, match_names

TITLE_LAYOUTS = {".dat": TextLayout("::"), ".tsv": TAB, ".item": TextLayout("|")}
"""Layouts by suffix; other files are separated by commas."""

WITHOUT_HEADER = (".dat", ".item")
"""Tables of MovieLens, whose first fields are id and title."""

TITLE_NAMES = {
    "item": (*NAMES["item"], "id"),
    "title": ("title", "movie_title", "item_title", "name", "item_name", "product_name"),
}


def read_titles(path: Path | str) -> dict[str, str]:
    """Read a file such as ``movies.csv``; return the title of each item id, as text.

    Columns are recognized by name. If none is, a table of two columns has ids and titles, and so have the first two
    fields of ``movies.dat`` and ``u.item`` of MovieLens. Files that are not UTF-8 are read as Latin-1.
    """
    path = Path(path)
    try:
        check_regular(path)
        refuse_utf16(path)
        separator = detect_separator(path, TITLE_LAYOUTS.get(path.suffix.lower(), COMMA)).separator
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = text.splitlines()
    rows = [line.split(separator) for line in lines] if len(separator) > 1 else csv.reader(lines, delimiter=separator)
    try:
        numbered = [(number, row) for number, row in enumerate(rows, start=1) if any(field.strip() for field in row)]
    except csv.Error as error:
        raise DataError(
            f"{path} is not a table of ids and titles ({error}): look for a quote that is not closed"
        ) from error
    item, title, start = _positions(path, numbered[0][1] if numbered else [])
    titles = {}
    for number, row in numbered[start:]:
        if len(row) <= max(item, title):
            raise DataError(f"{path}, line {number}: an id and a title are needed, got {separator.join(row)!r}")
        titles[row[item].strip()] = row[title].strip()
    if not titles:
        raise DataError(f"{path} has no titles")
    return titles


def _positions(path: Path, first: list[str]) -> tuple[int, int, int]:
    """Return the positions of id and title, given the fields of the first line, and the number of header lines."""
    found = match_names(first, TITLE_NAMES)
    missing = [role for role, name in found.items() if name is None]
    if not missing:
        return first.index(found["item"]), first.index(found["title"]), 1
    if len(missing) == len(found) and (len(first) <= 2 or path.suffix.lower() in WITHOUT_HEADER):
        return 0, 1, 0
    raise DataError(
        f"{path}: no column is recognized as {missing[0]} among {', '.join(first)}: rename it to {missing[0]}. "
        "A file without a header needs one, such as item,title"
    )
