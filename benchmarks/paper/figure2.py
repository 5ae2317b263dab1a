"""Figure 2: atlases of a full run, of a full-row run cut at the time of the masked one, and of the masked run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import drawn, show, table
from benchmarks.paper.brain import ALPHAS, Study, rows_of, setting, studies, warm_up
from benchmarks.paper.sizes import BRAIN_FIELDS, Size
from benchmarks.recording import CpuRecorder, recorded
from terafactor import MaskedDictionaryLearning
from terafactor.datasets import matched_correlation

TITLE = "Figure 2: atlases in the same time"
REDUCTION = 12
FIELDS = BRAIN_FIELDS
PUBLISHED = (
    "The paper, on HCP: the original online algorithm takes 235 h for one epoch; in 10 h it sees 1/24 of an epoch, and "
    "the proposed one half an epoch at r = 12, whose maps are less noisy and closer to those of the full run."
)


def measure(size: Size) -> dict[str, Any]:
    """Return times, shares of the data, similarity of the maps to those of the full run, and pictures."""
    study = studies(size)[0]
    warm_up(study)
    whole = _fit(study, study.train)
    ours = _fit(study, rows_of(study.train, 0.5), reduction=REDUCTION)
    part = _fit(study, study.train, most=ours.seconds)
    atlases = {"r = 1, full": whole, "r = 1, same time": part, f"r = {REDUCTION}, half": ours}
    return {
        "study": study.description,
        "atlases": {name: _facts(study, atlas, whole.maps) for name, atlas in atlases.items()},
        "pictures": {name: outlines(atlas.maps) for name, atlas in atlases.items()},
    }


@dataclass(frozen=True)
class Atlas:
    """Maps, and the cost of learning them."""

    maps: np.ndarray
    seconds: float
    n_samples: int
    objective: float


def _fit(study: Study, rows: Any, reduction: float = 1, most: float = float("inf")) -> Atlas:
    estimator = MaskedDictionaryLearning(**setting(study, ALPHAS["low"], reduction), n_epochs=study.n_epochs)
    recorder = recorded(estimator, estimator._task().open_data(rows), CpuRecorder(most=most))
    n_samples = recorder.history[-1].n_samples
    return Atlas(estimator.components_, recorder.cpu_seconds[-1], n_samples, estimator.objective(study.test))


def _facts(study: Study, atlas: Atlas, reference: np.ndarray) -> dict[str, Any]:
    return {
        "seconds": atlas.seconds,
        "epochs": atlas.n_samples / study.train.shape[0],
        "objective": atlas.objective,
        "reference": matched_correlation(atlas.maps, reference),
        "truth": None if study.maps is None else matched_correlation(atlas.maps, study.maps),
    }


def outlines(components: np.ndarray) -> list[list[int]]:
    """Return the strongest map at each pixel, seen from above; 0 where no map reaches half of its maximum.

    Voxels fill a cube in order, as in the simulated study.
    """
    side = int(np.ceil(components.shape[1] ** (1 / 3) - 1e-9))
    cube = np.zeros((len(components), side**3), np.float32)
    cube[:, : components.shape[1]] = np.abs(components)
    seen = cube.reshape(len(components), side, side, side).max(axis=3)
    most = np.maximum(seen.max(axis=(1, 2), keepdims=True), 1e-30)
    strength = seen / most
    strongest = strength.argmax(axis=0)
    return np.where(strength.max(axis=0) >= 0.5, strongest + 1, 0).tolist()


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the atlases next to each other."""
    with drawn(path, len(result["pictures"]), width=3.2) as axes:
        for axis, (name, picture) in zip(axes, result["pictures"].items(), strict=True):
            labels = np.array(picture)
            axis.imshow(np.where(labels > 0, labels * 7 % 20, np.nan), cmap="tab20", interpolation="nearest")
            facts = result["atlases"][name]
            axis.set_title(f"{name}\n{facts['seconds']:.2g} s, {facts['epochs']:.2g} passes", fontsize=9)
            axis.set_axis_off()


def describe(result: dict[str, Any]) -> list[str]:
    """Return the table of similarities and the comparison with the paper's claim."""
    headings = (
        "atlas",
        "s",
        "passes over the rows",
        "test objective",
        "similarity to the full run",
        "similarity to the truth",
    )
    lines = [
        f"{result['study']}; each region belongs to the strongest map, where it exceeds half of its maximum.",
        "",
    ]
    lines += table(headings, [(name, *facts.values()) for name, facts in result["atlases"].items()])
    _, part, ours = result["atlases"].values()
    what, measure = ("truth", "truth") if ours["truth"] is not None else ("reference", "full run")
    closer = "closer to" if ours[what] > part[what] else "no closer to"
    objective = 100 * (ours["objective"] / part["objective"] - 1)
    sentence = (
        f"- In the same time ours saw {show(ours['epochs'] / part['epochs'])} times the data (paper: 12); its maps are "
        f"{closer} the {measure} (mean correlation {ours[what]:.3f} against {part[what]:.3f}; in the paper: closer to "
        f"those of the full run, by eye), and its test objective is {objective:+.1f} % from that of the part. The "
        "similarity to the full run favors the part, which consists of the first steps of that very run."
    )
    return [*lines, sentence, ""]
