"""Small static curves, as SVG in the colors of the page."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array
from terafactor.report.markup import fragment

WIDTH, HEIGHT = 160, 48
"""Size of a small curve in SVG units; the page scales it."""


def curve(*lines: Array, width: int = WIDTH, height: int = HEIGHT, label: str = "") -> str:
    """Return overlaid lines (n,) on one scale, with a rule at zero if it is in range.

    If a line has more points than the drawing has columns, each column spans its lowest and highest point.
    """
    finite = np.concatenate([line[np.isfinite(line)] for line in lines] or [np.zeros(1)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    span = high - low or 1.0
    ruled = low < 0 < high
    return fragment(
        '<svg class="curve" viewBox="0 0 {{ width }} {{ height }}" preserveAspectRatio="none" role="img"'
        ' aria-label="{{ label }}">'
        '{% if ruled %}<path class="rule" d="M0 {{ zero }}H{{ width }}"/>{% endif %}'
        '{% for path in paths %}<path class="line{{ loop.index0 }}" d="{{ path }}"/>{% endfor %}</svg>',
        paths=[_path(line, low, span, width, height) for line in lines],
        zero=round(float(_y(0.0, low, span, height)), 1),
        ruled=ruled,
        width=width,
        height=height,
        label=label,
    )


def _path(line: Array, low: float, span: float, width: int, height: int) -> str:
    """Return the line as an SVG path, with a gap where it is not finite."""
    x, y = _envelope(np.asarray(line, dtype=np.float64), width // 2)
    points = np.char.add(np.char.mod("%.1f ", x * width), np.char.mod("%.1f", np.nan_to_num(_y(y, low, span, height))))
    borders = np.flatnonzero(np.diff(np.isfinite(y), prepend=False, append=False)).reshape(-1, 2)
    return "".join("M" + "L".join(points[start:stop].tolist()) for start, stop in borders)


def _envelope(line: Array, n_columns: int) -> tuple[Array, Array]:
    """Return positions between 0 and 1, and heights: all points, or the lowest and the highest of each column."""
    if len(line) <= 2 * n_columns:
        return np.linspace(0, 1, len(line)), line
    starts = np.linspace(0, len(line), n_columns, endpoint=False).astype(np.int64)
    extremes = np.stack([np.fmin.reduceat(line, starts), np.fmax.reduceat(line, starts)], axis=1)  # NaN if all are
    return np.repeat((np.arange(n_columns) + 0.5) / n_columns, 2), extremes.ravel()


def _y(values: Array | float, low: float, span: float, height: int) -> Array:
    """Return distances from the top, the origin of SVG, two units inside the border."""
    return np.asarray(height - 2 - (np.asarray(values) - low) / span * (height - 4))
