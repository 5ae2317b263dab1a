"""Interactive charts: the numbers go into the page, ``static/report.js`` draws them with uPlot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.report.markup import embed_json, fragment

N_BUCKETS = 400
"""Parts in which a long curve is cut; of each, its first, last, lowest and highest point are kept."""

DIGITS = 7
"""Significant digits of the numbers in the page."""


@dataclass(frozen=True)
class Axis:
    """What a chart is drawn against."""

    label: str
    """Its name, in a few _format."""

    unit: str = "number"
    """How values are written: "number", "count", "duration", "data_size" or "percent"."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    label: str
    """Its name."""

    xs: Sequence[Array]
    """For each horizontal axis of the chart, where its points are (n,)."""

    y: Array
    """How high (n,); points that are not finite are left out."""


def line_chart(
    caption: str, x_axes: Sequence[Axis], y_axis: Axis, curves: Sequence[Curve], *, small: bool = False
) -> str:
    """Return a chart of curves that share their axes, with hover and zoom; buttons choose among horizontal axes.

    caption: what the chart says, in words; those who cannot see the picture have nothing else.
    """
    drawn = [_as_line(curve) for curve in curves]
    return _figure(caption, "lines", x_axes, y_axis, drawn, small)


def bar_chart(
    caption: str, x_axis: Axis, y_axis: Axis, heights: Array, names: Sequence[str], *, small: bool = True
) -> str:
    """Return a chart with one bar per name, in this order; hovering shows the name."""
    bars: dict[str, Any] = {
        "label": y_axis.label,
        "xs": [list(range(1, len(heights) + 1))],
        "y": _plain(heights),
        "names": list(names),
    }
    return _figure(caption, "bars", [x_axis], y_axis, [bars], small)


def histogram(caption: str, x_axis: Axis, values: Array, *, bins: Array | int = 30, of: str = "rows") -> str:
    """Return a chart of how many values lie in each bin; ``of`` names what they belong to."""
    counts, edges = np.histogram(values[np.isfinite(values)], bins=bins)
    names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    bars = {"label": of, "xs": [_plain((edges[1:] + edges[:-1]) / 2)], "y": counts.tolist(), "names": names}
    return _figure(caption, "bars", [x_axis], Axis(of, "count"), [bars], small=True)


def thin(values: Array, n_buckets: int = N_BUCKETS) -> Indices:
    """Return which points of a curve to draw: all of a short one, else extremes of buckets.

    Half of the buckets have equal lengths and half have lengths that grow, so that the beginning, where most happens
    and which a logarithmic axis stretches, keeps its points.
    """
    n_points = len(values)
    if n_points <= 4 * n_buckets:
        return np.arange(n_points)
    even = np.linspace(0, n_points, n_buckets // 2 + 1)
    growing = np.geomspace(1, n_points, n_buckets // 2)
    edges = np.unique(np.concatenate([even, growing]).astype(np.int64))
    kept = [edges[:-1], edges[1:] - 1]
    for extreme in (np.argmin, np.argmax):
        kept.append(np.array([low + extreme(values[low:high]) for low, high in pairwise(edges)]))
    return np.unique(np.concatenate(kept))


def _as_line(curve: Curve) -> dict[str, Any]:
    finite = np.flatnonzero(np.isfinite(curve.y))
    kept = finite[thin(curve.y[finite])]
    # uPlot asks for ascending positions, and a clock may be set back
    xs = [_plain(np.maximum.accumulate(np.asarray(x, dtype=np.float64)[kept])) for x in curve.xs]
    return {"label": curve.label, "xs": xs, "y": _plain(curve.y[kept])}


def _figure(
    caption: str, kind: str, x_axes: Sequence[Axis], y_axis: Axis, series: list[dict[str, Any]], small: bool
) -> str:
    content = {
        "kind": kind,
        "small": small,
        "x": [{"label": axis.label, "unit": axis.unit} for axis in x_axes],
        "y": {"label": y_axis.label, "unit": y_axis.unit},
        "series": series,
    }
    return fragment(
        '<figure class="chart"><figcaption>{{ caption }}</figcaption>'
        '<script type="application/json">{{ content }}</script></figure>\n',
        caption=caption,
        content=embed_json(content),
    )


def _plain(values: Array) -> list[float]:
    """Return numbers for JSON, whole ones as integers, others to a few digits."""
    return [int(value) if value == int(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
