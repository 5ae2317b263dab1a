"""Find images: expand globs and folders of BIDS derivatives."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from terafactor.brain.surfaces import hemisphere_files
from terafactor.data.open import files_matching
from terafactor.errors import DataError

PATTERNS = ("*_bold.nii.gz", "*_bold.nii", "*_bold.dtseries.nii", "*_bold.ptseries.nii", "*hemi-L*_bold.func.gii")
"""Names of the series in a BIDS folder."""

HEMISPHERE = re.compile(r"hemi-[LR][^/]*\.gii(\.gz)?$")
"""Names of the files of one hemisphere."""

SPACE = re.compile(r"_(space|cohort|res|den)-[A-Za-z0-9]+")
"""Parts of a name that define the space of an image."""


def find_images(inputs: Any) -> list[Any]:
    """Return paths and images as a flat list, with globs and folders of BIDS derivatives expanded.

    Parameters
    ----------
    inputs : path, glob, folder, image, or sequence of these
    """
    found = _without_second_hemispheres(list(_expand(inputs)))
    if not found:
        raise DataError("no images: got an empty list")
    return found


def _expand(inputs: Any) -> Iterator[Any]:
    if isinstance(inputs, str | os.PathLike):
        yield from _expand_path(os.fspath(inputs))
    elif isinstance(inputs, Iterable) and not hasattr(inputs, "shape"):  # images and arrays have a shape
        for each in inputs:
            yield from _expand(each)
    else:
        yield inputs


def _expand_path(path: str) -> list[str]:
    if os.path.isdir(path):
        return _series_in(Path(path))
    if glob.has_magic(path) and not os.path.lexists(path):
        return files_matching(path)
    if not os.path.exists(path):
        raise DataError(f"{path} does not exist")
    return [path]


def _series_in(folder: Path) -> list[str]:
    """Return the preprocessed series in a BIDS folder, or all series if none is marked so, in one space."""
    found = sorted(str(path) for pattern in PATTERNS for path in folder.rglob(pattern))
    if not found:
        raise DataError(f"{folder} has no series, named {', '.join(PATTERNS)}: pass a glob")
    found = [path for path in found if "_desc-preproc_" in path] or found
    spaces = sorted({"".join(match[0] for match in SPACE.finditer(Path(path).name)) for path in found})
    if len(spaces) > 1:
        raise DataError(
            f"{folder} has series in several spaces ({', '.join(spaces)}): select one with a glob, "
            f"such as {folder}/**/*{spaces[-1]}*_bold.nii.gz"
        )
    return found


def _without_second_hemispheres(inputs: list[Any]) -> list[Any]:
    """Return the inputs with one file per pair of hemispheres, the first, since opening it reads both."""
    kept: list[Any] = []
    covered: set[Path] = set()
    for given in inputs:
        path = Path(given) if isinstance(given, str) and HEMISPHERE.search(given) else None
        if path is None or path not in covered:
            kept.append(given)
            covered.update({*hemisphere_files(path)} - {path} if path else ())
    return kept
