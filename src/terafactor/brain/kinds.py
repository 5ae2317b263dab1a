"""What a kind of brain image is to the rest: recognised, opened, masked, kept in model files, written."""

from __future__ import annotations

import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data.sources.formats import require
from terafactor.errors import DataError, DataTypeError, ParameterError
from terafactor.solver.state_dict import StateDict

MODULES = ("cifti", "surfaces", "volumes")
"""Files of this folder that declare a ``KIND``; the first that recognises an image opens it."""

CLEANING = {"standardize": "zscore_sample", "detrend": True}
"""What is done to each voxel's series unless asked otherwise, as in nilearn's ``DictLearning``."""


NOT_OF_THE_DATA = ("memory", "memory_level", "verbose", "n_jobs", "reports", "cmap", "mask_img", "mask_args", "runs")
"""Options of maskers that do not change what a fitted one returns."""


OPTIONS_IN_FILES = (
    "clean_args", "detrend", "dtype", "high_pass", "high_variance_confounds", "low_pass", "mask_strategy",
    "smoothing_fwhm", "standardize", "standardize_confounds", "t_r", "target_affine", "target_shape",
)  # fmt: skip
"""Options of maskers that a model file may hold. Any other could make nilearn do more than arithmetic: ``memory`` makes
it load pickles from a folder that the sender of a file chooses."""


class ImageKind(ABC):
    """One kind of brain image. An image here is opened, but its numbers are read by :meth:`load` only."""

    name: str
    """What errors call it."""

    suffix: str
    """How the files end that maps are written to."""

    defaults: Mapping[str, Any] = MappingProxyType({})
    """Options that maskers of this kind take beyond ``CLEANING`` unless asked otherwise."""

    @abstractmethod
    def owns(self, thing: Any) -> bool:
        """Whether a path or an object is an image of this kind."""

    @abstractmethod
    def open(self, thing: Any, mask: Any) -> Any:
        """Return the image of a path, or the object itself; ``mask`` may tell what the file does not."""

    def files(self, path: Path) -> list[Path]:
        """Return the files that the image of a path is in."""
        return [path]

    @abstractmethod
    def length(self, image: Any) -> int | None:
        """Return the number of images in time; None when there is no time axis."""

    @abstractmethod
    def load(self, image: Any) -> tuple[Any, int]:
        """Return the image with its numbers in memory, not finite ones set to zero, and how many these were."""

    def repetition_time(self, image: Any) -> float | None:
        """Return the seconds between two images in time, where the header tells them."""
        return None

    def background(self, image: Any, masker: Any) -> Array | None:
        """Return the mean of a few images at each place that the masker keeps (p,), to draw maps on; None: nothing."""
        return None

    @abstractmethod
    def mismatch(self, image: Any, reference: Any) -> str | None:
        """Say how an image lies otherwise than a reference, as the end of a sentence; None when it does not."""

    def volumes(self, masker: Any, rows: Array) -> tuple[Array, Array] | None:
        """Return rows (n, p) as volumes to be drawn on slices, and the sizes of voxels in mm (3,); None: no such.

        Volumes (x, y, z, n) go from left to right, from back to front and from bottom to top, however images are
        stored, and are zero outside the mask.
        """
        return None

    def viewer(self, masker: Any, row: Array, background: Array | None, title: str) -> str | None:
        """Return a page that shows one map (p,) in three dimensions, by nilearn; None: there is none."""
        return None

    @abstractmethod
    def new_masker(self, mask: Any, options: Mapping[str, Any]) -> Any:
        """Return a masker for a mask image, or None for one that computes it."""

    @abstractmethod
    def fit_masker(self, masker: Any, images: Sequence[Any]) -> Any:
        """Return the masker fitted, on a few of the images when it has to compute its mask."""

    @abstractmethod
    def masker_arrays(self, masker: Any) -> dict[str, Array]:
        """Return the mask of a fitted masker as arrays, for model files."""

    @abstractmethod
    def masker_from(self, state_dict: StateDict, options: Mapping[str, Any]) -> Any:
        """Return the fitted masker that a model file holds."""

    @abstractmethod
    def as_files(self, image: Any, stem: Path) -> dict[Path, Any]:
        """Return the files beside ``stem`` that an image of maps goes to, and the nibabel image for each."""


@cache
def kinds() -> tuple[ImageKind, ...]:
    """Return the kinds in the order in which they are asked."""
    return tuple(import_module(f"terafactor.brain.{module}").KIND for module in MODULES)


def kind_of(things: Sequence[Any]) -> ImageKind:
    """Return the kind of all of some images, refusing a mixture."""
    found = [_kind_of(thing) for thing in things]
    for thing, kind in zip(things, found, strict=True):
        if kind is not found[0]:
            raise DataError(
                f"{name_of(thing)} is a {kind.name}, but {name_of(things[0])} is a {found[0].name}: "
                "an atlas is learned from images of one kind"
            )
    return found[0]


def _kind_of(thing: Any) -> ImageKind:
    for kind in kinds():
        if kind.owns(thing):
            return kind
    raise DataTypeError(
        f"{name_of(thing)} is no brain image; understood are .nii, .nii.gz, .dtseries.nii, .ptseries.nii and .gii "
        "files, nibabel images and nilearn's SurfaceImage"
    )


def kind_named(name: str) -> ImageKind:
    """Return the kind that a model file names."""
    for kind in kinds():
        if kind.name == name:
            return kind
    raise DataError(f"the file is of images of kind {name!r}, which is none of {[kind.name for kind in kinds()]}")


