"""A simulated resting-state study: several subjects with known networks, written as NIfTI files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array
from terafactor.data.sources.formats import require
from terafactor.datasets.brain_like import smooth_noise
from terafactor.datasets.planted import autoregressive

SPACE = "MNI152NLin2009cAsym"
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
BASELINE = 1000.0
"""Largest mean intensity of a voxel; signals are a few percent of it, as in real images."""

MIDLINE_GAP = 6.0
"""Distance from the midline, in mm, below which a network has no counterpart in the other hemisphere."""

SMOOTHNESS = 4.0
"""Width of the spatial correlation of the noise, in mm."""

CORTEX_RADIUS = 50.0
"""Distance in mm at which head rotations become displacements."""

DRIFT_PERIOD = 128.0
"""Shortest period of a drift, in seconds."""


@dataclass(frozen=True)
class BrainStudy:
    """Files of a simulated study, run by run; see :func:`make_brain_study`.

    Examples
    --------
    >>> from terafactor.datasets import make_brain_study
    >>> import tempfile
    >>> study = make_brain_study(tempfile.mkdtemp(), n_subjects=1, n_runs=1, n_networks=2, n_volumes=3, resolution=12)
    >>> study.images[0].suffixes
    ['.nii', '.gz']
    """

    folder: Path
    """Root folder, in the layout of BIDS derivatives."""

    images: list[Path]
    """One 4-D image per run."""

    confounds: list[Path]
    """One table per run, named as fMRIPrep names them."""

    mask: Path
    """Brain mask, a 3-D image."""

    networks: Path
    """Ground truth: a 4-D image, one map per network."""


@dataclass(frozen=True)
class _Head:
    """The brain that all runs share, as arrays over its voxels."""

    mask: Array
    """Brain mask (x, y, z)."""

    affine: Array
    anatomy: Array
    """Mean intensity of each voxel (p,)."""

    points: Array
    """Position of each voxel in mm (3, p)."""

    edges: Array
    """Change of each voxel when the head moves along an axis (3, p)."""

    voxel_size: float


def make_brain_study(
    folder: str | Path,
    *,
    n_subjects: int = 8,
    n_runs: int = 2,
    n_networks: int = 20,
    n_volumes: int = 120,
    resolution: int = 4,
    noise: float = 3.0,
    repetition_time: float = 2.0,
    seed: int = 0,
) -> BrainStudy:
    """Write a simulated resting-state study with known networks.

    Networks are overlapping sums of Gaussian blobs in the gray matter of the MNI template, most of them with a
    counterpart in the other hemisphere. Positions and strengths vary slightly between subjects. Time courses are
    autoregressive. Images add smooth noise, white noise, slow drifts, and the effects of head motion; the tables of
    confounds hold drifts and motion parameters.

    Parameters
    ----------
    folder : path
        Output folder, in the layout of BIDS derivatives.
    n_subjects, n_runs, n_networks : int
        Numbers of subjects, of runs of each, and of networks, which all share.
    n_volumes : int
        Number of images per run.
    resolution : int
        Voxel size in mm.
    noise : float
        Standard deviation of the noise, relative to that of the signal.
    repetition_time : float
        Seconds between images.
    seed : int
        A run depends on it, and not on the numbers of subjects and runs.

    Returns
    -------
    BrainStudy
        The files.

    Examples
    --------
    >>> from terafactor.datasets import make_brain_study
    >>> import tempfile
    >>> study = make_brain_study(tempfile.mkdtemp(), n_subjects=1, n_runs=1, n_networks=2, n_volumes=3, resolution=12)
    >>> len(study.images), len(study.confounds)
    (1, 1)
    """
    nibabel = require("nibabel", extra="brain", purpose="a simulated study")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = {"Name": "Simulated rest", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}
    (folder / "dataset_description.json").write_text(json.dumps(description, indent=1) + "\n")
    head, gray = _head(resolution)
    blobs = _draw_blobs(head, gray, n_networks, generator(seed, Purpose.DATA))
    networks = np.stack([_network(head, network) for network in blobs])
    mask_path, networks_path = folder / f"space-{SPACE}_desc-brain_mask.nii.gz", folder / "networks.nii.gz"
    nibabel.Nifti1Image(head.mask.astype(np.uint8), head.affine).to_filename(mask_path)
    nibabel.Nifti1Image(_unmasked(head, networks), head.affine).to_filename(networks_path)
    images, tables = [], []
    for subject in range(n_subjects):
        own = _vary(head, blobs, generator(seed, Purpose.DATA, 1, subject))
        for run in range(n_runs):
            random = generator(seed, Purpose.DATA, 2, subject, run)
            series, confounds = _run(head, own, n_volumes, noise, repetition_time, random)
            stem = folder / f"sub-{subject + 1:02d}" / "func" / f"sub-{subject + 1:02d}_task-rest_run-{run + 1}"
            images.append(_write_image(nibabel, head, series, stem, repetition_time))
            tables.append(_write_confounds(confounds, stem))
    return BrainStudy(folder, images, tables, mask_path, networks_path)


def _head(resolution: int) -> tuple[_Head, Array]:
    """Return the MNI template of nilearn as a head, and its gray-matter mask (p,)."""
    datasets = require("nilearn.datasets", extra="brain", purpose="a simulated study")
    template = datasets.load_mni152_brain_mask(resolution=resolution)
    gray = datasets.load_mni152_gm_mask(resolution=resolution)
    mask = np.asarray(template.dataobj) > 0
    places = np.argwhere(mask).astype(np.float64)
    points = (places @ template.affine[:3, :3].T + template.affine[:3, 3]).T
    edges = np.stack([np.asarray(change)[mask] for change in np.gradient(mask.astype(np.float32))])
    inside = (np.asarray(gray.dataobj) > 0)[mask]
    anatomy = np.asarray(datasets.load_mni152_template(resolution=resolution).dataobj)[mask]
    intensities = BASELINE * (0.5 + 0.5 * anatomy / anatomy.max()).astype(np.float32)
    return _Head(mask, template.affine, intensities, points.astype(np.float32), edges, float(resolution)), inside


def _draw_blobs(head: _Head, gray: Array, n_networks: int, random: np.random.Generator) -> list[Array]:
    """Return the blobs of each network, rows of (x, y, z, width, height); networks are spread over the brain."""
    candidates = head.points[:, gray].T
    centers = [candidates[random.integers(len(candidates))]]
    while len(centers) < n_networks:  # the farthest of a few random points: spread out, but not on a grid
        drawn = candidates[random.integers(len(candidates), size=8)]
        distances = [min(float(np.linalg.norm(_folded(one) - _folded(other))) for other in centers) for one in drawn]
        centers.append(drawn[int(np.argmax(distances))])
    return [_with_partners(center, candidates, random) for center in centers]


def _folded(point: Array) -> Array:
    """Return a point mirrored to the right hemisphere."""
    return np.array([abs(point[0]), point[1], point[2]])


def _with_partners(center: Array, candidates: Array, random: np.random.Generator) -> Array:
    """Return a network: a blob, its mirror image across the midline, and sometimes a weaker one elsewhere."""
    width = random.uniform(9, 14)
    blobs = [[*center, width, 1.0]]
    if abs(center[0]) > MIDLINE_GAP:
        blobs.append([-center[0], center[1], center[2], width, random.uniform(0.7, 1.0)])
    if random.random() < 0.4:
        elsewhere = candidates[random.integers(len(candidates))]
        blobs.append([*elsewhere, random.uniform(7, 10), random.uniform(0.4, 0.8)])
    return np.array(blobs)


def _vary(head: _Head, blobs: list[Array], random: np.random.Generator) -> Array:
    """Return the networks of one subject (k, p): blobs moved by a few mm, sizes and strengths by a few percent."""
    own = []
    for network in blobs:
        moved = network.copy()
        moved[:, :3] += random.normal(0, 2.0, moved[:, :3].shape)
        moved[:, 3:] *= random.uniform(0.85, 1.15, moved[:, 3:].shape)
        own.append(_network(head, moved))
    return np.stack(own)


def _network(head: _Head, blobs: Array) -> Array:
    """Return a map (p,), zero beyond 2.5 widths of its blobs."""
    total = np.zeros(head.points.shape[1], np.float32)
    for *center, width, height in blobs.astype(np.float32):
        distance = ((head.points - np.array(center)[:, np.newaxis]) ** 2).sum(axis=0) / width**2
        total += np.where(distance < 2.5**2, height * np.exp(-distance / 2), 0)
    return total


def _run(
    head: _Head, networks: Array, n_volumes: int, noise: float, repetition_time: float, random: np.random.Generator
) -> tuple[Array, dict[str, Array]]:
    """Return the intensities of a run (n, p) and its confounds by name."""
    series = autoregressive(n_volumes, len(networks), random, coefficient=0.8) @ networks
    series /= series.std()
    for volume in series:
        volume += noise * 0.8 * smooth_noise(head.mask.shape, SMOOTHNESS / head.voxel_size, random)[head.mask]
        volume += noise * 0.6 * random.standard_normal(len(volume), dtype=np.float32)
    motion = _motion(n_volumes, random)
    displacement = motion[:, :3] + motion[:, 3:] * CORTEX_RADIUS
    series += (noise * displacement @ head.edges).astype(np.float32)
    drifts = _cosines(n_volumes, repetition_time)
    strength = random.standard_normal((drifts.shape[1], 1), dtype=np.float32)
    series += (noise * drifts @ strength).astype(np.float32)
    confounds = dict(zip(MOTION, motion.T, strict=True))
    confounds |= {f"cosine{number:02d}": drift for number, drift in enumerate(drifts.T)}
    return head.anatomy * (1 + 0.01 * series), confounds


def _motion(n_volumes: int, random: np.random.Generator) -> Array:
    """Return translations in mm and rotations in radians (n, 6): random walks with a few jumps."""
    steps = 0.03 * random.standard_normal((n_volumes, 6))
    jumps = random.integers(n_volumes, size=max(1, n_volumes // 60))
    steps[jumps] += 0.3 * random.standard_normal((len(jumps), 6))
    walk = np.cumsum(steps, axis=0)
    walk[:, 3:] /= CORTEX_RADIUS
    return walk - walk.mean(axis=0)


def _cosines(n_volumes: int, repetition_time: float) -> Array:
    """Return the cosine drifts (n, m) of periods above ``DRIFT_PERIOD``, as fMRIPrep defines them; at least one."""
    n_cosines = max(1, int(2 * n_volumes * repetition_time / DRIFT_PERIOD))
    time = (np.arange(n_volumes) + 0.5) / n_volumes
    return np.cos(np.pi * np.outer(time, np.arange(1, n_cosines + 1)))


def _write_image(nibabel: Any, head: _Head, series: Array, stem: Path, repetition_time: float) -> Path:
    path = stem.with_name(f"{stem.name}_space-{SPACE}_desc-preproc_bold.nii.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(_unmasked(head, np.rint(series)).astype(np.int16), head.affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((*image.header.get_zooms()[:3], repetition_time))
    image.to_filename(path)
    sidecar = {"RepetitionTime": repetition_time, "TaskName": "rest", "SkullStripped": True}
    path.with_name(path.name.replace(".nii.gz", ".json")).write_text(json.dumps(sidecar, indent=1) + "\n")
    return path


def _write_confounds(confounds: dict[str, Array], stem: Path) -> Path:
    path = stem.with_name(f"{stem.name}_desc-confounds_timeseries.tsv")
    table = np.column_stack(list(confounds.values()))
    np.savetxt(path, table, fmt="%.6f", delimiter="\t", header="\t".join(confounds), comments="")
    return path


def _unmasked(head: _Head, values: Array) -> Array:
    """Return rows over the voxels of the mask (n, p) as a 4-D array (x, y, z, n)."""
    volumes = np.zeros((*head.mask.shape, len(values)), np.float32)
    volumes[head.mask] = values.T
    return volumes
