"""NIfTI volumes: ``.nii`` and ``.nii.gz`` files, and nibabel images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.brain.kinds import ImageKind, nibabel, nilearn, without_icon
from terafactor.data.sources.formats import is_a
from terafactor.errors import DataError
from terafactor.solver.state_dict import StateDict

MAX_MASK_IMAGES = 20
"""Largest number of images from which a mask is computed."""

N_FIRST_VOLUMES = 5
"""Number of first volumes of an image from which masks and backgrounds are computed: few need to be decompressed."""

SMALLEST_VOXEL, LARGEST_VOXEL = 1e-9, 1e9
"""Bounds on the largest entry of each axis, and on all entries, of affines in model files, in millimeters."""

SECONDS_PER_UNIT = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
"""Seconds per unit of time, by the names in headers."""


class Volumes(ImageKind):
    """Series of voxels: 4-D images."""

    name = "volume"
    suffix = ".nii.gz"
    defaults: Mapping[str, Any] = MappingProxyType({"smoothing_fwhm": 4.0, "mask_strategy": "epi"})

    def recognizes(self, given: Any) -> bool:
        if isinstance(given, str | os.PathLike):
            return os.fspath(given).endswith((".nii", ".nii.gz"))
        return is_a(given, "nibabel", "SpatialImage") and hasattr(given, "affine")

    def open_path(self, path: Path, mask: Any) -> Any:
        return nibabel().load(path)

    def length(self, image: Any) -> int | None:
        return int(image.shape[3]) if len(image.shape) == 4 else None

    def repetition_time(self, image: Any) -> float | None:
        units = getattr(image.header, "get_xyzt_units", lambda: ("unknown", "unknown"))()[1]
        if units not in SECONDS_PER_UNIT:  # programs that do not know the time write 1, without a unit
            return None
        time = round(float(image.header.get_zooms()[3]) * SECONDS_PER_UNIT[units], 6)  # stored as a 32-bit float
        return time if time > 0 else None

    def load(self, image: Any) -> tuple[Any, int]:
        stored = image.dataobj
        if nibabel().is_proxy(stored):  # a proxy keeps its decompression buffers, which add up over images
            stored = stored.copy()
        values = np.asarray(stored, dtype=np.float32)
        finite = np.isfinite(values)
        n_bad = values.size - int(np.count_nonzero(finite))
        if n_bad:
            values = np.where(finite, values, 0)
        header = image.header.copy()
        header.set_data_dtype(np.float32)
        return type(image)(values, image.affine, header), n_bad

    def background(self, image: Any, masker: Any) -> Array | None:
        if self.mismatch(image, masker.mask_img_) is not None:
            return None
        mean = np.asarray(image.dataobj[..., :N_FIRST_VOLUMES], np.float32).mean(axis=3)
        return np.nan_to_num(mean[np.asarray(masker.mask_img_.dataobj) > 0], posinf=0, neginf=0)

    def mismatch(self, image: Any, reference: Any) -> str | None:
        if image.shape[:3] != reference.shape[:3]:
            return f"has the shape {image.shape[:3]} instead of {reference.shape[:3]}"
        if not np.allclose(image.affine, reference.affine, atol=1e-4):
            return f"has the affine {_rounded(image.affine)} instead of {_rounded(reference.affine)}"
        return None

    def volumes(self, masker: Any, rows: Array) -> tuple[Array, Array]:
        mask, affine = np.asarray(masker.mask_img_.dataobj) > 0, np.asarray(masker.mask_img_.affine)
        volumes = np.zeros((*mask.shape, len(rows)), rows.dtype)
        volumes[mask] = rows.T
        directions = nibabel().orientations.io_orientation(affine)
        sizes = np.linalg.norm(affine[:3, :3], axis=0)[np.argsort(directions[:, 0])]
        return nibabel().orientations.apply_orientation(volumes, directions), sizes

    def viewer(self, masker: Any, row: Array, background: Array | None, title: str) -> str:
        plain = self.plain_masker(masker)
        bg_img = None if background is None else plain.inverse_transform(background)
        threshold = 0.02 * float(np.abs(row).max())
        view = nilearn("plotting").view_img(
            plain.inverse_transform(row), bg_img=bg_img, threshold=threshold, title=title, black_bg=True
        )
        return without_icon(view.get_standalone())

    def new_masker(self, mask: Any, options: Mapping[str, Any]) -> Any:
        mask = os.fspath(mask) if isinstance(mask, os.PathLike) else mask
        return nilearn("maskers").MultiNiftiMasker(mask_img=mask, **{"standardize": None, **options})

    def fit_masker(self, masker: Any, images: Sequence[Any]) -> Any:
        if masker.mask_img is not None:
            return masker.fit()
        chosen = np.unique(np.linspace(0, len(images) - 1, MAX_MASK_IMAGES).astype(int))
        in_one_space = [images[number] for number in chosen if self.mismatch(images[number], images[0]) is None]
        return masker.fit([image.slicer[..., :N_FIRST_VOLUMES] for image in in_one_space])

    def masker_arrays(self, masker: Any) -> dict[str, Array]:
        mask = np.asarray(masker.mask_img_.dataobj) > 0
        return {"mask": mask, "affine": np.asarray(masker.mask_img_.affine, np.float64)}

    def restore_masker(self, state_dict: StateDict, options: Mapping[str, Any]) -> Any:
        mask = state_dict.array("mask", (None, None, None), np.bool_)
        affine = state_dict.array("affine", (4, 4), np.float64)
        sizes = np.abs(affine)
        if sizes[:3, :3].max(axis=0).min() < SMALLEST_VOXEL or sizes.max() > LARGEST_VOXEL:  # LAPACK may loop forever
            raise DataError(
                f"invalid mask in the model file: its affine describes no voxels ({_rounded(affine)}); not written by "
                "terafactor, or corrupted"
            )
        if options.get("target_affine") is not None:  # the stored mask is resampled already
            options = {**options, "target_affine": affine, "target_shape": mask.shape}
        return self.new_masker(nibabel().Nifti1Image(mask.astype(np.uint8), affine), options).fit()

    def as_files(self, image: Any, stem: Path) -> dict[Path, Any]:
        return {stem.with_name(f"{stem.name}{self.suffix}"): image}


def _rounded(affine: Any) -> list[list[float]]:
    return [[round(float(value), 4) for value in row] for row in affine[:3]]


KIND = Volumes()
