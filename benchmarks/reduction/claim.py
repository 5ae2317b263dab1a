"""Progress per row of the paper's masks, on simulated rows whose properties vary one at a time."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.learning.data import DataSet, sparse_maps
from benchmarks.reduction.methods import Method, Task, package

REDUCTION = 12
DEFAULT, ALL, MASKS = "r = 1, default", "r = 1, paper's schedule", "r = 12, paper's schedule"
FASTER = "r = 1, weights t ** -0.6"
FULL = "r = 12, paper's schedule, full statistics"
PAPER: dict[str, Any] = {"batch_size": 40, "forgetting": 0.9}
"""The paper's batch size and exponent of the weights."""

METHODS: dict[str, Method] = {
    DEFAULT: package(),
    FASTER: package(**(PAPER | {"forgetting": 0.6})),
    ALL: package(**PAPER),
    MASKS: package(REDUCTION, "masked", **PAPER),
    FULL: package(REDUCTION, "full", **PAPER),
}


@dataclass(frozen=True)
class Size:
    """Sizes of the simulation."""

    n_rows: int = 40_000
    """Rows that a fit visits."""

    n_features: int = 2000
    n_seeds: int = 5


QUICK, TINY = Size(), Size(400, 240, 1)


@dataclass(frozen=True)
class Rows:
    """Properties of simulated rows."""

    noise: float = 1.0
    """Standard deviation of the noise, relative to that of the signal."""

    n_active: int = 20
    """Components in use per row."""

    n_copies: int = 1
    """Features that are copies of each other, noise included."""

    smooth: int = 1
    """Neighboring features over which the noise is a moving average."""

    own: float = 0.0
    """Strength of each subject's own maps, relative to the shared ones; a subject has 200 rows."""

    n_components: int = 20
    share_of_features: float = 1.0
    """Features, relative to those of the simulation: varies p / k."""

    length: int = 1
    """Rows that this fit visits, relative to those of the simulation."""

    n_passes: int = 2

    def noise_of_codes(self, reduction: float, n_features: int) -> float:
        """Return the variance of the noise of codes found from 1 / reduction of the features, relative to the codes.

        For least squares with maps that do not overlap. Noise that is the same in ``m`` features, or a moving average
        over ``m``, counts m - 1 times more.
        """
        same = self.n_copies * self.smooth
        return self.noise**2 * self.n_components * (reduction - 1 + same) / n_features


FIVE: dict[str, Any] = {"n_components": 5, "n_active": 5}
MORE = 6
"""The longest fits visit this multiple of the rows."""

VARIED = {
    "reference": Rows(),
    "noise 0.1": Rows(noise=0.1),
    "noise 3": Rows(noise=3.0),
    "noise 10": Rows(noise=10.0),
    "3 of 20 components per row": Rows(n_active=3),
    "subjects with own maps": Rows(own=1.0),
    "features in 20 copies": Rows(n_copies=20),
    "smooth noise": Rows(smooth=20),
    "6 times the rows": Rows(length=MORE),
    "p = 500": Rows(share_of_features=0.25),
    "p = 500, 6 times the rows": Rows(share_of_features=0.25, length=MORE),
    "p = 8,000, 6 times the rows": Rows(share_of_features=4.0, length=MORE, n_passes=8),
    "noise 3, p = 8,000, 6 times the rows": Rows(noise=3.0, share_of_features=4.0, length=MORE, n_passes=8),
    "5 components": Rows(**FIVE),
    "5 components, noise 3": Rows(**FIVE, noise=3.0),
    "5 components, noise 3, 6 times the rows": Rows(**FIVE, noise=3.0, length=MORE),
    "5 components, noise 3, p = 8,000, 6 times the rows": Rows(
        **FIVE, noise=3.0, share_of_features=4.0, length=MORE, n_passes=8
    ),
    "5 components, noise 3, p = 500, 6 times the rows": Rows(**FIVE, noise=3.0, share_of_features=0.25, length=MORE),
    "5 components, p = 500, 6 times the rows": Rows(**FIVE, share_of_features=0.25, length=MORE),
    "5 components, noise 0.1, p = 500, 6 times the rows": Rows(**FIVE, noise=0.1, share_of_features=0.25, length=MORE),
}
"""The reference has p = 2,000 and k = 20."""

SUBJECT = 200
"""Rows of a subject."""


def simulate(rows: Rows, size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows. Maps are bumps over a tenth of the features."""
    random, k = np.random.default_rng(0), rows.n_components
    n_features = max(2 * k, int(size.n_features * rows.share_of_features)) // rows.n_copies
    n_rows, n_test = rows.length * size.n_rows // rows.n_passes, max(20, min(300, size.n_rows // 10))
    maps = bumps(k, n_features, random)
    codes = random.standard_normal((n_rows + n_test, k)) * (random.random((n_rows + n_test, k)) < rows.n_active / k)
    X = np.empty((len(codes), n_features), np.float32)
    for start in range(0, len(X), SUBJECT):
        own = rows.own * bumps(k, n_features, random) if rows.own else 0.0
        X[start : start + SUBJECT] = codes[start : start + SUBJECT] @ (maps + own)
    X /= X.std()
    for start in range(0, len(X), SUBJECT):
        part = X[start : start + SUBJECT]
        part += np.float32(rows.noise) * smoothed(random.standard_normal(part.shape, np.float32), rows.smooth)
    X /= X.std()
    X = X[random.permutation(len(X))]
    X = np.repeat(X, rows.n_copies, axis=1)
    return X[n_test:], X[:n_test]


def smoothed(noise: np.ndarray, width: int) -> np.ndarray:
    """Return moving averages of noise (n, p) on a circle, with the same variance."""
    return sum(np.roll(noise, place, axis=1) for place in range(width)) / np.float32(np.sqrt(width))


def bumps(k: int, n_features: int, random: np.random.Generator) -> np.ndarray:
    """Return maps (k, n_features) with one bump each, of random sign and place, on a circle."""
    places = np.arange(n_features) / n_features
    distance = np.abs((places - random.random((k, 1)) + 0.5) % 1 - 0.5)
    return np.sign(random.standard_normal((k, 1))) * np.exp(-((distance / 0.03) ** 2))


def measure(size: Size) -> dict[str, Any]:
    """Return the curves of all settings and methods."""
    found = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for name, rows in VARIED.items():
            train, test = simulate(rows, size)
            data = DataSet(name, lambda: (train, test), rows.n_components, sparse_maps(1e-3), 0)  # noqa: B023
            curves = {
                method: [
                    asdict(learn(Task(data, train, test, seed, rows=rows.length * size.n_rows)))
                    for seed in range(size.n_seeds)
                ]
                for method, learn in METHODS.items()
            }
            empty = float(0.5 * np.square(test, dtype=np.float64).sum() / len(test))
            found[name] = {"rows": asdict(rows), "shape": list(train.shape), "without_atoms": empty, "curves": curves}
    return found
