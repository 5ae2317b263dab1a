"""A simulated study: several subjects at rest, with known networks, written as the NIfTI files of a real one."""

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
"""Largest mean intensity of a voxel; signals are a few percent of it, as in the scanner."""

MIDLINE_GAP = 6.0
"""Networks whose centre is nearer to the midline than this, in mm, have no twin in the other hemisphere."""

SMOOTHNESS = 4.0
"""Width of the spatial correlation of the noise, in mm."""

CORTEX_RADIUS = 50.0
"""Distance in mm at which the rotations of a head act."""

SLOWEST = 128.0
"""Period in seconds above which a cosine is a drift."""


@dataclass(frozen=True)
class BrainStudy:
    """Where the files of a study are, run by run."""

    folder: Path
    """Root of the study, in the layout of BIDS derivatives."""

    images: list[Path]
    """One 4-D image per run."""

    confounds: list[Path]
    """One table per run, named as fMRIPrep does."""

    mask: Path
    """The brain, a 3-D image."""

    networks: Path
    """The truth: a 4-D image, one map per network."""


@dataclass(frozen=True)
class _Head:
    """The brain that all runs share, as arrays over its voxels."""

    mask: Array
    """Where the brain is (x, y, z)."""

    affine: Array
    anatomy: Array
    """Mean intensity of each voxel (p,)."""

    points: Array
    """Place of each voxel in mm (3, p)."""

    edges: Array
    """How much each voxel changes when the head moves along an axis (3, p)."""

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
    """Write a study of resting subjects whose networks are known.

    Networks are sums of Gaussian blobs in the grey matter of the MNI template, most of them with a twin in the other
    hemisphere, and overlap. Each subject has them in slightly other places and strengths. Time courses are
    autoregressive. To their sum are added noise that is smooth in space, white noise, slow drifts, and the traces of
    a moving head, whose parameters are in the tables of confounds.

    Parameters
    ----------
    folder : path
        Where to write, in the layout of BIDS derivatives.
    n_subjects, n_runs, n_networks : int
        Subjects, runs of each, and networks that all share.
    n_volumes : int
        Images per run.
    resolution : int
        Size of a voxel in mm.
    noise : float
        Standard deviation of the noise in units of that of the networks' part.
    repetition_time : float
        Seconds between images.
    seed : int
        Every number is a function of it; a run does not depend on how many others there are.

    Returns
    -------
    BrainStudy
        The files written.
    """
    nibabel = require("nibabel", extra="brain", purpose="a simulated study")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = {"Name": "Simulated rest", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}
    (folder / "dataset_description.json").write_text(json.dumps(description, indent=1) + "\n")
    head, grey = _head(resolution)
    blobs = _draw_blobs(head, grey, n_networks, generator(seed, Purpose.DATA))
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
    """Return the brain of the template that nilearn ships, and where its grey matter is (p,)."""
    datasets = require("nilearn.datasets", extra="brain", purpose="a simulated study")
    template = datasets.load_mni152_brain_mask(resolution=resolution)
    grey = datasets.load_mni152_gm_mask(resolution=resolution)
    mask = np.asarray(template.dataobj) > 0
    places = np.argwhere(mask).astype(np.float64)
    points = (places @ template.affine[:3, :3].T + template.affine[:3, 3]).T
    edges = np.stack([np.asarray(change)[mask] for change in np.gradient(mask.astype(np.float32))])
    inside = (np.asarray(grey.dataobj) > 0)[mask]
    anatomy = np.asarray(datasets.load_mni152_template(resolution=resolution).dataobj)[mask]
    intensities = BASELINE * (0.5 + 0.5 * anatomy / anatomy.max()).astype(np.float32)
    return _Head(mask, template.affine, intensities, points.astype(np.float32), edges, float(resolution)), inside


def _draw_blobs(head: _Head, grey: Array, n_networks: int, random: np.random.Generator) -> list[Array]:
    """Return the blobs of each network, lines of (x, y, z, width, height); networks keep some distance."""
    candidates = head.points[:, grey].T
    centres = [candidates[random.integers(len(candidates))]]
    while len(centres) < n_networks:  # the farthest of a few: spread over the brain, yet not on a grid
        drawn = candidates[random.integers(len(candidates), size=8)]
        distances = [min(float(np.linalg.norm(_folded(one) - _folded(other))) for other in centres) for one in drawn]
        centres.append(drawn[int(np.argmax(distances))])
    return [_with_partners(centre, candidates, random) for centre in centres]


def _folded(point: Array) -> Array:
    """Return a point with its twin of the other hemisphere taken for the same."""
    return np.array([abs(point[0]), point[1], point[2]])


def _with_partners(centre: Array, candidates: Array, random: np.random.Generator) -> Array:
    """Return a network: a blob, its twin across the midline, and sometimes a weaker one elsewhere."""
    width = random.uniform(9, 14)
    blobs = [[*centre, width, 1.0]]
    if abs(centre[0]) > MIDLINE_GAP:
        blobs.append([-centre[0], centre[1], centre[2], width, random.uniform(0.7, 1.0)])
    if random.random() < 0.4:
        elsewhere = candidates[random.integers(len(candidates))]
        blobs.append([*elsewhere, random.uniform(7, 10), random.uniform(0.4, 0.8)])
    return np.array(blobs)


def _vary(head: _Head, blobs: list[Array], random: np.random.Generator) -> Array:
    """Return the networks of one subject (k, p): places moved by some mm, sizes and strengths by some percent."""
    own = []
    for network in blobs:
        moved = network.copy()
        moved[:, :3] += random.normal(0, 2.0, moved[:, :3].shape)
        moved[:, 3:] *= random.uniform(0.85, 1.15, moved[:, 3:].shape)
        own.append(_network(head, moved))
    return np.stack(own)


def _network(head: _Head, blobs: Array) -> Array:
    """Return a map (p,), zero beyond two and a half widths of its blobs."""
    total = np.zeros(head.points.shape[1], np.float32)
    for *centre, width, height in blobs.astype(np.float32):
        distance = ((head.points - np.array(centre)[:, np.newaxis]) ** 2).sum(axis=0) / width**2
        total += np.where(distance < 2.5**2, height * np.exp(-distance / 2), 0)
    return total


def _run(
    head: _Head, networks: Array, n_volumes: int, noise: float, repetition_time: float, random: np.random.Generator
) -> tuple[Array, dict[str, Array]]:
    """Return the intensities of a run (n, p) and the series of its confounds, by name."""
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
    """Return translations in mm and rotations in radians (n, 6): random walks with a few jerks."""
    steps = 0.03 * random.standard_normal((n_volumes, 6))
    jerks = random.integers(n_volumes, size=max(1, n_volumes // 60))
    steps[jerks] += 0.3 * random.standard_normal((len(jerks), 6))
    walk = np.cumsum(steps, axis=0)
    walk[:, 3:] /= CORTEX_RADIUS
    return walk - walk.mean(axis=0)


def _cosines(n_volumes: int, repetition_time: float) -> Array:
    """Return the slow cosines (n, m) of periods above ``SLOWEST``, as fMRIPrep makes them; at least one."""
    n_cosines = max(1, int(2 * n_volumes * repetition_time / SLOWEST))
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
    """Return rows over the voxels of the brain (n, p) as a 4-D array (x, y, z, n)."""
    volumes = np.zeros((*head.mask.shape, len(values)), np.float32)
    volumes[head.mask] = values.T
    return volumes
