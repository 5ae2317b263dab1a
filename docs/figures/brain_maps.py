"""Draw docs/figures/brain_maps.png: maps of a real run, learned with all voxels and with one in twelve per step.

Run as ``python docs/figures/brain_maps.py BOLD.nii.gz MASK.nii.gz``, with one run of BOLD volumes and its mask.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.optimize import linear_sum_assignment

from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.drawing import figure_pixels, outline_figure

N_TRAINING = 200
"""Volumes to learn from; the others judge."""

OPTIONS = {"alpha": 5e-4, "high_pass": 0.008, "t_r": 1.5, "random_state": 0, "n_epochs": 80}
"""The same number of steps for both."""


def learn(image: str, mask: str, reduction: float) -> tuple[BrainDictionaryLearning, float]:
    """Return the atlas of the first volumes, and its objective on the last."""
    import nibabel

    series = nibabel.load(image)
    atlas = BrainDictionaryLearning(20, mask=mask, reduction=reduction, **OPTIONS)
    atlas.fit(series.slicer[..., :N_TRAINING])
    return atlas, atlas.objective(series.slicer[..., N_TRAINING:])


def draw(atlas: BrainDictionaryLearning, reference: BrainDictionaryLearning, title: str) -> np.ndarray:
    """Return the outlines of the maps as pixels, in the colors of those of ``reference`` that are most like them."""
    alike = np.corrcoef(reference.components_, atlas.components_)[:20, 20:]
    panel = atlas.panels()[0]
    matched = panel.volumes[..., linear_sum_assignment(-alike)[1]]
    figure = outline_figure(matched, panel.background, panel.voxel_sizes, title)
    figure.set_dpi(110)
    return figure_pixels(figure)


def main() -> None:
    """Learn twice, and save the pictures one above the other."""
    image, mask = sys.argv[1:]
    parts, reference = [], None
    for reduction in (1, 12):
        atlas, objective = learn(image, mask, reduction)
        voxels = "all voxels" if reduction == 1 else f"one voxel in {reduction}"
        title = f"{voxels} per step, {atlas.n_steps_} steps: test objective {objective:,.0f}"
        reference = reference or atlas
        parts.append(draw(atlas, reference, title))
    Image.fromarray(np.concatenate(parts)).save(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
