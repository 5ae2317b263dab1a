"""Contests on dense data: sparse codes, sparse maps, non-negative factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core import start
from benchmarks.peers.contest import Contest, Contestant
from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall
from terafactor.data import ArraySource
from terafactor.datasets import make_brain_like, make_planted
from terafactor.problem import Problem
from terafactor.solver import objective


@dataclass(frozen=True)
class DenseSize:
    """Sizes of the contests."""

    n_rows: int = 3_600
    side: int = 27
    """Voxels along an edge of the cube."""

    n_components: int = 40
    batch_size: int = 50
    amounts: tuple[float, ...] = (0.25, 0.5, 1, 2)

    @property
    def n_features(self) -> int:
        return self.side**3


TINY = DenseSize(120, 7, 4, 20, (0.5, 1))
N_TEST_SHARE = 0.1
ALPHA = 20.0
"""Strength of the lasso, with which one code in six is nonzero."""

Learner = Callable[[np.ndarray, float], np.ndarray]


def on_part(X: np.ndarray, learn: Learner) -> Callable[[float], np.ndarray]:
    """Return a fit of a number of passes; a fraction is a pass over the first rows."""

    def fit(amount: float) -> np.ndarray:
        rows = X[: max(1, int(min(1.0, amount) * len(X)))]
        return learn(rows, max(1.0, amount))

    return fit


def judge(test: np.ndarray, problem: Problem) -> Callable[[np.ndarray], float]:
    """Return a function that computes the objective on test rows, with atoms scaled to the boundary of the ball."""

    def score(atoms: np.ndarray) -> float:
        atoms = problem.constraint.fill(np.ascontiguousarray(atoms, np.float32))
        return objective(ArraySource(test), atoms, problem, 1)

    return score


def ours(setting: dict[str, Any], **changes: Any) -> Learner:
    """Return terafactor with some parameters."""

    def learn(rows: np.ndarray, passes: float) -> np.ndarray:
        estimator = MaskedDictionaryLearning(**(setting | changes), n_epochs=passes, n_threads=1, random_state=0)
        return estimator.fit(rows).components_

    return learn


def ours_with(
    train: np.ndarray, setting: dict[str, Any], reductions: Sequence[int], amounts: Sequence[float]
) -> list[Contestant]:
    """Return terafactor as a contestant, once per reduction."""
    fits = {r: on_part(train, ours(setting, reduction=r)) for r in reductions}
    return [Contestant(f"terafactor, r = {r}", fit, amounts) for r, fit in fits.items()]


def sparse_codes(size: DenseSize) -> Contest:
    """Lasso codes and atoms in the l2 ball, the classical problem."""
    train, test = _split(make_brain_like(int(size.n_rows / (1 - N_TEST_SHARE)), size.n_features)[0], size.n_rows)
    problem = Problem(ALPHA, ElasticNet(1.0), NormBall("l2"))
    init = start(train, size.n_components, problem.constraint)
    setting = {"n_components": len(init), "alpha": ALPHA, "batch_size": size.batch_size, "init": init}
    sizes = {"init": init, "batch_size": size.batch_size}
    contestants = [
        *ours_with(train, setting, (1, 10), size.amounts),
        Contestant("scikit-learn MiniBatchDictionaryLearning", on_part(train, _scikit_learn(**sizes)), size.amounts,
                   "sklearn", "scikit-learn"),
        Contestant("SPAMS trainDL", _spams(train, **sizes), size.amounts, "spams", "spams-bin"),
    ]  # fmt: skip
    return Contest(
        "sparse_codes", "Sparse codes: lasso, atoms in the l2 ball",
        f"{train.shape[0]:,} x {train.shape[1]:,} like functional MRI, float32, k = {len(init)}, batches of "
        f"{size.batch_size}, the same rows as initial atoms, lasso of strength {ALPHA:g}. SPAMS gets its data in its "
        "own memory order, untimed.",
        contestants, judge(test, problem), "objective on held-out rows",
    )  # fmt: skip


def _split(X: np.ndarray, n_train: int) -> tuple[np.ndarray, np.ndarray]:
    return X[:n_train], X[n_train:]


def _scikit_learn(init: np.ndarray, batch_size: int) -> Learner:
    def learn(rows: np.ndarray, passes: float) -> np.ndarray:
        from sklearn.decomposition import MiniBatchDictionaryLearning

        estimator = MiniBatchDictionaryLearning(
            len(init), alpha=ALPHA, batch_size=batch_size, max_iter=int(passes), fit_algorithm="cd", dict_init=init,
            random_state=0, tol=0, max_no_improvement=None,
        )  # fmt: skip
        return estimator.fit(rows).components_

    return learn


def _spams(train: np.ndarray, init: np.ndarray, batch_size: int) -> Callable[[float], np.ndarray]:
    by_column, start_by_column = (np.asfortranarray(matrix.T) for matrix in (train, init))

    def fit(amount: float) -> np.ndarray:
        import spams

        return spams.trainDL(
            by_column, D=start_by_column, lambda1=ALPHA, mode=2, modeParam=0, batchsize=batch_size,
            iter=max(1, int(amount * by_column.shape[1] / batch_size)), numThreads=1, verbose=False,
        ).T  # fmt: skip

    return fit


def sparse_maps(size: DenseSize) -> Contest:
    """Sparse maps of brain-like volumes, the purpose of nilearn."""
    train, test = _split(make_brain_like(int(size.n_rows / (1 - N_TEST_SHARE)), size.n_features)[0], size.n_rows)
    problem = Problem(2e-4, ElasticNet(0.0), NormBall("l1"))
    setting = {"n_components": size.n_components, "alpha": 2e-4, "penalty": "l2", "constraint": "l1",
               "batch_size": size.batch_size}  # fmt: skip
    nilearn = [
        Contestant(f"nilearn DictLearning, alpha = {alpha:g}", _nilearn(train, size, alpha), size.amounts[-2:],
                   "nilearn", "nilearn")
        for alpha in (1, 10)
    ]  # fmt: skip
    contestants = [
        *ours_with(train, setting, (1, 12), (*size.amounts, 4 * size.amounts[-1])),
        *nilearn,
    ]
    return Contest(
        "sparse_maps", "Sparse maps: atoms in the l1 ball",
        f"{train.shape[0]:,} volumes of {train.shape[1]:,} voxels in ten images, k = {size.n_components}, ridge codes. "
        "nilearn starts from its own independent components and minimizes a penalized form on transposed data; both "
        "are judged by ours, each map scaled to an l1 norm of one. nilearn's images are loaded untimed.",
        contestants, judge(test, problem), "objective on held-out volumes",
    )  # fmt: skip


def _nilearn(train: np.ndarray, size: DenseSize, alpha: float) -> Callable[[float], np.ndarray]:
    images: list[Any] = []

    def fit(amount: float) -> np.ndarray:
        import nibabel
        from nilearn.decomposition import DictLearning

        shape = (size.side, size.side, size.side)
        if not images:
            images.extend(
                nibabel.Nifti1Image(part.T.reshape(*shape, len(part)), np.eye(4)) for part in np.array_split(train, 10)
            )
        estimator = DictLearning(
            size.n_components, mask=nibabel.Nifti1Image(np.ones(shape, np.uint8), np.eye(4)), alpha=alpha,
            n_epochs=max(1, int(amount)), batch_size=20, smoothing_fwhm=None, standardize=None, detrend=False,
            random_state=0, n_jobs=1, verbose=0,
        )  # fmt: skip
        maps = estimator.fit(images).components_img_
        return np.asarray(maps.dataobj).reshape(-1, size.n_components).T

    return fit


def non_negative(size: DenseSize) -> Contest:
    """Non-negative factors, against scikit-learn's online NMF."""
    n_rows = int(size.n_rows / (1 - N_TEST_SHARE))
    X = np.maximum(make_planted(n_rows, size.n_features, size.n_components)[0], 0)
    train, test = _split(X, size.n_rows)
    problem = Problem(1e-6, ElasticNet(1.0, positive=True), NormBall("l2", positive=True))
    init = start(train, size.n_components, problem.constraint)
    setting = {"n_components": len(init), "alpha": 1e-6, "positive_code": True, "positive_dict": True, "init": init,
               "batch_size": size.batch_size}  # fmt: skip
    contestants = [
        *ours_with(train, setting, (1, 10), size.amounts),
        *(Contestant(f"scikit-learn MiniBatchNMF, batches of {batch}", on_part(train, _nmf(init, batch)), size.amounts,
                     "sklearn", "scikit-learn") for batch in (size.batch_size, 1024)),
    ]  # fmt: skip
    return Contest(
        "non_negative", "Non-negative factors",
        f"{train.shape[0]:,} x {train.shape[1]:,}, a planted dictionary with the negative part of the noise cut, "
        f"float32, k = {len(init)}, a negligible penalty, the same initial atoms.",
        contestants, judge(test, problem), "half the squared error on held-out rows",
    )  # fmt: skip


def _nmf(init: np.ndarray, batch_size: int) -> Learner:
    def learn(rows: np.ndarray, passes: float) -> np.ndarray:
        from sklearn.decomposition import MiniBatchNMF

        estimator = MiniBatchNMF(
            len(init), init="custom", batch_size=batch_size, max_iter=int(passes), tol=0, max_no_improvement=None,
            random_state=0,
        )  # fmt: skip
        codes = np.full((len(rows), len(init)), rows.mean(), rows.dtype)
        estimator.fit_transform(rows, W=codes, H=init.astype(rows.dtype).copy())
        return estimator.components_

    return learn
