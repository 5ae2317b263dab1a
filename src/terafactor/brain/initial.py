"""Initial maps: principal components of some volumes, rotated to be sparse."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from terafactor._threads import Threads
from terafactor._typing import Array
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.problem import NormBall
from terafactor.solver.fit import atoms_from_rows

ROWS_PER_MAP = 30
"""Volumes per map: with 20, some networks of simulated studies are not found."""

MAX_INITIAL_VALUES = 2**27
"""Largest number of values to read: half a gigabyte."""

MIN_FEATURES, FEATURES_PER_ROW = 5_000, 20
"""Number of features, in total and per row, on which components and rotation are computed: in six simulated studies,
more did not bring maps closer to the networks."""

COMPONENTS_PER_MAP = 2
"""Principal components per map, of which the sparsest are kept: motion and drifts are among the strongest components,
but not sparse. With 1.5 components per map, one fit in ten missed a network."""

MAX_ROTATIONS, ROTATION_TOLERANCE = 100, 1e-3
"""Largest number of updates of the rotation, and the change below which it has converged."""

COARSE_STRIDE = 4
"""The rotation is first computed on every fourth feature, where there are at least :data:`MIN_FEATURES`."""


def initial_maps(
    source: MatrixSource, constraint: NormBall, n_components: int, batch_size: int, reduction: float, seed: int
) -> Array:
    """Return k sparse maps (k, p) on the boundary of the ball, from the first volumes that the fit visits.

    With enough volumes, consecutive pairs are summed: networks change slowly, and much of the noise is independent from
    volume to volume. The principal components, twice as many as maps, are rotated to maximize the sum of the fourth
    powers of their entries, which makes few entries large and the others small. The sparsest components are kept, and
    all but their largest entries are set to zero.
    """
    n_rows = max(n_components, min(ROWS_PER_MAP * n_components, MAX_INITIAL_VALUES // source.shape[1]))
    stream = BatchStream(source, batch_size, masks_of(source, reduction, seed), seed, whole_rows=False)
    rows = source.read(np.sort(stream.first_rows(n_rows)))
    if len(rows) >= ROWS_PER_MAP * n_components:
        rows[:-1:2] += rows[1::2]  # in place: allocating this much memory takes as long as the sums
        rows = rows[:-1:2]
    sampled = _subsample_features(rows)
    if not sampled.any():  # constant images: start from noise
        return atoms_from_rows(rows[:n_components], n_components, constraint, seed)
    with Threads():  # limits BLAS to one thread: the same bits on any number of cores
        maps = _sparse_combinations(sampled, COMPONENTS_PER_MAP * n_components)[:n_components] @ rows
    return atoms_from_rows(_largest_entries(maps), n_components, constraint, seed)


def _sparse_combinations(rows: Array, n_components: int) -> Array:
    """Return the combinations (at most k, n) of rows that give sparse, mostly positive maps, the sparsest first."""
    combinations = _principal_combinations(rows, n_components)
    maps = combinations @ rows
    rotation = _sparse_rotation(maps)
    rotated = rotation @ maps
    sparsest = np.argsort(-np.square(rotated**2).sum(axis=1), kind="stable")
    signs = np.where(_cubes(rotated).sum(axis=1, keepdims=True) < 0, -1, 1).astype(rows.dtype)
    return ((rotation @ combinations) * signs)[sparsest]


def _principal_combinations(rows: Array, n_components: int) -> Array:
    """Return the combinations (at most k, n) of rows that give principal components of mean square 1."""
    last = len(rows) - 1
    largest = (max(0, last + 1 - n_components), last)
    values, vectors = linalg.eigh((rows @ rows.T).astype(np.float64), subset_by_index=largest)
    found = values > 1e-6 * values.max()
    scaled = vectors[:, found] * np.sqrt(rows.shape[1] / values[found])
    return scaled[:, ::-1].T.astype(rows.dtype)


def _sparse_rotation(maps: Array) -> Array:
    """Return the rotation (k, k) of maps (k, p) that maximizes the sum of their fourth powers."""
    rotation = np.eye(len(maps), dtype=maps.dtype)
    coarse = [np.ascontiguousarray(maps[:, ::COARSE_STRIDE])] if maps.shape[1] >= MIN_FEATURES else []
    for part in (*coarse, maps):
        for _ in range(MAX_ROTATIONS):
            # Fixed-point iteration, as in FastICA: the rotation closest to the gradient.
            left, _, right = np.linalg.svd(_cubes(rotation @ part) @ part.T)
            updated = left @ right
            change = float(np.abs(1 - (updated * rotation).sum(axis=1)).max())
            rotation = updated
            if change < ROTATION_TOLERANCE:
                break
    return rotation


def _cubes(values: Array) -> Array:
    """Return ``values**3`` by products, many times faster than NumPy's power."""
    return values**2 * values


def _subsample_features(rows: Array) -> Array:
    """Return some features of rows (n, p), at equal distances."""
    enough = max(MIN_FEATURES, FEATURES_PER_ROW * len(rows))
    return np.ascontiguousarray(rows[:, :: max(1, rows.shape[1] // enough)])


def _largest_entries(maps: Array) -> Array:
    """Return maps (k, p) with all but the p largest of their entries set to zero."""
    threshold = np.quantile(np.abs(_subsample_features(maps)), 1 - 1 / len(maps))
    return np.where(np.abs(maps) > threshold, maps, 0)
