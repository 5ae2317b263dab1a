"""Kinds of brain images, and the interface that each implements."""

from __future__ import annotations

import contextlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.parsers.expat import ExpatError

from terafactor._checks import check_regular
from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.data.sources.formats import READER_ERRORS, require
from terafactor.errors import DataError, DataTypeError
from terafactor.solver.state_dict import StateDict

MODULES = ("cifti", "surfaces", "volumes")
"""Modules that define a ``KIND``, in the order in which they are tried on an input."""


class ImageKind(ABC):
    """One kind of brain image. Opening an image reads its header; only :meth:`load` reads its values."""

    name: str
    """Name in error messages and model files."""

    suffix: str
    """Extension of the files that maps are written to."""

    defaults: Mapping[str, Any] = MappingProxyType({})
    """Default options of maskers of this kind, in addition to :data:`~terafactor.brain.maskers.CLEANING`."""

    @abstractmethod
    def recognizes(self, given: Any) -> bool:
        """Return whether a path or an object is an image of this kind."""

    def open(self, given: Any, mask: Any = None) -> Any:
        """Return the image at a path, or the object itself; ``mask`` may hold what the file lacks, such as a mesh."""
        if not isinstance(given, str | os.PathLike):
            return given
        for file in self.files(Path(given)):
            check_readable(file)
        return self.open_path(Path(given), mask)

    @abstractmethod
    def open_path(self, path: Path, mask: Any) -> Any:
        """Return the image at a path whose files are readable."""

    def files(self, path: Path) -> list[Path]:
        """Return the files that make up the image at a path."""
        return [path]

    @abstractmethod
    def length(self, image: Any) -> int | None:
        """Return the number of volumes; None without a time axis."""

    @abstractmethod
    def load(self, image: Any) -> tuple[Any, int]:
        """Return the image in memory with non-finite values set to zero, and the number of these values."""

    def repetition_time(self, image: Any) -> float | None:
        """Return the seconds between volumes; None if the header does not have them."""
        return None

    def background(self, image: Any, masker: Any) -> Array | None:
        """Return the mean of the first volumes (p,), to draw maps on; None if the kind has no background."""
        return None

    @abstractmethod
    def mismatch(self, image: Any, reference: Any) -> str | None:
        """Return how the space of an image differs from that of a reference, as a predicate; None if they are equal."""

    def volumes(self, masker: Any, rows: Array) -> tuple[Array, Array] | None:
        """Return rows (n, p) as volumes to draw in slices, and the voxel sizes in mm (3,); None if there are none.

        The axes of volumes (x, y, z, n) run from left to right, back to front and bottom to top, for any order in
        the files. Values outside the mask are zero.
        """
        return None

    def viewer(self, masker: Any, row: Array, background: Array | None, title: str) -> str | None:
        """Return an interactive HTML page of one map (p,), made by nilearn; None if there is none."""
        return None

    @abstractmethod
    def new_masker(self, mask: Any, options: Mapping[str, Any]) -> Any:
        """Return an unfitted masker for a mask image; None computes the mask."""

    @abstractmethod
    def fit_masker(self, masker: Any, images: Sequence[Any]) -> Any:
        """Return the fitted masker; a mask that must be computed uses some of the images."""

    @abstractmethod
    def masker_arrays(self, masker: Any) -> dict[str, Array]:
        """Return the mask of a fitted masker as arrays, for model files."""

    @abstractmethod
    def restore_masker(self, state_dict: StateDict, options: Mapping[str, Any]) -> Any:
        """Return a fitted masker from the arrays of :meth:`masker_arrays`."""

    def plain_masker(self, masker: Any) -> Any:
        """Return a fitted masker with the same mask that does not clean."""
        return self.restore_masker(StateDict({}, self.masker_arrays(masker)), {})

    @abstractmethod
    def as_files(self, image: Any, stem: Path) -> dict[Path, Any]:
        """Return the nibabel image to write to each file for an image of maps."""


@cache
def kinds() -> tuple[ImageKind, ...]:
    """Return all kinds, in the order in which they are tried."""
    return tuple(import_module(f"terafactor.brain.{module}").KIND for module in MODULES)


def kind_of(inputs: Sequence[Any]) -> ImageKind:
    """Return the kind of paths or images; raise DataError if they are of several kinds."""
    found = [_kind_of(given) for given in inputs]
    for given, kind in zip(inputs, found, strict=True):
        if kind is not found[0]:
            raise DataError(
                f"{name_of(given)} is a {kind.name}, but {name_of(inputs[0])} is a {found[0].name}: "
                "pass images of one kind"
            )
    return found[0]


def _kind_of(given: Any) -> ImageKind:
    for kind in kinds():
        if kind.recognizes(given):
            return kind
    raise DataTypeError(
        f"{name_of(given)} is not a brain image: pass .nii, .nii.gz, .dtseries.nii, .ptseries.nii or .gii files, "
        "nibabel images or nilearn's SurfaceImage"
    )


def kind_named(name: str) -> ImageKind:
    """Return the kind with the name in a model file."""
    for kind in kinds():
        if kind.name == name:
            return kind
    raise DataError(f"unknown kind of images in the model file: {name!r}; known are {[kind.name for kind in kinds()]}")


def name_of(given: Any, number: int | None = None) -> str:
    """Return the name of an image for error messages: its path, or its type and position."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    filename = getattr(given, "get_filename", lambda: None)()
    type_name = f"the {type(given).__name__}"
    return filename or (type_name if number is None else f"{type_name} number {number}")


def check_readable(path: str | os.PathLike[str]) -> None:
    """Raise DataError for a pipe or a file that cannot be opened: indexed_gzip, used by nibabel, crashes on these."""
    try:
        check_regular(os.fspath(path))
        with open(path, "rb"):
            pass
    except OSError as error:
        raise DataError(f"cannot read {os.fspath(path)}: {error.strerror}; check its path and permissions") from error


def without_icon(page: str) -> str:
    """Return an HTML page of nilearn without the icon that it fetches from the network."""
    return re.sub(r"<link[^>]*icon[^>]*>", "", page)


def nibabel() -> Any:
    """Import nibabel, from the extra ``brain``."""
    return require("nibabel", extra="brain", purpose="reading brain images")


def nilearn(module: str) -> Any:
    """Import a module of nilearn, from the extra ``brain``."""
    return require(f"nilearn.{module}", extra="brain", purpose="masking brain images")


def read_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions raised on files that are damaged, in another space or not images."""
    not_an_image, bad_header = nibabel().filebasedimages.ImageFileError, nibabel().spatialimages.HeaderDataError
    bad_axes = nibabel().cifti2.cifti2.Cifti2HeaderError
    return not_an_image, bad_header, bad_axes, ExpatError, OSError, *READER_ERRORS


def check_image_size(path: str) -> None:
    """Refuse a NIfTI or CIFTI file that claims too much: nibabel allocates it before it finds less in the file."""
    if path.endswith((".nii", ".nii.gz")):
        stored = nibabel().load(path).dataobj
        check_size(math.prod(stored.shape) * stored.dtype.itemsize, path, max_bytes())


@contextlib.contextmanager
def naming_image(name: str) -> Iterator[None]:
    """Convert exceptions raised while reading an image to a DataError that names it."""
    try:
        yield
    except read_errors() as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"cannot read {name} ({reason}): it may be truncated or damaged; download it again") from error
