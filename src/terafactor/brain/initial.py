"""Maps to start from: principal components of some volumes, turned until they are sparse."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from terafactor._threads import Executor
from terafactor._typing import Array
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.problem import NormBall
from terafactor.solver.fit import initial_atoms

ROWS_PER_MAP = 30
"""Volumes per map to start from: with a third less, some networks of simulated studies are not found."""

MAX_VALUES = 2**27
"""Numbers read at once, at the most: half a gigabyte."""

FEATURES, FEATURES_PER_ROW = 5_000, 20
"""Features that components and rotation are found on, the larger of the two or up to twice as many: in six simulated
studies, more did not bring maps closer to the networks."""

SPARE = 2
"""Components per map, of which the sparsest are taken: motion and drifts are among the strongest, but not sparse. With
half as many to spare, a network was missed in one fit of ten."""

MAX_ROTATIONS, TOLERANCE = 100, 1e-3

COARSE = 4
"""Of so many features, where there are :data:`FEATURES`, one is used to come near the rotation, which all then end."""


def initial_maps(
    source: MatrixSource, constraint: NormBall, n_components: int, batch_size: int, reduction: float, seed: int
) -> Array:
    """Return k sparse maps (k, p) on the boundary of the ball, from the first volumes that a fit like this visits.

    Where volumes abound, neighbours are added: what networks do changes slowly, while much of the noise is new in every
    volume. The principal components, twice as many as maps, are turned such that the sum of the fourth powers of their
    entries is largest, which makes few entries large and the others small. The sparsest are kept, and all but their
    largest entries are set to zero.
    """
    n_rows = max(n_components, min(ROWS_PER_MAP * n_components, MAX_VALUES // source.shape[1]))
    stream = BatchStream(source, batch_size, masks_of(source, reduction, seed), seed, whole_rows=False)
    rows = source.read(np.sort(stream.first_rows(n_rows)))
    if len(rows) >= ROWS_PER_MAP * n_components:
        rows[:-1:2] += rows[1::2]  # in place: fresh memory of this size costs as much as the sums
        rows = rows[:-1:2]
    sampled = _sampled(rows)
    if not sampled.any():  # nothing to find in them: noise to start from
        return initial_atoms(rows[:n_components], n_components, constraint, seed)
    with Executor():  # holds BLAS to one thread: the same bits whatever the machine has
        maps = _sparse_combinations(sampled, SPARE * n_components)[:n_components] @ rows
    return initial_atoms(_largest_entries(maps), n_components, constraint, seed)


def _sparse_combinations(rows: Array, n_components: int) -> Array:
    """Return what makes sparse maps, mostly positive, of rows (at most k, n), the sparsest first."""
    combinations = _principal_combinations(rows, n_components)
    maps = combinations @ rows
    rotation = _sparse_rotation(maps)
    turned = rotation @ maps
    sparsest = np.argsort(-np.square(turned**2).sum(axis=1), kind="stable")
    signs = np.where(_cubes(turned).sum(axis=1, keepdims=True) < 0, -1, 1).astype(rows.dtype)
    return ((rotation @ combinations) * signs)[sparsest]


def _principal_combinations(rows: Array, n_components: int) -> Array:
    """Return what makes principal components of rows (at most k, n), each of mean square 1."""
    last = len(rows) - 1
    largest = (max(0, last + 1 - n_components), last)
    values, vectors = linalg.eigh((rows @ rows.T).astype(np.float64), subset_by_index=largest)
    found = values > 1e-6 * values.max()
    scaled = vectors[:, found] * np.sqrt(rows.shape[1] / values[found])
    return scaled[:, ::-1].T.astype(rows.dtype)


def _sparse_rotation(maps: Array) -> Array:
    """Return the rotation of the maps (k, k) that makes the sum of their fourth powers largest."""
    rotation = np.eye(len(maps), dtype=maps.dtype)
    coarse = [np.ascontiguousarray(maps[:, ::COARSE])] if maps.shape[1] >= FEATURES else []
    for part in (*coarse, maps):
        for _ in range(MAX_ROTATIONS):
            # A step of the fixed point: the rotation nearest to the gradient.
            left, _, right = np.linalg.svd(_cubes(rotation @ part) @ part.T)
            turned = left @ right
            change = float(np.abs(1 - (turned * rotation).sum(axis=1)).max())
            rotation = turned
            if change < TOLERANCE:
                break
    return rotation


def _cubes(values: Array) -> Array:
    """Return ``values**3``, by products: as a power NumPy computes it many times slower."""
    return values**2 * values


def _sampled(rows: Array) -> Array:
    """Return features spread over all of them, enough to tell rows apart."""
    enough = max(FEATURES, FEATURES_PER_ROW * len(rows))
    return np.ascontiguousarray(rows[:, :: max(1, rows.shape[1] // enough)])


def _largest_entries(maps: Array) -> Array:
    """Return the maps with zeros but for the largest entries, as many on average as there are features."""
    threshold = np.quantile(np.abs(_sampled(maps)), 1 - 1 / len(maps))
    return np.where(np.abs(maps) > threshold, maps, 0)
