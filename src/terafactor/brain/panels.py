"""Panels of the report of an atlas: outlines, maps, sparsity, and the series of one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.brain.drawing import figure_pixels, map_pixels, outline_figure
from terafactor.report import Axis, Curve, Panel, ReportContext, bar_chart, fragment, line_chart, picture

MAX_SERIES = 6
"""Number of maps whose series are drawn."""

SECTION = """
<p class="note">Outlines of {{ shown | length }} maps, each at half its maximum.</p>
<img style="width:100%;background:black" src="{{ outlines }}" alt="outlines of all maps on slices of the brain">
<p class="note">Each map on the slices through its peak, sorted by explained variance: orange is positive, blue
negative.{% if linked %} Each map links to an interactive page.{% endif %}</p>
<div style="display:grid;grid-template-columns:repeat(auto-fill,minmax(18rem,1fr));gap:.8rem">
{% for image, caption in shown %}
<figure style="margin:0">{% if linked %}<a href="{{ linked[loop.index0] }}">{% endif %}
<img style="width:100%;background:black" src="{{ image }}" alt="map {{ loop.index0 }}">{% if linked %}</a>{% endif %}
<figcaption>{{ caption }}</figcaption>
</figure>
{% endfor %}
</div>
"""


class AtlasPanel(Panel):
    """Show the outlines of all maps, as in the figures of the paper, and each map; replaces the panel of atoms.

    Parameters
    ----------
    volumes : ndarray of shape (x, y, z, k)
    background : ndarray of shape (x, y, z)
        Zero outside the brain.
    voxel_sizes : ndarray of shape (3,)
        In mm.
    labels : sequence of str
        Names of the maps, or empty.
    linked : sequence of str
        Links to the page of each map, or empty.
    """

    name, title = "atoms", "Atlas"

    def __init__(
        self,
        volumes: Array,
        background: Array,
        voxel_sizes: Array,
        labels: Sequence[str] = (),
        linked: Sequence[str] = (),
    ) -> None:
        self.volumes, self.background, self.voxel_sizes = volumes, background, voxel_sizes
        self.labels, self.linked = labels, linked

    def draw(self, context: ReportContext) -> str:
        ratios = maps.l1_l2_ratios(np.asarray(context.components))
        outlines = outline_figure(self.volumes, self.background, self.voxel_sizes)
        shown = [
            (picture(self._pixels(number)), self._caption(number, float(ratio))) for number, ratio in enumerate(ratios)
        ]
        return fragment(SECTION, outlines=picture(figure_pixels(outlines)), shown=shown, linked=list(self.linked))

    def _pixels(self, number: int) -> Array:
        return map_pixels(self.volumes[..., number], self.background, self.voxel_sizes)

    def _caption(self, number: int, ratio: float) -> str:
        label = f", {self.labels[number]}" if self.labels else ""
        return f"map {number}{label}: l1/l2 {ratio:.1f}"


class SparsityPanel(Panel):
    """Show the sparsity of each map, as the paper measures it."""

    name, title = "sparsity", "Sparsity of maps"

    def applies(self, context: ReportContext) -> bool:
        return context.components is not None

    def draw(self, context: ReportContext) -> str:
        ratios = maps.l1_l2_ratios(np.asarray(context.components))
        names = [f"map {number}: {ratio:.1f}" for number, ratio in enumerate(ratios)]
        caption = "l1 norm over l2 norm of each map: its square is the effective number of voxels"
        return bar_chart(caption, Axis("maps, sorted by explained variance", "count"), Axis("l1/l2"), ratios, names)


class SeriesPanel(Panel):
    """Show the series of maps in one run; replaces the panel of reconstructed rows.

    Parameters
    ----------
    run_name : str
    series : ndarray of shape (n_volumes, k)
    """

    name, title = "reconstruction", "Series of an example run"

    def __init__(self, run_name: str, series: Array) -> None:
        self.run_name, self.series = run_name, series

    def draw(self, context: ReportContext) -> str:
        volumes = np.arange(len(self.series))
        spread = self.series.std(axis=0)
        scaled = self.series / np.where(spread > 0, spread, 1)  # a single volume has no spread
        shown = range(min(MAX_SERIES, scaled.shape[1]))
        curves = [Curve(f"map {number}", [volumes], scaled[:, number]) for number in shown]
        caption = f"{self.run_name}: the first {len(curves)} maps, each scaled to unit variance"
        return line_chart(caption, [Axis("volume", "count")], Axis("code"), curves)
