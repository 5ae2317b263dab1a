"""A matrix generated from a known dictionary of localized atoms."""

from __future__ import annotations

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array


def make_planted(
    n_samples: int = 3000,
    n_features: int = 6000,
    n_atoms: int = 15,
    noise: float = 0.3,
    seed: int = 0,
    *,
    code_density: float = 1.0,
) -> tuple[Array, Array]:
    """Return a matrix and the dictionary that generates it.

    Atom j is an interval that starts at ``j * p / n_atoms``, with a width uniform in
    ``[p / (2 n_atoms), 1.3 p / n_atoms]``, so that neighbors may overlap; codes are autoregressive in time; the noise
    is white.

    Parameters
    ----------
    n_samples, n_features, n_atoms : int
    noise : float
        Standard deviation of the noise; the series of codes have unit variance.
    seed : int
    code_density : float
        Share of nonzero codes: each row uses each atom with this probability.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features), float32
    atoms : ndarray of shape (n_atoms, n_features), float32

    Examples
    --------
    >>> from terafactor.datasets import make_planted
    >>> X, atoms = make_planted(n_samples=20, n_features=60, n_atoms=3)
    >>> X.shape, atoms.shape
    ((20, 60), (3, 60))
    """
    random = generator(seed, Purpose.DATA)
    pitch = n_features / n_atoms
    atoms = np.zeros((n_atoms, n_features), np.float32)
    for number, width in enumerate(random.uniform(0.5 * pitch, 1.3 * pitch, n_atoms)):
        start = int(number * pitch)
        atoms[number, start : start + int(width)] = 1
    codes = autoregressive(n_samples, n_atoms, random)
    if code_density < 1:
        codes *= random.random(codes.shape) < code_density
    X = codes @ atoms
    X += noise * random.standard_normal(X.shape, dtype=np.float32)
    return X, atoms


def autoregressive(n_samples: int, n_series: int, random: np.random.Generator, *, coefficient: float = 0.7) -> Array:
    """Return autoregressive series (n_samples, n_series) of order one and unit variance, float32."""
    series = random.standard_normal((n_samples, n_series), dtype=np.float32)
    series[1:] *= np.sqrt(1 - coefficient**2)
    for t in range(1, n_samples):
        series[t] += coefficient * series[t - 1]
    return series


def matched_correlation(components: Array, atoms: Array) -> float:
    """Return the mean absolute correlation of known atoms with learned ones, matched one to one.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_features)
    atoms : ndarray of shape (n_atoms, n_features)

    Examples
    --------
    >>> from terafactor.datasets import make_planted, matched_correlation
    >>> _, atoms = make_planted(n_samples=20, n_features=60, n_atoms=3)
    >>> round(matched_correlation(-atoms[::-1], atoms), 6)
    1.0
    """
    from scipy.optimize import linear_sum_assignment

    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.corrcoef(components, atoms)[: len(components), len(components) :]
    correlation = np.nan_to_num(np.abs(correlation))  # a constant atom correlates with nothing
    return float(correlation[linear_sum_assignment(-correlation)].mean())
