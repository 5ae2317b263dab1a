"""A matrix like functional MRI: a few smooth, localized, overlapping maps with slow time courses."""

from __future__ import annotations

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array
from terafactor.datasets.planted import autoregressive


def make_brain_like(
    n_samples: int = 3600,
    n_features: int = 20_000,
    n_maps: int = 40,
    noise: float = 1.0,
    smoothness: float = 2.0,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Return a matrix of volumes and the maps that generate them.

    Voxels fill a cube. Each map is a few Gaussian blobs of random position, width and sign; time courses are
    autoregressive; the noise is smooth in space, as in preprocessed images. Features have unit variance.

    Parameters
    ----------
    n_samples, n_features, n_maps : int
    noise : float
        Standard deviation of the noise, relative to that of the signal.
    smoothness : float
        Width of the noise's spatial correlation, in voxels.
    seed : int

    Returns
    -------
    X : ndarray of shape (n_samples, n_features), float32
    maps : ndarray of shape (n_maps, n_features), float32

    Examples
    --------
    >>> from terafactor.datasets import make_brain_like
    >>> X, maps = make_brain_like(n_samples=20, n_features=500, n_maps=3)
    >>> X.shape, maps.shape
    ((20, 500), (3, 500))
    """
    random = generator(seed, Purpose.DATA)
    side = int(np.ceil(n_features ** (1 / 3)))
    axes = np.indices((side, side, side), dtype=np.float32).reshape(3, -1)[:, :n_features]
    maps = np.stack([_blobs(axes, side, random) for _ in range(n_maps)])
    X = autoregressive(n_samples, n_maps, random, coefficient=0.8) @ maps
    X /= X.std()
    for row in X:
        row += noise * smooth_noise((side, side, side), smoothness, random).ravel()[:n_features]
    X /= np.maximum(X.std(axis=0), 1e-6)
    return X, maps


def _blobs(axes: Array, side: int, random: np.random.Generator) -> Array:
    """Return a map with one to three blobs, the strongest positive."""
    total = np.zeros(axes.shape[1], np.float32)
    for number in range(int(random.integers(1, 4))):
        center = random.uniform(0, side, (3, 1)).astype(np.float32)
        width = np.float32(random.uniform(0.05, 0.12) * side)
        height = np.float32(1.0 if number == 0 else random.uniform(-0.7, 0.9))
        total += height * np.exp(-((axes - center) ** 2).sum(axis=0) / (2 * width**2))
    return total


def smooth_noise(shape: tuple[int, ...], smoothness: float, random: np.random.Generator) -> Array:
    """Return white noise on a grid, smoothed by a Gaussian of ``smoothness`` voxels and scaled to unit variance."""
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(random.standard_normal(shape, dtype=np.float32), smoothness, mode="wrap")
    return field / field.std()
