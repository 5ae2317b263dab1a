"""Confounds: series to regress out of each image, given or read from the tables of fMRIPrep."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.brain.kinds import check_readable, name_of
from terafactor.data.sources.formats import READER_ERRORS, require
from terafactor.errors import DataError

logger = logging.getLogger("terafactor")

TABLE_SUFFIXES = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
"""Suffixes of the tables of new and old versions of fMRIPrep."""

AUTO_COLUMNS = re.compile(r"(trans|rot)_[xyz]|cosine\d+")
"""Columns that "auto" regresses out: head motion and slow drifts."""

NON_STEADY_COLUMNS = re.compile(r"non_steady_state_outlier\d+")
"""Columns that mark volumes before the steady state, which "auto" drops."""

IMAGE_ENTITIES = re.compile(r"_(space|cohort|res|den|hemi|desc)-[A-Za-z0-9]+|_(bold|boldref)?\.[a-z.]+$|_bold$")
"""Parts of the name of an image that are absent from the name of its table."""

MAX_NAMES = 5
"""Number of images that a warning names."""

CONFOUNDS_SETTINGS = (None, "auto", "given")
"""Confounds of a fit, as model files name them: none, from the tables of fMRIPrep, or passed by the user."""


@dataclass(frozen=True)
class Confounds:
    """Confounds of one image."""

    values: Any = None
    """Array, data frame or path, as in :func:`nilearn.signal.clean`; None regresses nothing out."""

    sample_mask: Indices | None = None
    """Volumes to keep; None keeps all."""

    global_signal: bool = False
    """Whether to regress out the mean over voxels as well."""

    def length(self, n_volumes: int) -> int:
        """Return how many of ``n_volumes`` are kept."""
        return n_volumes if self.sample_mask is None else len(self.sample_mask)

    def digest(self) -> str:
        """Return a digest that identifies the confounds."""
        content = hashlib.sha256(b"" if self.sample_mask is None else np.asarray(self.sample_mask, "<i8").tobytes())
        if isinstance(self.values, str | os.PathLike):
            content.update(Path(self.values).read_bytes())
        elif self.values is not None:
            content.update(np.asarray(self.values, "<f8").tobytes())
        if self.global_signal:
            content.update(b"global signal")
        return content.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the fields with an absolute path or an array of values, for another process."""
        values = self.values
        if isinstance(values, str | os.PathLike):
            values = os.path.abspath(values)
        elif values is not None:
            values = np.asarray(values)
        return {"values": values, "sample_mask": self.sample_mask, "global_signal": self.global_signal}


def resolve_confounds(confounds: Any, images: Sequence[Any], *, global_signal: bool = False) -> list[Confounds]:
    """Return the confounds of each image; log a warning with the names of images that have none.

    Parameters
    ----------
    confounds : None, False, "auto", or sequence with an entry per image
        None and False mean no confounds. "auto" reads head motion and slow drifts from the table of fMRIPrep in the
        folder of each image. An entry is a path, an array, a data frame, or None for no confounds.
    images : sequence of paths or images
    global_signal : bool
        Whether the mean over voxels is also a confound of each image.
    """
    if confounds_setting(confounds) is None:
        return [Confounds(global_signal=global_signal)] * len(images)
    if confounds_setting(confounds) == "auto":
        tables = [_find_table(image) for image in images]
        found = [Confounds() if table is None else _read_table(table) for table in tables]
    else:
        is_single = isinstance(confounds, str | os.PathLike | np.ndarray) or hasattr(confounds, "columns")
        entries = [confounds] if is_single or not hasattr(confounds, "__len__") else confounds
        if len(entries) != len(images):
            raise DataError(
                f"confounds has {len(entries)} entries for {len(images)} images: pass one for each image, or None"
            )
        found = [_check_entry(entry) for entry in entries]
    missing = [name_of(image, number) for number, image in enumerate(images) if found[number].values is None]
    if missing:
        shown = ", ".join(missing[:MAX_NAMES]) + (", ..." if len(missing) > MAX_NAMES else "")
        logger.warning("no confounds for %d image(s), which are cleaned without: %s", len(missing), shown)
    return [replace(entry, global_signal=global_signal) for entry in found]


def confounds_setting(confounds: Any) -> str | None:
    """Return which of ``CONFOUNDS_SETTINGS`` the argument of a fit is."""
    if confounds is None or confounds is False:
        return None
    return "auto" if isinstance(confounds, str) and confounds == "auto" else "given"


def _check_entry(entry: Any) -> Confounds:
    if entry is None or (isinstance(entry, str) and not entry):
        return Confounds()
    if isinstance(entry, str | os.PathLike):
        check_readable(entry)
        return Confounds(os.fspath(entry))
    return Confounds(entry)


def _find_table(image: Any) -> Path | None:
    """Return the table of fMRIPrep for the run of an image; None if there is none."""
    if not isinstance(image, str | os.PathLike):
        return None
    path = Path(image)
    stem = IMAGE_ENTITIES.sub("", path.name)
    return next((table for suffix in TABLE_SUFFIXES if (table := path.with_name(stem + suffix)).is_file()), None)


def _read_table(path: Path) -> Confounds:
    """Return the motion and the drifts in a table; missing values, such as those of the first row, become zero."""
    check_readable(path)
    pandas = require("pandas", extra="brain", purpose="reading confounds")
    try:
        table = pandas.read_csv(path, sep="\t", na_values="n/a")
    except READER_ERRORS as error:
        raise DataError(f"{path} is not a table of confounds separated by tabs: {error}; write it again") from error
    columns = [column for column in table if AUTO_COLUMNS.fullmatch(column)]
    if not columns:
        raise DataError(
            f"{path} has no columns for motion (trans_x, ...) or drifts (cosine00, ...), only {list(table)}: "
            "pass the confounds of each image instead of 'auto'"
        )
    outliers = [column for column in table if NON_STEADY_COLUMNS.fullmatch(column)]
    kept = ~_numbers(table[outliers], path).any(axis=1)
    return Confounds(_numbers(table[columns], path), None if kept.all() else np.flatnonzero(kept))


def _numbers(table: Any, path: Path) -> Array:
    """Return columns of a table as numbers, missing ones as zero; raise DataError for text or infinity."""
    try:
        numbers = table.fillna(0).to_numpy(np.float64)
    except READER_ERRORS as error:
        raise DataError(f"{path} has confounds that are not numbers: {error}; correct or remove them") from error
    if not np.isfinite(numbers).all():
        raise DataError(f"{path} has infinite confounds: correct or remove them")
    return numbers
