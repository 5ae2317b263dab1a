"""Data sets of the study of the reduction: those of the benchmark of learning, with fewer rows, and a packed study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.learning.data import (
    RUN,
    SCENE,
    DataSet,
    Matrices,
    centered_digits,
    fmri,
    hyperspectral,
    lasso,
    photographs,
    sparse_maps,
    split,
    subjects,
)  # fmt: skip
from terafactor.datasets import make_brain_like


@dataclass(frozen=True)
class Study(DataSet):
    """A data set of the study."""

    packed: bool = False
    """Whether the package reads the training rows from a packed store."""

    stages: bool = False
    """Whether to try other lengths of the stages of nested features, too."""


EVERY = {8: 6, 16: 12}
"""Of the hyperspectral patches of a side, one in so many is used."""


def patches(side: int) -> Matrices:
    """Return some of the hyperspectral patches of a side."""
    return few_tests(hyperspectral(side, EVERY[side]))


def few_tests(matrices: Matrices, n_rows: int | None = None) -> Matrices:
    """Return the first training rows, and 100 test rows: evaluations take no longer than fits."""
    train, test = matrices
    return train[:n_rows], np.ascontiguousarray(test[:: max(1, len(test) // 100)])


def large_study(n_rows: int, n_features: int, n_maps: int) -> Matrices:
    """Return simulated volumes."""
    return split(make_brain_like(n_rows + 50, n_features, n_maps=n_maps)[0], 50)


STUDIES = {
    "fmri": Study("Real fMRI, sparse maps", fmri, 20, sparse_maps(1e-3), 0, RUN),
    "subjects": Study("Simulated subjects, sparse maps", lambda: few_tests(subjects(), 1800), 50, sparse_maps(1e-3), 0,
                      stages=True),
    "hyperspectral_8": Study("Hyperspectral patches 8 x 8 x 200, lasso", lambda: patches(8), 48,
                             lasso(5.0), 0, SCENE),
    "photographs": Study("Photographs 32 x 32 in color, lasso", lambda: photographs(32, 3000, 200, color=True), 144,
                         lasso(0.5), 0),
    "hyperspectral_16": Study("Hyperspectral patches 16 x 16 x 200, lasso", lambda: patches(16),
                              100, lasso(10.0), 0, SCENE, stages=True),
    "packed": Study("Simulated study in a packed store, sparse maps", lambda: large_study(400, 200_000, 20), 20,
                    sparse_maps(1e-3), 0, packed=True),
    "hyperspectral_16_256": Study("Hyperspectral patches 16 x 16 x 200, more atoms, lasso",
                                  lambda: patches(16), 256, lasso(10.0), 0, SCENE),
}  # fmt: skip

TINY = {
    "digits": Study("Digits, lasso", lambda: few_tests(centered_digits(), 200), 4, lasso(5.0), 0, stages=True),
    "packed": Study("Simulated study in a packed store, sparse maps", lambda: large_study(60, 2000, 3), 3,
                    sparse_maps(1e-3), 0, packed=True),
}  # fmt: skip
"""Sizes for tests."""
