"""Pictures of the demo. Needs matplotlib, which is imported when something is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array

DPI = 150

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Blue, vermilion, green and purple of Okabe and Ito, told apart by colour-blind readers too."""

MARKERS = ("o", "s", "^", "D")

GREY = "#555555"


@dataclass(frozen=True)
class AtomsPanel:
    """Atoms of one fit, to be drawn as a mosaic."""

    title: str
    subtitle: str
    atoms: Array
    """Pictures (k, height, width, 3) in any range."""


@dataclass(frozen=True)
class Curve:
    """How an objective fell in one fit."""

    label: str
    seconds: Sequence[float]
    objectives: Sequence[float]


def rescale(atoms: Array) -> Array:
    """Return each atom (k, height, width, channels) stretched to 0..1; a constant one becomes 0."""
    low = atoms.min(axis=(1, 2, 3), keepdims=True)
    span = atoms.max(axis=(1, 2, 3), keepdims=True) - low
    return np.asarray((atoms - low) / np.where(span > 0, span, 1))


def mosaic(atoms: Array, *, gap: int = 2) -> Array:
    """Return the atoms (k, height, width, channels) in reading order on a white square grid, one picture."""
    n_atoms, height, width, channels = atoms.shape
    across = math.ceil(math.sqrt(n_atoms))
    down = math.ceil(n_atoms / across)
    cells = np.ones((down * across, height + gap, width + gap, channels))
    cells[:n_atoms, :height, :width] = rescale(atoms)
    grid = cells.reshape(down, across, height + gap, width + gap, channels).swapaxes(1, 2)
    return grid.reshape(down * (height + gap), across * (width + gap), channels)[:-gap, :-gap]


def draw_atoms(panels: Sequence[AtomsPanel], title: str, path: Path, *, panel_pixels: int = 900) -> Path:
    """Draw the mosaics side by side; return the file written.

    Axes are placed by the pixel and mosaics enlarged by a whole number, so that all pixels of an atom are drawn alike.
    """
    pictures = [mosaic(panel.atoms) for panel in panels]
    height, width = pictures[0].shape[:2]
    zoom = max(1, round(panel_pixels / max(height, width)))
    margin, header, footer = 45, 125, 60
    total_width = len(panels) * (width * zoom + margin) + margin
    total_height = header + height * zoom + footer
    figure = new_figure(total_width / DPI, total_height / DPI)
    figure.text(margin / total_width, 1 - 28 / total_height, title, size=14, weight="bold", va="top")
    for number, (panel, picture) in enumerate(zip(panels, pictures, strict=True)):
        left = margin + number * (width * zoom + margin)
        box = (left / total_width, footer / total_height, width * zoom / total_width, height * zoom / total_height)
        draw_panel(figure.add_axes(box), panel, picture)
    note = "Most used atom first, on held-out patches; each is stretched to its own range of colours."
    figure.text(margin / total_width, 20 / total_height, note, size=9, color=GREY)
    figure.savefig(path)
    return path


def draw_panel(axes: Any, panel: AtomsPanel, picture: Array) -> None:
    """Draw one mosaic with its titles."""
    axes.imshow(picture, interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(panel.title, loc="left", size=12)
    axes.set_title(panel.subtitle, loc="right", size=10, color=GREY)


def draw_curves(curves: Sequence[Curve], path: Path) -> Path:
    """Draw objectives against learning time; return the file written."""
    figure = new_figure(7.2, 4.4, layout="constrained")
    axes = figure.add_subplot()
    for curve, colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
        label = f"{curve.label}: {curve.objectives[-1]:.3f} after {curve.seconds[-1]:.1f} s"
        axes.plot(curve.seconds, curve.objectives, color=colour, marker=marker, markersize=5, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("learning time (seconds, logarithmic scale)")
    axes.set_ylabel("held-out objective (mean per patch)")
    axes.set_title("Objective on held-out patches; lower is better", loc="left", size=12, weight="bold")
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
    figure.savefig(path)
    return path


def new_figure(width: float, height: float, **options: Any) -> Any:
    """Return a white figure of this many inches that draws in memory and leaves pyplot alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure
