"""Data and fits of figures 1 to 3: brain volumes, sparse maps, ridge codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.sizes import Size
from benchmarks.recording import CpuRecorder, recorded
from terafactor import MaskedDictionaryLearning, MatrixSource, RandomMasks, open_source
from terafactor.datasets import make_brain_like
from terafactor.training.holdout import hold_out_rows

CACHE = Path.home() / ".cache" / "terafactor-data"
REAL = ("sub-RAPIDTIDETEST.nii.gz", "sub-RAPIDTIDETEST_brainmask.nii.gz")
ALPHAS = {"high": 2e-3, "low": 2e-4}
"""The paper's lambda of 1e-3 and 1e-4; our ridge penalty has a half, so alpha is twice as much."""

N_TEST = 200


@dataclass(frozen=True)
class Study:
    """Volumes to learn from and volumes to test on."""

    name: str
    train: Any
    test: Any
    n_components: int
    n_epochs: float
    batch_size: int = 40
    maps: np.ndarray | None = None
    """The true maps of a simulated study."""

    @property
    def description(self) -> str:
        n, p = self.train.shape
        return f"{self.name}, {n:,} volumes of {p:,} voxels, k = {self.n_components}, {self.n_epochs:g} epochs"


def studies(size: Size) -> list[Study]:
    """Return the studies available: the user's images, or a simulated study and the real run in the cache."""
    if size.hcp is not None:
        train, test, _ = hold_out_rows(open_source(size.hcp), "1 record", seed=0)
        return [Study("HCP", train, test, 70, 1)]
    found = [] if size.name == "tiny" else real_runs(size.real_epochs)
    return [simulated(size), *found]


@cache
def simulated(size: Size) -> Study:
    """Return a simulated study."""
    n_test = min(N_TEST, size.n_rows // 4)
    X, maps = make_brain_like(size.n_rows + n_test, size.n_features, n_maps=size.n_components)
    batch_size = 40 if size.name != "tiny" else 10
    return Study("simulated", X[n_test:], X[:n_test], size.n_components, size.n_epochs, batch_size, maps)


@cache
def real_runs(n_epochs: float, folder: Path = CACHE / "fmri") -> list[Study]:
    """Return the real run in the cache, standardized per voxel; every twelfth volume is held out."""
    image, mask = (folder / name for name in REAL)
    if not (image.exists() and mask.exists()):
        return []
    import nibabel

    inside = np.asarray(nibabel.load(mask).dataobj) > 0.5
    X = np.asarray(nibabel.load(image).dataobj, dtype=np.float32)[inside].T
    X = X[:, X.std(axis=0) > 0]
    X = np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0))
    for_test = np.arange(len(X)) % 12 == 6
    return [Study("real run", X[~for_test], X[for_test], 20, n_epochs, 20)]


def curve(study: Study, reduction: float, alpha: float, **changes: Any) -> dict[str, list[float]]:
    """Fit with masked statistics, as in the paper, on one thread; return the curve of the test objective."""
    estimator = MaskedDictionaryLearning(
        **(setting(study, alpha, reduction) | {"n_epochs": study.n_epochs} | changes),
    )
    task = estimator._task()
    recorder = CpuRecorder(task.objective(task.open_data(study.test)))
    history = recorded(estimator, task.open_data(study.train), recorder).history
    return {
        "seconds": recorder.cpu_seconds,
        "epochs": [line.n_samples / study.train.shape[0] for line in history],
        "objective": [line.objective for line in history],
        "sparsity": [line.sparsity for line in history],
        "bytes": [line.bytes_read for line in history],
    }


def setting(study: Study, alpha: float, reduction: float = 1) -> dict[str, Any]:
    """Return the parameters of the paper's fMRI experiment."""
    return {
        "reduction": RandomMasks(reduction, statistics="masked"),
        "n_components": study.n_components, "alpha": alpha, "penalty": "l2", "constraint": "l1",
        "batch_size": study.batch_size, "forgetting": 0.9, "n_threads": 1, "random_state": 0,
    }  # fmt: skip


def warm_up(study: Study) -> None:
    """Compile kernels and touch the data once, untimed."""
    few = study.batch_size / study.train.shape[0]
    for reduction in (1, 4):
        curve(study, reduction, ALPHAS["high"], n_epochs=few)


def time_to(curve: Mapping[str, list[float]], target: float) -> float | None:
    """Return the seconds after which the objective stays at or below a target, None if it never does."""
    reached = None
    for seconds, value in zip(curve["seconds"], curve["objective"], strict=True):
        if value > target:
            reached = None
        elif reached is None:
            reached = seconds
    return reached


def rows_of(source: Any, share: float) -> Any:
    """Return the first rows of a study."""
    n_rows = max(1, int(share * source.shape[0]))
    if isinstance(source, MatrixSource):
        from terafactor.data.views.rows import SelectedRows

        return SelectedRows(source, np.arange(n_rows))
    return source[:n_rows]
