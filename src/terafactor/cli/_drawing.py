"""Plots of the demo. matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._durable import open_durably
from terafactor._typing import Array

DPI = 150

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Blue, vermilion, green and purple of the Okabe-Ito palette, which color-blind readers can distinguish."""

MARKERS = ("o", "s", "^", "D")

GRAY = "#555555"


@dataclass(frozen=True)
class AtomsPanel:
    """Atoms of one fit, to plot as a mosaic."""

    title: str
    subtitle: str
    atoms: Array
    """Pictures (k, height, width, 3), with values in any range."""


@dataclass(frozen=True)
class Curve:
    """Objective against time in one fit."""

    label: str
    seconds: Sequence[float]
    objectives: Sequence[float]


def rescale(atoms: Array) -> Array:
    """Return the atoms (k, height, width, channels), each rescaled to [0, 1]; constant atoms become 0."""
    low = atoms.min(axis=(1, 2, 3), keepdims=True)
    span = atoms.max(axis=(1, 2, 3), keepdims=True) - low
    return np.asarray((atoms - low) / np.where(span > 0, span, 1))


def mosaic(atoms: Array, *, gap: int = 2) -> Array:
    """Return one picture of the atoms (k, height, width, channels), row by row on a white square grid."""
    n_atoms, height, width, channels = atoms.shape
    across = math.ceil(math.sqrt(n_atoms))
    down = math.ceil(n_atoms / across)
    cells = np.ones((down * across, height + gap, width + gap, channels))
    cells[:n_atoms, :height, :width] = rescale(atoms)
    grid = cells.reshape(down, across, height + gap, width + gap, channels).swapaxes(1, 2)
    return grid.reshape(down * (height + gap), across * (width + gap), channels)[:-gap, :-gap]


def draw_atoms(panels: Sequence[AtomsPanel], title: str, path: Path, *, panel_pixels: int = 900) -> Path:
    """Plot the mosaics side by side; return the file written.

    Axes have integer pixel positions and mosaics an integer zoom, so that all pixels of an atom have the same size.
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
    note = "Sorted by use on held-out patches, most used first; each atom is rescaled to the full range of colors."
    figure.text(margin / total_width, 20 / total_height, note, size=9, color=GRAY)
    save_figure(figure, path)
    return path


def draw_panel(axes: Any, panel: AtomsPanel, picture: Array) -> None:
    """Plot one mosaic with its titles."""
    axes.imshow(picture, interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(panel.title, loc="left", size=12)
    axes.set_title(panel.subtitle, loc="right", size=10, color=GRAY)


def draw_curves(curves: Sequence[Curve], note: str, path: Path) -> Path:
    """Plot objectives against CPU time, with a line at the end of the last curve; return the file written."""
    figure = new_figure(7.2, 4.4, layout="constrained")
    axes = figure.add_subplot()
    for curve, color, marker in zip(curves, COLORS, MARKERS, strict=False):
        label = f"{curve.label}: {curve.objectives[-1]:.3f} after {curve.seconds[-1]:.1f} s"
        axes.plot(curve.seconds, curve.objectives, color=color, marker=marker, markersize=5, label=label)
    axes.axhline(curves[-1].objectives[-1], color=GRAY, linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("CPU time (seconds of one thread, logarithmic scale)")
    axes.set_ylabel("held-out objective (mean per patch)")
    figure.suptitle("Objective on held-out patches; lower is better", x=0.01, ha="left", size=12, weight="bold")
    axes.set_title(note, loc="left", size=9, color=GRAY)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
    save_figure(figure, path)
    return path


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file."""
    with open_durably(path) as file:
        figure.savefig(file, format="png")


def new_figure(width: float, height: float, **options: Any) -> Any:
    """Return a white figure of this size in inches that does not use pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure
