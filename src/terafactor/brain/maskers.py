"""Build fitted nilearn maskers from options, image headers or model files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from terafactor._typing import Array
from terafactor.brain.kinds import ImageKind, check_image_size, check_readable, name_of, read_errors
from terafactor.errors import DataError, ParameterError
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.state_dict import StateDict

CLEANING = {"standardize": "zscore_sample", "detrend": True}
"""Default cleaning of the series of each voxel, as in nilearn's ``DictLearning``."""

NEUTRAL_OPTIONS = (
    "memory", "memory_level", "verbose", "n_jobs", "reports", "cmap", "mask_img", "mask_args", "runs",
)  # fmt: skip
"""Options that do not change the output of a fitted masker; they are not in model files."""

MAX_WIDTH = 1000.0
"""Largest width of smoothing in a model file, in millimeters: the memory of a filter grows with it."""

SAVED_OPTIONS: Mapping[str, Sequence[type]] = {
    "clean_args": (),
    "detrend": (bool,),
    "dtype": (str,),
    "high_pass": (float,),
    "high_variance_confounds": (bool,),
    "low_pass": (float,),
    "mask_strategy": (str,),
    "smoothing_fwhm": (float, str, list),
    "standardize": (bool, str),
    "standardize_confounds": (bool, str),
    "t_r": (float,),
    "target_affine": (list,),
    "target_shape": (list,),
}
"""Options of maskers allowed in a model file, with the types of their values other than None. Others could make
nilearn run code: ``memory``, for example, loads pickles from a folder that the author of the file chooses."""

CLEAN_ARGS = re.compile(r"filter|ensure_finite|extrapolate|butterworth__\w+")
"""Entries of ``clean_args`` that a model file may hold, with plain values."""


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
    is_path = isinstance(mask_img, str | os.PathLike)
    if is_path:
        check_readable(mask_img)
    _check_options(masker, options)
    masker.set_params(**{**defaults, **options})
    _set_repetition_time(kind, masker, images)
    try:
        if is_path:
            check_image_size(os.fspath(mask_img))
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
            f"{type(masker).__name__}: use one of {', '.join(sorted(known))}"
        )


def _set_repetition_time(kind: ImageKind, masker: Any, images: Sequence[Any]) -> None:
    """Set ``t_r`` of a masker with filters to the time in the headers, unless it was given."""
    options = masker.get_params(deep=False)
    filters = [name for name in ("low_pass", "high_pass") if options.get(name) is not None]
    if not filters or options.get("t_r") is not None:
        return
    times = {_repetition_time(kind, image, number) for number, image in enumerate(images)}
    if len(times) > 1 or None in times:
        found = ", ".join("no time" if time is None else f"{time:g} s" for time in sorted(times, key=str))
        raise ParameterError(
            f"{' and '.join(filters)} needs one time between volumes, but the headers of the images have {found}: "
            "set it, for example t_r=2 (--set t_r=2) for 2 seconds"
        )
    masker.set_params(t_r=times.pop())


def _repetition_time(kind: ImageKind, image: Any, number: int) -> float | None:
    """Return the seconds between the volumes of an image; raise DataError for a damaged header."""
    try:
        return kind.repetition_time(image)
    except read_errors() as error:
        raise DataError(
            f"the header of {name_of(image, number)} has no valid time between volumes ({error}): pass t_r=2 "
            "(--set t_r=2) for 2 seconds"
        ) from error


def _explain_failure(kind: ImageKind, masker: Any, images: Sequence[Any], error: Exception) -> str:
    """Return an error message that names the image that gives no mask, or the given mask."""
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


def saved_options(masker: Any) -> dict[str, Any]:
    """Return the options of a masker as plain values, for model files."""
    options = masker_options(masker)
    if options.get("dtype") not in (None, "auto"):
        options["dtype"] = np.dtype(options["dtype"]).name
    return plain_parameters(options)


def describe_masker(kind: ImageKind, masker: Any) -> dict[str, Any] | None:
    """Return the arguments of :func:`open_masker` for a fitted masker; None for a user-defined class."""
    if not isinstance(kind.new_masker(None, {}), type(masker)):
        return None
    runs = getattr(masker, "runs", None)
    options = saved_options(masker) | ({} if runs is None else {"runs": np.asarray(runs)})
    return {"mask": kind.masker_arrays(masker), "options": options}


def open_masker(kind: ImageKind, mask: Mapping[str, Array], options: Mapping[str, Any]) -> Any:
    """Return the fitted masker that :func:`describe_masker` described."""
    return kind.restore_masker(StateDict({}, mask), options)


def check_saved_options(options: Mapping[str, Any], kind: ImageKind | None = None) -> dict[str, Any]:
    """Return the options of a masker in a model file, without neutral ones.

    Raise DataError for other options than ``SAVED_OPTIONS``, for values of other types and, given a kind of images, for
    options that its maskers do not have.
    """
    kept = {name: value for name, value in options.items() if name not in NEUTRAL_OPTIONS}
    known = SAVED_OPTIONS.keys() if kind is None else SAVED_OPTIONS.keys() & kind.new_masker(None, {}).get_params()
    invalid = [name for name, value in sorted(kept.items()) if name not in known or not _is_valid(name, value)]
    if invalid:
        maskers = "maskers" if kind is None else f"maskers of images of kind {kind.name!r}"
        found = ", ".join(f"{name}={kept[name]!r}" for name in invalid)
        raise DataError(
            f"invalid options of a masker in the model file: {found}; {maskers} take plain values of "
            f"{', '.join(sorted(known))}"
        )
    return kept


def _is_valid(name: str, value: Any) -> bool:
    if name == "dtype" and isinstance(value, str) and value != "auto":
        try:
            return np.dtype(value).kind in "fiu"
        except TypeError:
            return False
    if name == "clean_args" and isinstance(value, Mapping):
        return all(
            CLEAN_ARGS.fullmatch(str(argument)) and _has_type(each, (bool, float, str))
            for argument, each in value.items()
        )
    if not _has_type(value, SAVED_OPTIONS[name]):
        return False
    if name == "smoothing_fwhm" and isinstance(value, int | float | list | tuple):
        return bool(np.all(np.abs(np.array(value, np.float64)) <= MAX_WIDTH))
    return True


def _has_type(value: Any, types: Sequence[type]) -> bool:
    """Return whether a value is None or of one of the types: bool, float, str (one word), list (of numbers)."""
    if isinstance(value, bool):
        return bool in types
    if isinstance(value, int | float):
        return float in types and math.isfinite(value)
    if isinstance(value, str):
        return str in types and re.fullmatch(r"[\w-]+", value) is not None
    if isinstance(value, list | tuple):
        try:
            return list in types and np.array(value).dtype.kind in "if"
        except ValueError:  # rows of different lengths
            return False
    return value is None
