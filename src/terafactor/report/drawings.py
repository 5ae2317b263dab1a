"""Small still curves, as SVG that takes the colours of the page."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array
from terafactor.report.markup import fragment

WIDTH, HEIGHT = 160, 48
"""Units of a small curve; the page scales it."""


def curve(*lines: Array, width: int = WIDTH, height: int = HEIGHT, label: str = "") -> str:
    """Return lines (n,) drawn over each other on one scale, with a rule at zero where it is inside.

    Where a line has more points than the drawing has columns, each column spans its lowest and highest.
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
    x, y = _envelope(np.asarray(line, dtype=np.float64), width)
    places = np.round(x * width, 1), np.round(_y(y, low, span, height), 1)
    drawn, pen_up = [], True
    for column, row in zip(*places, strict=True):
        if np.isfinite(row):
            drawn.append(f"{'M' if pen_up else 'L'}{column:g} {row:g}")
        pen_up = not np.isfinite(row)
    return "".join(drawn)


def _envelope(line: Array, n_columns: int) -> tuple[Array, Array]:
    """Return positions between 0 and 1 and heights: the line, or two points per column, its lowest and highest."""
    if len(line) <= 2 * n_columns:
        return np.linspace(0, 1, len(line)), line
    parts = np.array_split(line, n_columns)
    extremes = [(np.nan, np.nan) if np.isnan(part).all() else (np.nanmin(part), np.nanmax(part)) for part in parts]
    return np.repeat((np.arange(n_columns) + 0.5) / n_columns, 2), np.asarray(extremes).ravel()


def _y(values: Array | float, low: float, span: float, height: int) -> Array:
    """Return distances from the top, two units inside the border, where SVG has its zero."""
    return np.asarray(height - 2 - (np.asarray(values) - low) / span * (height - 4))
