"""Titles of items."""

from __future__ import annotations

import csv
from pathlib import Path

from terafactor.errors import DataError

SEPARATORS = {".dat": "::", ".tsv": "\t", ".item": "|"}
"""Between the fields of a table of items, by the end of its name; a comma elsewhere."""


def read_titles(path: Path | str) -> dict[str, str]:
    """Return the title of each item id, as text: the first two fields of each line of ``movies.csv`` and the like.

    ``movies.dat`` and ``u.item`` of MovieLens are in Latin-1 where they are not in UTF-8. A header is one more title.
    """
    path = Path(path)
    separator = SEPARATORS.get(path.suffix.lower(), ",")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = text.splitlines()
    rows = [line.split(separator) for line in lines] if len(separator) > 1 else csv.reader(lines, delimiter=separator)
    titles = {}
    for number, row in enumerate(rows, start=1):
        if not any(field.strip() for field in row):
            continue
        if len(row) < 2:
            raise DataError(f"{path}, line {number}: an id and a title are needed, got {row[0]!r}")
        titles[row[0].strip()] = row[1].strip()
    return titles
