"""Series to regress out of each image: given, or found beside it as fMRIPrep leaves them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Indices
from terafactor.brain.kinds import name_of
from terafactor.data.sources.formats import require
from terafactor.errors import DataError

logger = logging.getLogger("terafactor")

ENDINGS = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
"""How the tables of new and old versions of fMRIPrep end."""

COLUMNS = re.compile(r"(trans|rot)_[xyz]|cosine\d+")
"""Columns that "auto" takes: the motion of the head, and slow drifts."""

STEADY = re.compile(r"non_steady_state_outlier\d+")
"""Columns that mark volumes from before the scanner reached its steady state, which "auto" leaves out."""

IMAGE_ONLY = re.compile(r"_(space|cohort|res|den|hemi|desc)-[A-Za-z0-9]+|_(bold|boldref)?\.[a-z.]+$|_bold$")
"""Parts of the name of an image that the table of its run does not have."""


@dataclass(frozen=True)
class Confounds:
    """What is regressed out of one image."""

    values: Any = None
    """Array, data frame or path, as :func:`nilearn.signal.clean` takes them; None: nothing."""

    kept: Indices | None = None
    """Volumes that stay; None: all of them."""

    def length(self, n_volumes: int) -> int:
        """Return how many of ``n_volumes`` stay."""
        return n_volumes if self.kept is None else len(self.kept)

    def digest(self) -> str:
        """Return what tells these confounds from others."""
        content = hashlib.sha256(b"" if self.kept is None else np.asarray(self.kept, "<i8").tobytes())
        if isinstance(self.values, str | os.PathLike):
            content.update(Path(self.values).read_bytes())
        elif self.values is not None:
            content.update(np.asarray(self.values, "<f8").tobytes())
        return content.hexdigest()


def resolve_confounds(confounds: Any, images: Sequence[Any]) -> list[Confounds]:
    """Return the confounds of each image.

    Parameters
    ----------
    confounds : None, "auto", or sequence with an entry per image
        "auto" looks beside each image for the table of fMRIPrep and takes the motion and the slow drifts from it; an
        image without one is said in the log. An entry is a path, an array or data frame, or None for nothing.
    images : sequence of paths or images
    """
    if confounds is None:
        return [Confounds()] * len(images)
    if isinstance(confounds, str) and confounds == "auto":
        found = [_beside(image) for image in images]
        _say_missing([name_of(image, number) for number, image in enumerate(images) if found[number] is None])
        return [Confounds() if path is None else _from_table(path) for path in found]
    one = isinstance(confounds, str | os.PathLike | np.ndarray) or hasattr(confounds, "columns")
    if one or not hasattr(confounds, "__len__"):
        confounds = [confounds]
    if len(confounds) != len(images):
        raise DataError(
            f"confounds has {len(confounds)} entries, but there are {len(images)} images: give one for each"
        )
    given = [_as_given(entry) for entry in confounds]
    _say_missing([name_of(image, number) for number, image in enumerate(images) if given[number].values is None])
    return given


def _as_given(entry: Any) -> Confounds:
    if entry is None or (isinstance(entry, str) and not entry):
        return Confounds()
    if isinstance(entry, str | os.PathLike):
        if not Path(entry).is_file():
            raise DataError(f"the confounds {entry} do not exist")
        return Confounds(os.fspath(entry))
    return Confounds(entry)


def _say_missing(names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        logger.warning("no confounds for %d image(s), which are cleaned without: %s", len(names), shown)


def _beside(image: Any) -> Path | None:
    """Return the table of an image's run, None when there is none."""
    if not isinstance(image, str | os.PathLike):
        return None
    path = Path(image)
    stem = IMAGE_ONLY.sub("", path.name)
    return next((table for ending in ENDINGS if (table := path.with_name(stem + ending)).is_file()), None)


def _from_table(path: Path) -> Confounds:
    """Return the motion and the drifts in a table; what is missing in the first rows is taken for zero."""
    pandas = require("pandas", extra="brain", purpose="reading confounds")
    table = pandas.read_csv(path, sep="\t", na_values="n/a")
    columns = [column for column in table if COLUMNS.fullmatch(column)]
    if not columns:
        raise DataError(f"{path} has neither motion (trans_x, ...) nor drifts (cosine00, ...): it has {list(table)}")
    outliers = table[[column for column in table if STEADY.fullmatch(column)]].to_numpy().any(axis=1)
    kept = np.flatnonzero(~outliers) if outliers.any() else None
    return Confounds(table[columns].fillna(0).to_numpy(np.float64), kept)
