"""Maskers: how the options of a user, the headers of images and model files become a fitted nilearn masker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from terafactor.brain.kinds import ImageKind, check_readable, name_of, read_errors
from terafactor.errors import DataError, ParameterError

CLEANING = {"standardize": "zscore_sample", "detrend": True}
"""Default cleaning of the series of each voxel, as in nilearn's ``DictLearning``."""

NEUTRAL_OPTIONS = (
    "memory", "memory_level", "verbose", "n_jobs", "reports", "cmap", "mask_img", "mask_args", "runs",
)  # fmt: skip
"""Options of maskers that do not change the output of a fitted one; model files do not hold them."""

SAVED_OPTIONS = (
    "clean_args", "detrend", "dtype", "high_pass", "high_variance_confounds", "low_pass", "mask_strategy",
    "smoothing_fwhm", "standardize", "standardize_confounds", "t_r", "target_affine", "target_shape",
)  # fmt: skip
"""Options of maskers that a model file may hold. Others could make nilearn run code: with ``memory``, it loads pickles
from a folder that the author of the file chooses."""


def make_masker(kind: ImageKind, mask: Any, images: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return a fitted masker: a copy of a given one, one with a given mask, or one that computes its mask.

    Parameters
    ----------
    kind : ImageKind
    mask : masker, mask image, path of one, or None
    images : sequence of images
        Opened, all in one space.
    options : mapping
        Options of the masker; the defaults of the others are ``CLEANING``, or those of the given masker.
    """
    if hasattr(mask, "transform"):
        masker, defaults = clone(mask), {}
        if masker.get_params().get("mask_img") is None and hasattr(mask, "mask_img_"):
            masker.set_params(mask_img=mask.mask_img_)
    else:
        masker, defaults = kind.new_masker(mask, {}), {**CLEANING, **kind.defaults}
    mask_img = masker.get_params(deep=False).get("mask_img")
    if isinstance(mask_img, str | os.PathLike):
        check_readable(mask_img)
    _check_options(masker, options)
    masker.set_params(**{**defaults, **options})
    _set_repetition_time(kind, masker, images)
    try:
        fitted = kind.fit_masker(masker, images)
    except read_errors() as error:
        raise DataError(_explain_failure(kind, masker, images, error)) from error
    if fitted.n_elements_ == 0:
        raise DataError("the mask is empty: pass another mask")
    return fitted


def _check_options(masker: Any, options: Mapping[str, Any]) -> None:
    known = set(masker.get_params(deep=False)) - {"mask_img"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ParameterError(
            f"{', '.join(unknown)} is neither a parameter of BrainDictionaryLearning nor an option of "
            f"{type(masker).__name__}, which has {', '.join(sorted(known))}"
        )


def _set_repetition_time(kind: ImageKind, masker: Any, images: Sequence[Any]) -> None:
    """Set ``t_r`` of a masker that filters from the headers, unless it was given."""
    options = masker.get_params(deep=False)
    filters = [name for name in ("low_pass", "high_pass") if options.get(name) is not None]
    if not filters or options.get("t_r") is not None:
        return
    times = {kind.repetition_time(image) for image in images}
    if len(times) > 1 or None in times:
        found = ", ".join("no time" if time is None else f"{time:g} s" for time in sorted(times, key=str))
        raise ParameterError(
            f"{' and '.join(filters)} needs one time between volumes, and the headers of the images have {found}: "
            "pass t_r=2 (--set t_r=2) for 2 seconds"
        )
    masker.set_params(t_r=times.pop())


def _explain_failure(kind: ImageKind, masker: Any, images: Sequence[Any], error: Exception) -> str:
    """Return an error message that names the image from which no mask can be computed, or the given mask."""
    for number, image in enumerate(images) if masker.get_params(deep=False).get("mask_img") is None else ():
        try:
            kind.fit_masker(masker, [image])
        except read_errors() as reason:
            return (
                f"no mask can be computed from {name_of(image, number)} ({reason}): "
                "it may be truncated or damaged; download it again, or pass a mask"
            )
    return f"the mask cannot be used: {error}"


def masker_options(masker: Any) -> dict[str, Any]:
    """Return the options of a masker that change its output, with arrays as lists."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in masker.get_params(deep=False).items()
        if name not in NEUTRAL_OPTIONS
    }


def check_saved_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a masker in a model file; raise DataError unless they are known and plain."""
    kept = {name: value for name, value in options.items() if name not in NEUTRAL_OPTIONS}
    invalid = sorted(name for name, value in kept.items() if name not in SAVED_OPTIONS or not _is_plain(value))
    if invalid:
        raise DataError(
            f"invalid options of a masker in the model file: {', '.join(invalid)}; valid are "
            f"{', '.join(SAVED_OPTIONS)}, with plain values"
        )
    return kept


def _is_plain(value: Any) -> bool:
    """Return whether a value consists of numbers, strings, booleans and None."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
