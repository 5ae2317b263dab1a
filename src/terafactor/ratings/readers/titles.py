"""Titles of items."""

from __future__ import annotations

import csv
from pathlib import Path

from terafactor.errors import DataError
from terafactor.ratings.readers.text import COMMA, TAB, TextLayout, refuse_utf16, with_its_separator
from terafactor.ratings.table.open import NAMES, told_by_name

LAYOUTS = {".dat": TextLayout("::"), ".tsv": TAB, ".item": TextLayout("|")}
"""Of a table of items, by the end of its name; with commas elsewhere."""

WITHOUT_HEADER = (".dat", ".item")
"""Tables of MovieLens, which begin with id and title."""

TITLE_NAMES = {
    "item": (*NAMES["item"], "id"),
    "title": ("title", "movie_title", "item_title", "name", "item_name", "product_name"),
}


def read_titles(path: Path | str) -> dict[str, str]:
    """Return the title of each item id, as text, from ``movies.csv`` and the like.

    Columns are found by their names. Where no name tells anything, the two of a table, and the first two of
    ``movies.dat`` and ``u.item`` of MovieLens, are id and title. The latter are in Latin-1 where they are not in UTF-8.
    """
    path = Path(path)
    try:
        refuse_utf16(path)
        separator = with_its_separator(path, LAYOUTS.get(path.suffix.lower(), COMMA)).separator
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = text.splitlines()
    rows = [line.split(separator) for line in lines] if len(separator) > 1 else csv.reader(lines, delimiter=separator)
    numbered = [(number, row) for number, row in enumerate(rows, start=1) if any(field.strip() for field in row)]
    item, title, start = _places(path, numbered[0][1] if numbered else [])
    titles = {}
    for number, row in numbered[start:]:
        if len(row) <= max(item, title):
            raise DataError(f"{path}, line {number}: an id and a title are needed, got {separator.join(row)!r}")
        titles[row[item].strip()] = row[title].strip()
    if not titles:
        raise DataError(f"{path} holds no titles")
    return titles


def _places(path: Path, first: list[str]) -> tuple[int, int, int]:
    """Return which fields are id and title, given those of the first line, and how many lines are a header."""
    told = told_by_name(first, TITLE_NAMES)
    missing = [role for role, name in told.items() if name is None]
    if not missing:
        return first.index(told["item"]), first.index(told["title"]), 1
    if len(missing) == len(told) and (len(first) <= 2 or path.suffix.lower() in WITHOUT_HEADER):
        return 0, 1, 0
    raise DataError(
        f"{path}: no column is recognized as {missing[0]} among {', '.join(first)}: call it {missing[0]}. "
        "A file without a header needs one, such as item,title"
    )
