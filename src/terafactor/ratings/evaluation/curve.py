"""Plot of a cross-validation. Imports matplotlib when called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from terafactor._durable import open_durably
from terafactor.data.sources.formats import require

if TYPE_CHECKING:
    from terafactor.ratings.evaluation.cross_validation import CrossValidationResult

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Blue, vermilion, green and purple of the Okabe-Ito palette, which is safe for color-blind readers."""


def draw_curve(results: Sequence[CrossValidationResult], path: Path) -> Path:
    """Plot the RMSE against alpha, with the range over splits; a dashed line shows the learned regularization."""
    require("matplotlib", extra="report", purpose="the curve of a cross-validation")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    sizes = sorted({result.n_components for result in results})
    for number, size in enumerate(sizes):
        color = COLORS[number % len(COLORS)]
        own = [result for result in results if result.n_components == size]
        graded = sorted((r for r in own if r.alpha is not None), key=lambda r: r.alpha or 0.0)
        if graded:
            strengths, errors = [float(r.alpha or 0) for r in graded], np.array([r.errors for r in graded])
            axes.plot(strengths, errors.mean(axis=1), color=color, marker="o", markersize=4, label=f"{size} factors")
            axes.fill_between(strengths, errors.min(axis=1), errors.max(axis=1), color=color, alpha=0.15, linewidth=0)
        for learned in (r for r in own if r.alpha is None):
            axes.axhline(learned.mean, color=color, linestyle="--", label=f"{size} factors, learned")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("alpha (logarithmic scale)")
    axes.set_ylabel("RMSE on held-out ratings")
    axes.set_title("Error by regularization strength; lower is better", loc="left", size=12, weight="bold")
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
    with open_durably(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".") or "png")
    return path
