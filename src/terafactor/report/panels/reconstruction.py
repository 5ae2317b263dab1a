"""Reconstruction of single rows: the best, the median and the worst."""

from __future__ import annotations

from functools import partial

import numpy as np

from terafactor._typing import Array
from terafactor.report import drawings, pictures
from terafactor.report.charts import Axis, histogram
from terafactor.report.context import Example, ReportContext, RowSample
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

MAX_ROW_PIXELS = 40_000
"""Pixels of the picture of a row."""

SECTION = """
<p class="note">{{ note }}</p>
<div class="examples {{ 'pictures' if has_pictures else 'lines' }}">
{% for example, content in examples %}
  <figure>
  <figcaption><b>{{ example.label }}</b>, {{ example.row }}:
  {{ example.explained | percent }} explained</figcaption>
  {{ content }}
  </figure>
{% endfor %}
</div>
{{ distribution }}
"""

TRIPLE = """
<div class="triple">
{% for name, image in images %}<div><img src="{{ image }}" alt="{{ name }}"><span>{{ name }}</span></div>{% endfor %}
</div>
"""

OVERLAY = """
{{ drawing }}<p class="legend"><span class="key line0"></span>row <span class="key line1"></span>reconstruction</p>
"""


class ReconstructionPanel(Panel):
    """Rows next to their reconstructions."""

    name, title = "reconstruction", "Reconstruction of rows"

    def applies(self, context: ReportContext) -> bool:
        return context.sample is not None and bool(np.isfinite(context.sample.explained).any())

    def draw(self, context: ReportContext) -> str:
        sample, shape = context.sample or RowSample(np.zeros((0, 0)), np.zeros(0)), context.picture_shape
        draw = _overlay if shape is None else partial(_triple, shape=shape)
        return fragment(
            SECTION,
            note=_note(sample),
            examples=[(example, draw(example)) for example in sample.examples],
            has_pictures=shape is not None,
            distribution=_distribution(sample),
        )


def _note(sample: RowSample) -> str:
    return fragment(
        "Share of the squared norm of a row that its reconstruction explains: {{ median | percent }} in the median of "
        "{{ n | count }} rows, {{ worst | percent }} at worst.",
        median=float(np.nanmedian(sample.explained)),
        worst=float(np.nanmin(sample.explained)),
        n=len(sample.explained),
    )


def _distribution(sample: RowSample) -> str:
    shares, axis = np.clip(sample.explained, 0, 1), Axis("explained share of a row", "percent")
    return histogram("Rows by explained share", axis, shares, bins=np.linspace(0, 1, 41))


def _triple(example: Example, shape: tuple[int, int, int]) -> str:
    """Return row, reconstruction and difference as pictures on one gray scale."""
    scale = float(np.nanmax(np.abs(example.values), initial=0.0))
    rows = {
        "row": example.values,
        "reconstruction": example.reconstruction,
        "difference": example.values - example.reconstruction,
    }
    images = [(name, _picture(row.reshape(1, *shape), scale)) for name, row in rows.items()]
    return fragment(TRIPLE, images=images)


def _picture(row: Array, scale: float) -> str:
    return pictures.picture(pictures.sprite(pictures.gray(pictures.shrink(row, MAX_ROW_PIXELS), scale), 1))


def _overlay(example: Example) -> str:
    label = f"{example.label} row and its reconstruction"
    drawing = drawings.curve(example.values, example.reconstruction, width=640, height=160, label=label)
    return fragment(OVERLAY, drawing=drawing)
