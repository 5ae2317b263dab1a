"""Files of predictions and recommendations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor._checks import check_regular
from terafactor._durable import no_follow, replace_durably, storage_errors, unfinished
from terafactor._typing import Array
from terafactor.data.sources.formats import require
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.ratings.readers.text import (
    COMMA,
    QUOTED,
    TAB,
    detect_separator,
    find_bare_return,
    find_invalid_quote,
    find_unclosed_quote,
    for_polars,
    has_escaped_quotes,
    load_parquet,
    reads_every_record,
    refuse_utf16,
    survey,
    unescaped,
    without_blank_lines,
)
from terafactor.ratings.table.ids import match_id_types
from terafactor.ratings.table.open import find_columns

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion

logger = logging.getLogger("terafactor")

PAIR = ("user", "item")


def add_predictions(
    estimator: MatrixCompletion, pairs: Path, out: Path, columns: Mapping[str, str] | None = None
) -> int:
    """Write the table of pairs with a column ``prediction``; return the number of pairs."""
    frame, found = _read_pairs(pairs, columns or {}, estimator.columns or {})
    users, items = (
        match_id_types(ids, frame[found[role]].to_list())
        for role, ids in (("user", estimator.users_), ("item", estimator.items_))
    )
    _write_table(frame.with_columns(prediction=estimator.predict((users, items))), out)
    return len(frame)


@dataclass(frozen=True)
class Recommendations:
    """Recommended items of some users."""

    users: list[Any]
    """Ids of the users."""

    known: list[bool]
    """Whether the model knows them."""

    items: Array
    """Ids of items (n_users, n), best first."""

    ratings: Array
    """Predicted ratings (n_users, n); NaN where no item is left."""

    titles: Mapping[str, str]
    """Titles by item id, as text; may be empty."""

    @classmethod
    def of(
        cls, estimator: MatrixCompletion, users: Sequence[str] | None, n: int, *, exclude_seen: bool,
        titles: Mapping[str, str],
    ) -> Recommendations:  # fmt: skip
        """Recommend items to some users, or to all; log a warning if no item has a title."""
        if titles and titles.keys().isdisjoint(map(str, estimator.items_.tolist())):
            logger.warning(
                "no item of the model has a title: its ids look like %s, those of the titles like %s",
                estimator.items_[0], next(iter(titles)),
            )  # fmt: skip
        wanted = estimator.users_.tolist() if users is None else match_id_types(estimator.users_, users)
        known = (estimator._known[0].find(wanted) >= 0).tolist()
        items, ratings = estimator.recommend(None if users is None else wanted, n, exclude_seen=exclude_seen)
        return cls(wanted, known, items, ratings, titles)

    def records(self) -> list[dict[str, Any]]:
        """Return one record per user, for JSON."""
        return [
            {"user": user, "known": known, "items": [self._item(*pair) for pair in self._list(row)]}
            for row, (user, known) in enumerate(zip(self.users, self.known, strict=True))
        ]

    def write(self, path: Path) -> None:
        """Write a table with one line per user and rank."""
        polars = require("polars", extra="ratings", purpose=f"writing {path}")
        filled = np.isfinite(self.ratings)
        rows, ranks = np.nonzero(filled)
        columns = {
            "user": np.asarray(self.users)[rows],
            "rank": ranks + 1,
            "item": self.items[filled],
            "rating": self.ratings[filled].astype(np.float32),
        }
        if self.titles:
            columns["title"] = np.array([self.titles.get(str(item), "") for item in columns["item"]], dtype=object)
        _write_table(polars.DataFrame(columns), path)

    def _list(self, row: int) -> list[tuple[Any, float]]:
        pairs = zip(self.items[row].tolist(), self.ratings[row].tolist(), strict=True)
        return [(item, rating) for item, rating in pairs if np.isfinite(rating)]

    def _item(self, item: Any, rating: float) -> dict[str, Any]:
        title = self.titles.get(str(item))
        return {"item": item, "rating": rating} | ({} if title is None else {"title": title})


def _read_pairs(path: Path, columns: Mapping[str, str], fitted: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Read a table; return it with the names of its user and item columns. Ids in a text file are text.

    columns: names of the columns; fitted: names that the model was fitted with, used if the table has them.
    """
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    check_regular(path)
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            names = list(polars.read_parquet_schema(for_polars(path)))
            return load_parquet(polars, path, names), _find_pair(names, columns, fitted)
        refuse_utf16(path)
        layout = detect_separator(path, TAB if path.suffix.lower() in (".tsv", ".inter") else COMMA)
        separator, content = layout.separator, without_blank_lines(path)
        if has_escaped_quotes(path, layout):
            content = unescaped(content)
        seen = survey(content, layout)
        bare_return = find_bare_return(path) if seen.bare_returns else None
        if bare_return is not None:
            raise bare_return
        header = polars.read_csv(content, separator=separator, has_header=False, n_rows=1, infer_schema=False)
        found = _find_pair([name or "" for name in header.row(0)], columns, fitted)  # polars renames repeated columns
        texts = {found[role]: polars.String for role in PAIR}
        try:
            frame = polars.read_csv(content, separator=separator, schema_overrides=texts)
            quotes_enclose = reads_every_record(seen, content, layout, len(frame) + 1)
        except polars.exceptions.PolarsError:
            quotes_enclose = False
        if not quotes_enclose:  # quotes are part of the fields, or invalid
            frame = polars.read_csv(content, separator=separator, schema_overrides=texts, quote_char=None)
            invalid = find_invalid_quote(path, layout) or find_unclosed_quote(path)
            if invalid is not None and any(frame[name].str.contains(QUOTED).any() for name in texts):
                raise invalid
        return frame.with_columns(polars.col(list(texts)).str.strip_chars()), found
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from error


def _find_pair(header: list[str], columns: Mapping[str, str], fitted: Mapping[str, str]) -> dict[str, str]:
    given = {role: name for role, name in fitted.items() if role in PAIR and name in header} | dict(columns)
    return find_columns(header, given, needed=PAIR)


def _write_table(frame: Any, path: Path) -> None:
    """Write a table under a temporary name, and rename it when it is complete."""
    if path.exists():
        raise ParameterError(f"{path} exists: choose another name, or remove it")
    polars = require("polars", extra="ratings", purpose=f"writing {path}")
    writers = {".parquet": frame.write_parquet, ".csv": frame.write_csv}
    if path.suffix.lower() not in writers:
        raise ParameterError(f"the output must be a .parquet or .csv file, got {path}")
    with storage_errors(path), unfinished(path) as temporary:
        with open(temporary, "xb", opener=no_follow) as file:
            try:
                writers[path.suffix.lower()](file)
            except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
                raise StorageError(OSError(f"{error}"), path) from error
        replace_durably(temporary, path)