def name_of(thing: Any, number: int | None = None) -> str:
    """Return what errors call an image: its path, or its place among those given."""
    if isinstance(thing, str | os.PathLike):
        return os.fspath(thing)
    held = getattr(thing, "get_filename", lambda: None)()
    what = f"the {type(thing).__name__}"
    return held or (what if number is None else f"{what} number {number}")


def make_masker(kind: ImageKind, mask: Any, images: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return a fitted masker: a copy of one that was given, or one for a mask image, or one that computes its mask.

    Parameters
    ----------
    kind : ImageKind
    mask : masker, mask image, path of one, or None
    images : sequence of images
        Opened ones, all alike.
    options : mapping
        Handed to the masker; what is not named is as ``CLEANING`` has it, or as the masker given has it.
    """
    if hasattr(mask, "transform"):
        from sklearn.base import clone

        masker = clone(mask)
        if masker.get_params().get("mask_img") is None and hasattr(mask, "mask_img_"):
            masker.set_params(mask_img=mask.mask_img_)
        _check_options(masker, options)
        masker.set_params(**options)
    else:
        masker = kind.new_masker(mask, {})
        _check_options(masker, options)
        masker.set_params(**_defaults(kind, options), **options)
    _tell_repetition_time(kind, masker, images)
    try:
        fitted = kind.fit_masker(masker, images)
    except unreadable() as error:
        raise DataError(_why_no_mask(kind, masker, images, error)) from error
    if n_features(fitted) == 0:
        raise DataError("the mask is empty: it leaves nothing of the images; give another one")
    return fitted


def _tell_repetition_time(kind: ImageKind, masker: Any, images: Sequence[Any]) -> None:
    """Let a masker that filters know the time between volumes, from the headers unless it was given."""
    given = masker.get_params(deep=False)
    filters = [name for name in ("low_pass", "high_pass") if given.get(name) is not None]
    if not filters or given.get("t_r") is not None:
        return
    times = {kind.repetition_time(image) for image in images}
    if len(times) > 1 or None in times:
        told = ", ".join("no time" if time is None else f"{time:g} s" for time in sorted(times, key=str))
        raise ParameterError(
            f"{' and '.join(filters)} needs the time between volumes, and the headers of the images tell {told}: "
            "say t_r=2 (--set t_r=2) for 2 seconds"
        )
    masker.set_params(t_r=times.pop())


def _why_no_mask(kind: ImageKind, masker: Any, images: Sequence[Any], error: Exception) -> str:
    """Return what is wrong with the mask that was given, or which image it cannot be computed from."""
    for number, image in enumerate(images) if masker.get_params(deep=False).get("mask_img") is None else ():
        try:
            kind.fit_masker(masker, [image])
        except unreadable() as reason:
            return (
                f"no mask can be computed from {name_of(image, number)} ({reason}): "
                "it may be cut short or damaged; fetch it again, or give a mask"
            )
    return f"the mask cannot be used: {error}"


def n_features(masker: Any) -> int:
    """Return how many voxels, vertices or parcels a fitted masker keeps."""
    return int(masker.n_elements_)


def masker_options(masker: Any) -> dict[str, Any]:
    """Return the options of a masker that change what it returns, arrays as lists, which files can hold."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in masker.get_params(deep=False).items()
        if name not in NOT_OF_THE_DATA
    }


def options_in_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a masker that a file holds, refusing those that are not plain numbers and words of a list."""
    kept = {name: value for name, value in options.items() if name not in NOT_OF_THE_DATA}
    odd = sorted(name for name, value in kept.items() if name not in OPTIONS_IN_FILES or not _is_plain(value))
    if odd:
        raise DataError(
            f"the file has options for maskers that no model file of ours has: {', '.join(odd)}; "
            f"it may hold {', '.join(OPTIONS_IN_FILES)}, as plain values"
        )
    return kept


def _is_plain(value: Any) -> bool:
    """Whether a value consists of numbers, texts, True, False and None."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def mask_series(masker: Any, image: Any, confounds: Any, sample_mask: Any) -> Array:
    """Return what a fitted masker makes of one image in memory (n, p)."""
    series = masker.transform_single_imgs(image, confounds=confounds, sample_mask=sample_mask)
    return np.atleast_2d(np.asarray(series))


def offline(page: str) -> str:
    """Return a page of nilearn without the icon that it fetches from the network."""
    return re.sub(r"<link[^>]*icon[^>]*>", "", page)


def nibabel() -> Any:
    """Return the package, or name the extra that brings it."""
    return require("nibabel", extra="brain", purpose="reading brain images")


def nilearn(module: str) -> Any:
    """Return a module of nilearn, or name the extra that brings it."""
    return require(f"nilearn.{module}", extra="brain", purpose="masking brain images")


def unreadable() -> tuple[type[Exception], ...]:
    """Return what is raised on images that are none, are damaged or do not fit."""
    no_image = nibabel().filebasedimages.ImageFileError
    return no_image, AttributeError, ValueError, TypeError, OSError, EOFError, zlib.error


def _defaults(kind: ImageKind, options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**CLEANING, **kind.defaults}.items() if name not in options}


def _check_options(masker: Any, options: Mapping[str, Any]) -> None:
    known = set(masker.get_params(deep=False)) - {"mask_img"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ParameterError(
            f"{', '.join(unknown)} is neither a parameter of BrainDictionaryLearning nor an option of "
            f"{type(masker).__name__}, which has {', '.join(sorted(known))}"
        )
