"""Interactive charts: the page contains the numbers, and ``static/report.js`` draws them with uPlot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.report.markup import embed_json, fragment

N_BUCKETS = 400
"""Buckets of a long curve; each keeps its first, last, lowest and highest point."""

DIGITS = 9
"""Significant digits of the numbers in the page."""


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Examples
    --------
    >>> from terafactor.report import Axis
    >>> time = Axis("time", "duration")
    """

    label: str
    """A short name."""

    unit: str = "number"
    """Format of its values: "number", "count", "duration", "data_size" or "percent"."""


@dataclass(frozen=True)
class Curve:
    """One curve of a chart.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import Curve
    >>> curve = Curve("first run", xs=[np.arange(3.0)], y=np.array([4.0, 2.0, 1.0]))
    """

    label: str
    """A short name."""

    xs: Sequence[Array]
    """Horizontal positions of its points (n,), for each horizontal axis of the chart."""

    y: Array
    """Vertical positions (n,); points that are not finite are left out."""


def line_chart(
    caption: str, x_axes: Sequence[Axis], y_axis: Axis, curves: Sequence[Curve], *, small: bool = False
) -> str:
    """Return a chart of curves on shared axes, with hover and zoom; buttons select the horizontal axis.

    The caption must describe what the chart shows, for screen readers.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import Axis, Curve, line_chart
    >>> curve = Curve("first run", xs=[np.arange(3.0)], y=np.array([4.0, 2.0, 1.0]))
    >>> html = line_chart("Objective: from 4 to 1", [Axis("time", "duration")], Axis("objective"), [curve])
    """
    drawn = [_as_line(curve) for curve in curves]
    return _figure(caption, "lines", x_axes, y_axis, drawn, small)


def bar_chart(
    caption: str, x_axis: Axis, y_axis: Axis, heights: Array, names: Sequence[str], *, small: bool = True
) -> str:
    """Return a chart with a bar of each of ``heights`` (n,), in this order; hovering shows its name.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import Axis, bar_chart
    >>> html = bar_chart("Norms of atoms", Axis("atoms", "count"), Axis("norm"), np.ones(2), ["atom 0", "atom 1"])
    """
    bars: dict[str, Any] = {
        "label": y_axis.label,
        "xs": [list(range(1, len(heights) + 1))],
        "y": _plain(heights),
        "names": list(names),
    }
    return _figure(caption, "bars", [x_axis], y_axis, [bars], small)


def histogram(caption: str, x_axis: Axis, values: Array, *, bins: Array | int = 30, of: str = "rows") -> str:
    """Return a histogram of values (n,); ``of`` names what is counted.

    bins : number of bins, or their edges (n_bins + 1,).

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import Axis, histogram
    >>> html = histogram("Rows by norm", Axis("norm"), np.random.default_rng(0).random(100))
    """
    counts, edges = np.histogram(values[np.isfinite(values)], bins=bins)
    names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    bars = {"label": of, "xs": [_plain((edges[1:] + edges[:-1]) / 2)], "y": counts.tolist(), "names": names}
    return _figure(caption, "bars", [x_axis], Axis(of, "count"), [bars], small=True)


def thin(values: Array, n_buckets: int = N_BUCKETS) -> Indices:
    """Return the points of a curve to draw: all if it is short, otherwise the extremes of buckets.

    Half of the bucket edges are evenly spaced and half are geometric, so that more points are kept at the beginning,
    which changes most and which a logarithmic axis enlarges.
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
    # uPlot needs ascending positions, and a clock may be set back
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
    """Return numbers for JSON: integers if they are whole, otherwise rounded."""
    return [int(value) if value == int(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
