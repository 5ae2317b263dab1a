"""``read_ratings``: select the reader of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from terafactor._checks import check_regular
from terafactor.data.sources.formats import READER_ERRORS, require
from terafactor.data.sources.sparse import check_archive
from terafactor.errors import DataError
from terafactor.ratings.readers.netflix import is_netflix, read_netflix
from terafactor.ratings.readers.text import (
    COMMA,
    DOUBLE_COLON,
    TAB,
    TAB_WITHOUT_HEADER,
    TextLayout,
    for_polars,
    load_parquet,
    read_text,
)
from terafactor.ratings.table.open import find_columns, open_ratings
from terafactor.ratings.table.table import Duplicates, RatingTable

LAYOUTS: dict[str, TextLayout] = {
    ".dat": DOUBLE_COLON,
    ".data": TAB_WITHOUT_HEADER,
    ".csv": COMMA,
    ".tsv": TAB,
    ".inter": TAB,
}
MOVIELENS_FILES = ("ratings.dat", "ratings.csv", "u.data")
"""Names of the rating files of MovieLens."""


def read_ratings(
    path: Path | str, *, duplicates: Duplicates = "error", columns: Mapping[str, str] | None = None
) -> RatingTable:
    """Read a file or folder of ratings.

    Parameters
    ----------
    path : path
        ``ratings.dat``, ``u.data`` or ``ratings.csv`` of MovieLens, or the folder with one of them; the folder of the
        Netflix Prize; a CSV, TSV, RecBole ``.inter`` or Parquet file with named columns; an ``.npz`` file with a SciPy
        sparse matrix, or with arrays user, item, rating and optionally timestamp.
    duplicates : {"error", "last", "mean"}, default="error"
        What to do if a user rates an item more than once.
    columns : mapping, optional
        Names of the columns "user", "item", "rating" and "time", if they are not recognized; "" ignores times.

    Returns
    -------
    RatingTable

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from terafactor.ratings import read_ratings
    >>> path = Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,item,rating\\nann,dune,5\\nbob,dune,3\\n")
    >>> read_ratings(path).shape
    (2, 1)
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    check_regular(path)
    if path.is_dir():
        return _read_folder(path, duplicates, columns)
    suffix = path.suffix.lower()
    if suffix in LAYOUTS:
        return read_text(path, LAYOUTS[suffix], duplicates, columns)
    if suffix in (".parquet", ".pq"):
        return _read_parquet(path, duplicates, columns)
    if suffix == ".npz":
        return _read_npz(path, duplicates, columns)
    raise DataError(f"{path} is not a rating file: the suffix must be {', '.join([*LAYOUTS, '.parquet', '.npz'])}")


def _read_folder(path: Path, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    if is_netflix(path):
        return read_netflix(path)
    found = [path / name for name in MOVIELENS_FILES if (path / name).is_file()]
    if not found:
        raise DataError(f"{path} has none of {', '.join(MOVIELENS_FILES)} and no file of the Netflix Prize")
    return read_ratings(found[0], duplicates=duplicates, columns=columns)


def _read_parquet(path: Path, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    polars = require("polars", extra="ratings", purpose=f"reading {path}")
    try:
        found = find_columns(list(polars.read_parquet_schema(for_polars(path))), columns)
        frame = load_parquet(polars, path, list(found.values()))
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    for name in found.values():
        if frame[name].null_count():
            row = frame[name].is_null().arg_max()
            raise DataError(f"{path}, row {row}: column {name} has no value")
    try:
        return open_ratings(frame, duplicates=duplicates, columns=columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _read_npz(path: Path, duplicates: Duplicates, columns: Mapping[str, str] | None) -> RatingTable:
    from scipy.sparse import load_npz

    try:
        if "format" in check_archive(path):
            return RatingTable.from_matrix(load_npz(path), duplicates=duplicates)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = find_columns(list(arrays), columns)
            return RatingTable.of(*(arrays[name] for name in found.values()), duplicates=duplicates)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (OSError, *READER_ERRORS) as error:
        raise DataError(f"{path} cannot be read as arrays: {error}") from error
