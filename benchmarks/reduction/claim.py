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
FULL = "r = 12, paper's schedule, full statistics"
PAPER: dict[str, Any] = {"batch_size": 40, "forgetting": 0.9}
"""The paper's batch size and exponent of the weights."""

METHODS: dict[str, Method] = {
    DEFAULT: package(),
    ALL: package(**PAPER),
    MASKS: package(REDUCTION, "masked", **PAPER),
    FULL: package(REDUCTION, "full", **PAPER),
}


@dataclass(frozen=True)
class Size:
    """Sizes of the simulation."""

    n_rows: int = 40_000
    """Rows of a fit: two passes."""

    n_features: int = 2000
    n_seeds: int = 3


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

    own: float = 0.0
    """Strength of each subject's own maps, relative to the shared ones; a subject has 200 rows."""

    n_components: int = 20
    share_of_features: float = 1.0
    """Share of the features that the simulation uses: varies p / k."""

    length: int = 1
    """Multiple of the rows of the simulation that this fit visits."""


VARIED = {
    "reference": Rows(),
    "noise 0.1": Rows(noise=0.1),
    "noise 3": Rows(noise=3.0),
    "noise 10": Rows(noise=10.0),
    "3 of 20 components per row": Rows(n_active=3),
    "subjects with own maps": Rows(own=1.0),
    "features in 20 copies": Rows(n_copies=20),
    "p / k = 25": Rows(share_of_features=0.25),
    "5 components": Rows(n_components=5, n_active=5),
    "5 components, noise 3": Rows(n_components=5, n_active=5, noise=3.0),
    "5 components, p = 500, 240,000 rows": Rows(n_components=5, n_active=5, share_of_features=0.25, length=6),
    "the same, noise 0.1": Rows(n_components=5, n_active=5, share_of_features=0.25, length=6, noise=0.1),
}


def simulate(rows: Rows, size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows. Maps are bumps over a tenth of the features."""
    random, k = np.random.default_rng(0), rows.n_components
    n_features = max(2 * k, int(size.n_features * rows.share_of_features)) // rows.n_copies
    n_rows, n_test = rows.length * size.n_rows // 2, max(20, min(300, size.n_rows // 10))
    maps = bumps(k, n_features, random)
    codes = random.standard_normal((n_rows + n_test, k)) * (random.random((n_rows + n_test, k)) < rows.n_active / k)
    X = codes @ maps
    if rows.own:
        for start in range(0, len(X), 200):
            X[start : start + 200] += codes[start : start + 200] @ (rows.own * bumps(k, n_features, random))
    X /= X.std()
    X += rows.noise * random.standard_normal(X.shape)
    X = np.repeat(X / X.std(), rows.n_copies, axis=1).astype(np.float32)
    X = X[random.permutation(len(X))]
    return np.ascontiguousarray(X[n_test:]), np.ascontiguousarray(X[:n_test])


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
