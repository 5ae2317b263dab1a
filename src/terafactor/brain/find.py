"""Which images are meant: paths, globs, folders of BIDS derivatives, images in memory."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from terafactor.brain.surfaces import twin_files
from terafactor.data.open import files_matching
from terafactor.errors import DataError

PATTERNS = ("*_bold.nii.gz", "*_bold.nii", "*_bold.dtseries.nii", "*_bold.ptseries.nii", "*hemi-L*_bold.func.gii")
"""Files of a BIDS folder that hold series."""

SURFACE = re.compile(r"hemi-[LR][^/]*\.gii(\.gz)?$")
"""Files that hold one hemisphere."""

SPACE = re.compile(r"_(space|cohort|res|den)-[A-Za-z0-9]+")


def find_images(things: Any) -> list[Any]:
    """Return images as a flat list: globs are expanded, and folders searched for the series of BIDS derivatives.

    Parameters
    ----------
    things : path, glob, folder, image, or sequence of these
    """
    found = _without_twins(list(_found(things)))
    if not found:
        raise DataError("there is no image: an empty list was given")
    return found


def _found(things: Any) -> Iterator[Any]:
    if isinstance(things, str | os.PathLike):
        yield from _found_at(os.fspath(things))
    elif isinstance(things, Iterable) and not hasattr(things, "shape"):  # images and arrays have one
        for thing in things:
            yield from _found(thing)
    else:
        yield things


def _found_at(text: str) -> list[str]:
    if os.path.isdir(text):
        return _in_folder(Path(text))
    if glob.has_magic(text) and not os.path.lexists(text):
        return files_matching(text)
    if not os.path.exists(text):
        raise DataError(f"{text} does not exist")
    return [text]


def _in_folder(folder: Path) -> list[str]:
    """Return the preprocessed series of a BIDS folder, or all its series when none is marked so; one space only."""
    found = sorted(str(path) for pattern in PATTERNS for path in folder.rglob(pattern))
    if not found:
        raise DataError(f"{folder} holds no series: none of {', '.join(PATTERNS)} is in it; give a glob")
    found = [path for path in found if "_desc-preproc_" in path] or found
    spaces = sorted({"".join(match[0] for match in SPACE.finditer(Path(path).name)) for path in found})
    if len(spaces) > 1:
        raise DataError(
            f"{folder} holds series in several spaces ({', '.join(spaces)}): choose one by a glob, "
            f"such as {folder}/**/*{spaces[-1]}*_bold.nii.gz"
        )
    return found


def _without_twins(things: list[Any]) -> list[Any]:
    """Return images with one per surface image: the file of the first hemisphere stands for both."""
    kept: list[Any] = []
    covered: set[Path] = set()
    for thing in things:
        path = Path(thing) if isinstance(thing, str) and SURFACE.search(thing) else None
        if path is None or path not in covered:
            kept.append(thing)
            covered.update({*twin_files(path)} - {path} if path else ())
    return kept
