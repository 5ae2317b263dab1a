"""Small components among many features: how many of the planted ones each method finds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.learning.data import DataSet, sparse_maps
from benchmarks.reduction.methods import Method, Task

ALPHA = 1e-5
"""Strength of the penalty. The code of a map of s voxels in the l1 ball is about s, so it costs ALPHA / 2 * s ** 2. A
hundred times as much exceeds the energy of the largest maps, s / 2, and splits them between atoms."""

FOUND = 0.8
"""Correlation of an atom with a planted map from which the map counts as found."""


@dataclass(frozen=True)
class Size:
    """Sizes of the simulation."""

    n_rows: int = 600
    n_features: int = 200_000
    smallest: int = 50
    largest: int = 5000
    """Voxels of the smallest and of the largest component; sizes are spaced geometrically."""

    n_components: int = 20
    n_passes: int = 5
    n_seeds: int = 3


QUICK, TINY = Size(), Size(60, 2000, 20, 200, 3, 1, 1)


def simulate(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, p) and maps (k, p), which are disjoint runs of ones. Noise is as strong as a map with code 1."""
    random = np.random.default_rng(0)
    sizes = np.geomspace(size.smallest, size.largest, size.n_components).round().astype(int)
    gaps = random.multinomial(size.n_features - sizes.sum(), np.full(size.n_components, 1 / size.n_components))
    maps, place = np.zeros((size.n_components, size.n_features), np.float32), 0
    for number in random.permutation(size.n_components):
        place += gaps[number]
        maps[number, place : place + sizes[number]] = 1
        place += sizes[number]
    codes = random.standard_normal((size.n_rows, size.n_components), np.float32)
    X = random.standard_normal((size.n_rows, size.n_features), np.float32)
    X += codes @ maps
    return X, maps


def correlations(atoms: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Return the largest absolute correlation of each map with an atom."""
    lengths = np.outer(np.linalg.norm(maps, axis=1), np.maximum(np.linalg.norm(atoms, axis=1), 1e-30))
    return np.asarray((np.abs(maps @ atoms.T) / lengths).max(axis=1))


def measure(size: Size, methods: Mapping[str, Method]) -> dict[str, Any]:
    """Return, for each method and seed, the correlation of each map with the closest atom, smallest map first."""
    X, maps = simulate(size)
    data = DataSet("components", lambda: (X, X), size.n_components, sparse_maps(ALPHA), 0)
    found: dict[str, list[list[float]]] = {name: [] for name in methods}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for seed in range(size.n_seeds):
            for name, method in methods.items():
                task = Task(data, X, X[:20], seed, rows=size.n_passes * size.n_rows)
                method(task)
                found[name].append([round(float(value), 4) for value in correlations(task.atoms, maps)])
    return {"sizes": [int(count) for count in maps.sum(axis=1)], "correlations": found}
