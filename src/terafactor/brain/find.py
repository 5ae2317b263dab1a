"""Find images: expand globs and folders of BIDS derivatives."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from terafactor.brain.surfaces import hemisphere_files
from terafactor.data.open import files_matching
from terafactor.errors import DataError

logger = logging.getLogger("terafactor")

PATTERNS = ("*_bold.nii.gz", "*_bold.nii", "*_bold.dtseries.nii", "*_bold.ptseries.nii", "*hemi-L*_bold.func.gii")
"""Names of the series in a BIDS folder."""

HEMISPHERE = re.compile(r"hemi-[LR][^/]*\.gii(\.gz)?$")
"""Names of the files of one hemisphere."""

SPACE_ENTITY = re.compile(r"_(space|cohort|res|den)-[A-Za-z0-9]+")
"""Parts of a name that define the space of an image."""


def find_images(inputs: Any) -> list[Any]:
    """Return paths and images as a flat list, with globs and folders of BIDS derivatives expanded.

    Parameters
    ----------
    inputs : path, glob, folder, image, or sequence of these
    """
    found = _without_second_hemispheres(list(_expand(inputs)))
    if not found:
        raise DataError("no images: got an empty list; pass paths, a glob or a folder of BIDS derivatives")
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
        unreadable = _unreadable_folders(path)
        try:
            found = files_matching(path)
        except DataError as error:
            raise DataError(f"{error}{_without_permission(unreadable)}") from error
        _warn_skipped(unreadable)
        return found
    try:
        os.stat(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    return [path]


def _series_in(folder: Path) -> list[str]:
    """Return the series in a BIDS folder, only preprocessed ones if there are any; refuse series in several spaces."""
    found, unreadable = [], list[str]()
    for root, _, names in os.walk(folder, onerror=lambda error: unreadable.append(error.filename)):
        matching = {name for pattern in PATTERNS for name in fnmatch.filter(names, pattern)}
        found += [os.path.join(root, name) for name in matching]
    if not found:
        raise DataError(
            f"{folder} has no series, named {', '.join(PATTERNS)}{_without_permission(unreadable)}: pass a glob"
        )
    _warn_skipped(unreadable)
    found.sort()
    found = [path for path in found if "_desc-preproc_" in path] or found
    spaces = sorted({"".join(match[0] for match in SPACE_ENTITY.finditer(Path(path).name)) for path in found})
    if len(spaces) > 1:
        raise DataError(
            f"{folder} has series in several spaces ({', '.join(spaces)}): select one with a glob, "
            f"such as {folder}/**/*{spaces[-1]}*_bold.nii.gz"
        )
    return found


def _unreadable_folders(pattern: str) -> list[str]:
    """Return the folders matched by a glob that cannot be listed or entered."""
    parts, found = Path(pattern).parts, set[str]()
    for depth in range(1, len(parts)):
        needed = os.R_OK if glob.has_magic(parts[depth]) else os.X_OK
        for folder in glob.glob(os.path.join(*parts[:depth]), recursive=True):
            if os.path.isdir(folder) and not os.access(folder, needed):
                found.add(os.path.normpath(folder))
    return sorted(found)


def _warn_skipped(folders: list[str]) -> None:
    if folders:
        logger.warning("skipped%s", _without_permission(folders).removeprefix(";"))


def _without_permission(folders: list[str]) -> str:
    """Return the end of a message that names folders; empty if there are none."""
    return f"; {len(folders)} folder(s) without read permission: {', '.join(sorted(folders))}" if folders else ""


def _without_second_hemispheres(inputs: list[Any]) -> list[Any]:
    """Return the inputs without the second file of each pair of hemispheres: opening the first reads both."""
    kept: list[Any] = []
    covered: set[Path] = set()
    for given in inputs:
        path = Path(given) if isinstance(given, str) and HEMISPHERE.search(given) else None
        if path is None or path not in covered:
            kept.append(given)
            covered.update({*hemisphere_files(path)} - {path} if path else ())
    return kept
