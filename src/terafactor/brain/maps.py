"""Properties of learned maps: order, signs, sparsity, explained variance, labels, regions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.brain.kinds import check_image_size, check_readable, name_of, naming_image, nilearn
from terafactor.errors import DataError


def signs(maps: Array) -> Array:
    """Return the sign (k,) that makes the positive part of each map (k, p) the larger one in l1 norm."""
    return np.where(maps.sum(axis=1, dtype=np.float64) < 0, -1, 1).astype(maps.dtype)


def order(maps: Array, code_gram: Array) -> Indices:
    """Return the indices of maps (k,), sorted by the variance that they explain, the largest first.

    Parameters
    ----------
    maps : ndarray of shape (k, p)
    code_gram : ndarray of shape (k, k)
        Mean over rows of the products of their codes.
    """
    explained = np.diag(code_gram) * np.einsum("ij,ij->i", maps, maps, dtype=np.float64)
    return np.argsort(-explained, kind="stable")


def l1_l2_ratios(maps: Array) -> Array:
    """Return the l1 norm over the l2 norm of each map (k,), the root of the size of its support."""
    l2 = np.sqrt(np.einsum("ij,ij->i", maps, maps, dtype=np.float64))
    l1 = np.abs(maps).sum(axis=1, dtype=np.float64)
    return np.divide(l1, l2, out=np.zeros_like(l1), where=l2 > 0)


def outlines(maps: Array) -> Array:
    """Return where each map is above half its maximum (k, p), as in the figures of the paper."""
    return maps > 0.5 * np.maximum(maps.max(axis=1, keepdims=True), np.finfo(maps.dtype).tiny)


def explained_variance(parts: Iterable[Array], maps: Array, *, per_component: bool = False, alpha: float = 0) -> Any:
    """Return the share of the squared norm of rows that maps explain, jointly or one by one.

    Parameters
    ----------
    parts : iterable of ndarray of shape (n, p)
        Rows of series with mean zero: their squared norm is n times their variance.
    maps : ndarray of shape (k, p)
    per_component : bool
        Whether to return the share of each map by itself (k,), as nilearn does.
    alpha : float
        Strength of the ridge penalty on the codes of all maps; 0 is least squares.
    """
    gram = (maps @ maps.T).astype(np.float64)
    inverse, squares = np.linalg.pinv(gram + alpha * np.eye(len(maps))), np.diag(gram)
    explained, total = np.zeros(len(maps) if per_component else 1), 0.0
    for part in parts:
        total += float(np.einsum("ij,ij->i", part, part).sum(dtype=np.float64))
        products = (part @ maps.T).astype(np.float64)
        if per_component:
            explained += np.divide((products**2).sum(axis=0), squares, out=np.zeros(len(maps)), where=squares > 0)
        else:
            codes = products @ inverse
            explained += 2 * np.vdot(codes, products) - np.vdot(codes, codes @ gram)
    share = np.maximum(0.0, explained / total) if total else np.zeros_like(explained)
    return share if per_component else float(share[0])


def global_signal_shares(rows: Array) -> tuple[float, float]:
    """Return the shares of the squared norm of rows (n, p) explained by the mean over features and the next component.

    The next component is the first principal component of the residual. Both shares are 0 for rows of mean zero.
    """
    signal = rows.mean(axis=1, dtype=np.float64)
    energy = float(signal @ signal)
    if energy == 0:
        return 0.0, 0.0
    gram = (rows @ rows.T).astype(np.float64)
    total, weights = np.trace(gram), signal @ gram @ signal / energy
    projection = np.eye(len(rows)) - np.outer(signal, signal) / energy
    return float(weights / total), float(np.linalg.eigvalsh(projection @ gram @ projection)[-1] / total)


def labels_by_overlap(maps: Array, atlas: Array, names: Mapping[int, str]) -> list[tuple[str, float]]:
    """Return the region of an atlas that each map overlaps most, with the Dice coefficient.

    Parameters
    ----------
    maps : ndarray of shape (k, p)
        Thresholded at half their maximum.
    atlas : ndarray of shape (p,)
        Number of the region of each voxel, 0 outside.
    names : mapping from number to name
    """
    if not names:
        return [("unlabeled", 0.0)] * len(maps)
    inside = outlines(maps).astype(np.float64)
    numbers = np.array(sorted(names))
    regions = (atlas[np.newaxis] == numbers[:, np.newaxis]).astype(np.float64)
    overlap = 2 * inside @ regions.T
    sizes = inside.sum(axis=1)[:, np.newaxis] + regions.sum(axis=1)
    dice = np.divide(overlap, sizes, out=np.zeros_like(overlap), where=sizes > 0)
    best = dice.argmax(axis=1)
    return [
        (names[int(numbers[region])] if dice[row, region] > 0 else "unlabeled", float(dice[row, region]))
        for row, region in enumerate(best)
    ]


def atlas_values(masker: Any, atlas: Any) -> Array:
    """Return the region of each voxel (p,), from a label image resampled to the mask."""
    image, maskers = nilearn("image"), nilearn("maskers")
    if not hasattr(masker.mask_img_, "affine"):
        raise DataError("labels need volumes: the maps and the atlas must be NIfTI images")
    if isinstance(atlas, str | os.PathLike):
        check_readable(atlas)
    with naming_image(name_of(atlas)):
        if isinstance(atlas, str | os.PathLike):
            check_image_size(os.fspath(atlas))
        regions = image.load_img(atlas)
        if np.prod(regions.shape[3:]) != 1:
            raise DataError(
                f"an atlas of regions must be a 3-D image, with one region per voxel, got shape {regions.shape}"
            )
        nearest = image.resample_to_img(
            regions, masker.mask_img_, interpolation="nearest", copy_header=True, force_resample=True
        )
    plain = maskers.NiftiMasker(mask_img=masker.mask_img_, standardize=None).fit()
    return np.rint(plain.transform(nearest)).astype(np.int64).ravel()


def names_by_number(names: Mapping[int, str] | Sequence[str]) -> dict[int, str]:
    """Return the names of regions by number, without 0, the background; a sequence starts with the background."""
    numbered = names if isinstance(names, Mapping) else dict(enumerate(names))
    return {int(number): str(name) for number, name in numbered.items() if int(number) != 0}


def regions(maps_image: Any, min_size: float) -> tuple[Any, list[int]]:
    """Return the connected regions of maps as an image, and the index of the map of each region.

    Parameters
    ----------
    maps_image : Nifti1Image
    min_size : float
        Smallest size of a region in cubic mm.
    """
    if not hasattr(maps_image, "affine"):
        raise DataError("regions need volumes: the maps are on surfaces or in CIFTI files")
    image, owners = nilearn("regions").connected_regions(
        maps_image, min_region_size=min_size, extract_type="connected_components", smoothing_fwhm=None
    )
    return image, [int(owner) for owner in owners]
