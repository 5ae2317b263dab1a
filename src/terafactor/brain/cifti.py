"""CIFTI series: ``.dtseries.nii`` (grayordinates) and ``.ptseries.nii`` (parcels) files, and nibabel images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from terafactor._typing import Array
from terafactor.brain.kinds import ImageKind, nibabel, nilearn
from terafactor.data.sources.formats import is_a
from terafactor.errors import DataError
from terafactor.solver.state_dict import StateDict

SUFFIXES = (".dtseries.nii", ".ptseries.nii")
DENSE_SCALARS, PARCELLATED_SCALARS = 3006, 3008
"""NIfTI intent codes of the CIFTI files that maps are written to."""


class CiftiMasker(TransformerMixin, BaseEstimator):
    """Mask and clean CIFTI series, with the interface of nilearn's maskers.

    Parameters
    ----------
    mask_img : Cifti2Image, path of one, or None
        Grayordinates or parcels to keep: those that are nonzero in its first row. None keeps all.
    standardize, detrend, standardize_confounds, low_pass, high_pass, t_r
        Arguments of :func:`nilearn.signal.clean`.

    Attributes
    ----------
    mask_ : ndarray of shape (n_grayordinates,)
        Which grayordinates or parcels are kept.
    mask_img_ : Cifti2Image
        The mask as an image.
    n_elements_ : int
        Number of grayordinates or parcels kept.
    """

    def __init__(
        self,
        mask_img: Any = None,
        *,
        standardize: Any = None,
        detrend: bool = False,
        standardize_confounds: Any = True,
        low_pass: float | None = None,
        high_pass: float | None = None,
        t_r: float | None = None,
    ) -> None:
        self.mask_img = mask_img
        self.standardize = standardize
        self.detrend = detrend
        self.standardize_confounds = standardize_confounds
        self.low_pass = low_pass
        self.high_pass = high_pass
        self.t_r = t_r

    def fit(self, imgs: Any = None, y: Any = None) -> Self:
        """Read the grayordinates or parcels from the mask, or from an image without one."""
        mask = nibabel().load(self.mask_img) if isinstance(self.mask_img, str | os.PathLike) else self.mask_img
        if mask is None and imgs is None:
            raise DataError("CiftiMasker has no mask_img and fit got no image: pass one of them")
        self.axis_ = _brain_axis(imgs if mask is None else mask)
        self.mask_ = np.ones(len(self.axis_), bool) if mask is None else np.asarray(mask.dataobj)[0] != 0
        self.n_elements_ = int(self.mask_.sum())
        self.mask_img_ = self._image(self.mask_[np.newaxis].astype(np.float32))
        return self

    def transform(self, imgs: Any, confounds: Any = None, sample_mask: Any = None) -> Array:
        """Return the cleaned series (n, p) of one image."""
        return self.transform_single_imgs(imgs, confounds, sample_mask)

    def transform_single_imgs(self, imgs: Any, confounds: Any = None, sample_mask: Any = None) -> Array:
        """Return the cleaned series (n, p) of one image, under the name that nilearn's maskers use."""
        values = np.asarray(imgs.dataobj, np.float32)[:, self.mask_]
        cleaning = {name: value for name, value in self.get_params().items() if name != "mask_img"}
        cleaned = nilearn("signal").clean(
            values, confounds=confounds, sample_mask=sample_mask, ensure_finite=True, **cleaning
        )
        return np.asarray(cleaned)

    def inverse_transform(self, X: Array) -> Any:
        """Return rows (n, p) as an image of n maps."""
        values = np.zeros((len(X), len(self.mask_)), np.float32)
        values[:, self.mask_] = X
        return self._image(values)

    def _image(self, values: Array) -> Any:
        cifti = nibabel().cifti2
        names = cifti.ScalarAxis([f"map {number}" for number in range(len(values))])
        image = cifti.Cifti2Image(values, cifti.Cifti2Header.from_axes((names, self.axis_)))
        parcels = is_a(self.axis_, "nibabel", "ParcelsAxis")
        image.nifti_header.set_intent(PARCELLATED_SCALARS if parcels else DENSE_SCALARS)
        return image


class Cifti(ImageKind):
    """Series of grayordinates or parcels."""

    name = "CIFTI series"
    suffix = ".dscalar.nii"

    def recognizes(self, given: Any) -> bool:
        if isinstance(given, str | os.PathLike):
            return os.fspath(given).endswith(SUFFIXES)
        return is_a(given, "nibabel", "Cifti2Image")

    def open_path(self, path: Path, mask: Any) -> Any:
        return nibabel().load(path)

    def length(self, image: Any) -> int | None:
        return int(image.shape[0])

    def repetition_time(self, image: Any) -> float | None:
        axis = image.header.get_axis(0)
        is_timed = is_a(axis, "nibabel", "SeriesAxis") and axis.unit == "SECOND" and axis.step > 0
        return float(axis.step) if is_timed else None

    def load(self, image: Any) -> tuple[Any, int]:
        values = np.asarray(image.dataobj, np.float32)
        finite = np.isfinite(values)
        n_bad = values.size - int(np.count_nonzero(finite))
        return type(image)(np.where(finite, values, 0) if n_bad else values, image.header), n_bad

    def mismatch(self, image: Any, reference: Any) -> str | None:
        found, needed = _brain_axis(image), _brain_axis(reference)
        if len(found) != len(needed):
            return f"has {len(found)} grayordinates or parcels instead of {len(needed)}"
        return None if found == needed else "has other grayordinates or parcels"

    def new_masker(self, mask: Any, options: Mapping[str, Any]) -> CiftiMasker:
        return CiftiMasker(mask, **options)

    def fit_masker(self, masker: Any, images: Sequence[Any]) -> Any:
        return masker.fit(images[0])

    def masker_arrays(self, masker: Any) -> dict[str, Array]:
        return {"mask": masker.mask_, "header": np.frombuffer(masker.mask_img_.header.to_xml(), np.uint8).copy()}

    def restore_masker(self, state_dict: StateDict, options: Mapping[str, Any]) -> Any:
        cifti = nibabel().cifti2
        mask = state_dict.array("mask", (None,), np.bool_)
        parser = cifti.parse_cifti2.Cifti2Parser()
        parser.parse(state_dict.array("header", (None,), np.uint8).tobytes())
        return self.new_masker(cifti.Cifti2Image(mask[np.newaxis].astype(np.float32), parser.header), options).fit()

    def as_files(self, image: Any, stem: Path) -> dict[Path, Any]:
        parcels = is_a(_brain_axis(image), "nibabel", "ParcelsAxis")
        return {stem.with_name(f"{stem.name}{'.pscalar.nii' if parcels else self.suffix}"): image}


def _brain_axis(image: Any) -> Any:
    """Return the axis of grayordinates or parcels."""
    if not is_a(image, "nibabel", "Cifti2Image"):
        raise DataError(
            f"the mask of CIFTI series must be a CIFTI image, such as a .dscalar.nii file, got a {type(image).__name__}"
        )
    return image.header.get_axis(1)


KIND = Cifti()
