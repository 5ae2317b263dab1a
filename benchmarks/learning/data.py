"""Data sets for the benchmark of learning: real ones where available, simulated ones anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from terafactor import ElasticNet, NormBall, PatchSource
from terafactor.datasets import make_brain_like
from terafactor.problem import Problem

FOLDER = Path.home() / ".cache" / "terafactor-data"
Matrices = tuple[np.ndarray, np.ndarray]
"""Training rows and test rows."""


def lasso(alpha: float) -> Problem:
    """Return sparse codes, atoms in the l2 ball."""
    return Problem(alpha, ElasticNet(1.0), NormBall("l2"))


def sparse_maps(alpha: float) -> Problem:
    """Return ridge codes, atoms in the l1 ball."""
    return Problem(alpha, ElasticNet(0.0), NormBall("l1"))


def non_negative(alpha: float) -> Problem:
    """Return non-negative codes and atoms."""
    return Problem(alpha, ElasticNet(1.0, True), NormBall("l2", positive=True))


@dataclass(frozen=True)
class DataSet:
    """A matrix and the problem to solve on it."""

    title: str
    make: Callable[[], Matrices]
    n_components: int
    problem: Problem
    seconds: float
    """Time limit of contestants."""

    needs: str | None = None
    """File in the data folder that the data set needs."""

    @property
    def is_here(self) -> bool:
        return self.needs is None or (FOLDER / self.needs).exists()


def split(X: np.ndarray, n_test: int) -> Matrices:
    """Return training rows and ``n_test`` test rows, in random order."""
    order = np.random.default_rng(0).permutation(len(X))
    return np.ascontiguousarray(X[order[n_test:]]), np.ascontiguousarray(X[order[:n_test]])


def digits() -> Matrices:
    """Return the handwritten digits of scikit-learn."""
    from sklearn.datasets import load_digits

    return split(load_digits().data.astype(np.float32), 297)


def centered_digits() -> Matrices:
    """Return the digits minus their mean."""
    train, test = digits()
    return train - train.mean(axis=0), test - train.mean(axis=0)


def medical_table() -> Matrices:
    """Return the breast cancer table of scikit-learn, standardized."""
    from sklearn.datasets import load_breast_cancer

    X = load_breast_cancer().data
    return split(((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), 100)


def scene() -> np.ndarray:
    """Return the hyperspectral image (145, 145, 200), float32."""
    return np.load(FOLDER / "hyperspectral" / "indian_pines.npy").astype(np.float32)


def spectra() -> Matrices:
    """Return the pixels of the hyperspectral image."""
    pixels = scene().reshape(-1, 200)
    return split(pixels / pixels.std(), 1000)


def hyperspectral(side: int, every: int) -> Matrices:
    """Return patches of the standardized image; test patches come from another part of it."""
    image = scene()
    image = (image - image.mean((0, 1))) / image.std((0, 1))
    train, test = PatchSource([image[:100]], (side, side)), PatchSource([image[100:]], (side, side))
    return train.read(np.arange(0, train.shape[0], every)), test.read(
        np.linspace(0, test.shape[0] - 1, 200).astype(int)
    )


def photographs(side: int, n_rows: int, n_test: int, *, color: bool) -> Matrices:
    """Return patches of two photographs, each minus its mean; test patches come from their lower parts."""
    from sklearn.datasets import load_sample_images

    images = [image.astype(np.float32) / 255 for image in load_sample_images().images]
    if not color:
        images = [image.mean(axis=2, keepdims=True) for image in images]
    train = PatchSource([image[:300] for image in images], (side, side))
    test = PatchSource([image[300:] for image in images], (side, side))
    random = np.random.default_rng(0)
    rows = [np.sort(random.choice(part.shape[0], n, replace=False)) for part, n in ((train, n_rows), (test, n_test))]
    X, T = train.read(rows[0]), test.read(rows[1])
    return X - X.mean(axis=1, keepdims=True), T - T.mean(axis=1, keepdims=True)


def fmri() -> Matrices:
    """Return the volumes of a real run inside its mask, detrended, each voxel of unit variance."""
    import nibabel

    image = nibabel.load(FOLDER / "fmri" / "sub-RAPIDTIDETEST.nii.gz").get_fdata(dtype=np.float32)
    mask = nibabel.load(FOLDER / "fmri" / "sub-RAPIDTIDETEST_brainmask.nii.gz").get_fdata() > 0
    X = image[mask].T
    drifts = np.polynomial.legendre.legvander(np.linspace(-1, 1, len(X)), 3)
    X = X - drifts @ np.linalg.lstsq(drifts, X, rcond=None)[0]
    return split((X / np.maximum(X.std(axis=0), 1e-6)).astype(np.float32), 40)


def planted(n_rows: int = 60_000) -> Matrices:
    """Return rows that combine 30 random atoms, each with probability 15 %."""
    random = np.random.default_rng(0)
    codes = (random.random((n_rows + 500, 30)) < 0.15) * random.standard_normal((n_rows + 500, 30)) * 10
    X = (codes @ planted_atoms() + 0.1 * random.standard_normal((n_rows + 500, 2000))).astype(np.float32)
    return X[500:], X[:500]


def planted_atoms() -> np.ndarray:
    """Return the atoms (30, 2000) of :func:`planted`."""
    atoms = np.random.default_rng(1).standard_normal((30, 2000))
    return atoms / np.linalg.norm(atoms, axis=1, keepdims=True)


def subjects(n_features: int = 20_000, n_maps: int = 50, noise: float = 1.0) -> Matrices:
    """Return simulated volumes of several subjects."""
    return split(make_brain_like(4000, n_features, n_maps=n_maps, noise=noise)[0], 400)


SCENE, RUN = "hyperspectral/indian_pines.npy", "fmri/sub-RAPIDTIDETEST.nii.gz"

DATA_SETS = {
    "digits": DataSet("Digits, non-negative", digits, 16, non_negative(1e-3), 3),
    "digits_lasso": DataSet("Digits, lasso", centered_digits, 32, lasso(5.0), 2),
    "table": DataSet("A table of 30 columns, lasso", medical_table, 10, lasso(0.5), 1),
    "spectra": DataSet("Spectra, non-negative", spectra, 10, non_negative(1e-3), 4, SCENE),
    "hyperspectral_8": DataSet("Hyperspectral patches 8 x 8 x 200, lasso", lambda: hyperspectral(8, 1), 48,
                               lasso(5.0), 10, SCENE),
    "hyperspectral_16": DataSet("Hyperspectral patches 16 x 16 x 200, lasso", lambda: hyperspectral(16, 3), 100,
                                lasso(10.0), 16, SCENE),
    "photographs_12": DataSet("Photographs 12 x 12, lasso", lambda: photographs(12, 200_000, 1000, color=False), 256,
                              lasso(0.15), 12),
    "photographs_32": DataSet("Photographs 32 x 32 in color, lasso", lambda: photographs(32, 20_000, 400, color=True),
                              144, lasso(0.5), 14),
    "fmri": DataSet("Real fMRI, sparse maps", fmri, 20, sparse_maps(1e-3), 3, RUN),
    "planted": DataSet("Planted atoms, lasso", planted, 30, lasso(1.0), 5),
    "subjects": DataSet("Simulated subjects, sparse maps", subjects, 50, sparse_maps(1e-3), 7),
    "noisy_subjects": DataSet("Simulated subjects with strong noise, sparse maps", lambda: subjects(8000, 30, 3.0), 30,
                              sparse_maps(1e-3), 4),
}  # fmt: skip

TINY = {"digits": DataSet("Digits, non-negative", digits, 4, non_negative(1e-3), 0.02),
        "digits_lasso": DataSet("Digits, lasso", centered_digits, 4, lasso(5.0), 0.02)}  # fmt: skip
"""Sizes for tests."""
