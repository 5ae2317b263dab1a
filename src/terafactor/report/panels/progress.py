"""Objective against time, samples and bytes read; sparsity and memory along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from terafactor._typing import Array
from terafactor.report.charts import Axis, Curve, line_chart
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.panels.summary import lowest
from terafactor.report.story import Story

X_AXES = (Axis("time", "duration"), Axis("rows seen", "count"), Axis("bytes read", "data_size"))

NO_CURVE = """
<p class="note">The {{ name }} is known at the end only, so there is no curve. <code>fit(X, validation=rows)</code> records
the objective on held-out rows along the way.</p>
"""


class ProgressPanel(Panel):
    """How the run went; several runs share the axes."""

    name, title = "progress", "Progress"

    def applies(self, story: Story) -> bool:
        return len(story.known_progress) > 0

    def draw(self, story: Story) -> str:
        return self.compare([story])

    def compare(self, stories: Sequence[Story]) -> str:
        shown = [story for story in stories if self.applies(story)]
        if all(len(story.known_progress) < 2 for story in shown):
            return fragment(NO_CURVE, name=shown[0].progress_name)
        figure = shown[0].progress_name
        main = _chart(_caption(shown), Axis(figure), shown, lambda story: story.progress, small=False)
        more = [
            _chart(
                "Surrogate: what the steps minimise, on the rows so far",
                Axis("surrogate"),
                shown,
                partial(_column, name="surrogate"),
            )
            if shown[0].held_out
            else "",
            _chart(
                "Sparsity of atoms: l1 norm / l2 norm, smaller is sparser",
                Axis("l1 / l2"),
                shown,
                partial(_column, name="sparsity"),
            ),
            _chart("Memory: largest so far", Axis("memory", "data_size"), shown, partial(_column, name="memory")),
        ]
        return fragment(
            '{{ main }}<div class="pair">{% for chart in more %}{{ chart }}{% endfor %}</div>', main=main, more=more
        )


def _chart(
    caption: str, axis: Axis, stories: Sequence[Story], values: Callable[[Story], Array], *, small: bool = True
) -> str:
    """Return a chart of one figure of the histories; the small ones are drawn against time only."""
    axes = X_AXES[:1] if small else X_AXES
    curves = [Curve(story.title, _positions(story)[: len(axes)], values(story)) for story in stories]
    return line_chart(caption, axes, axis, curves, small=small)


def _positions(story: Story) -> list[Array]:
    return [_column(story, name) for name in ("seconds", "n_samples", "bytes_read")]


def _column(story: Story, name: str) -> Array:
    return np.array([getattr(line, name) for line in story.history], dtype=np.float64)


def _caption(stories: Sequence[Story]) -> str:
    story = stories[0]
    if len(stories) > 1:
        return fragment(
            "{{ name | capitalize }} of {{ n }} runs; lower is better", name=story.progress_name, n=len(stories)
        )
    known = story.known_progress
    return fragment(
        "{{ name | capitalize }}: from {{ first | number }} to {{ last | number }}, lowest {{ lowest | number }}",
        name=story.progress_name,
        first=float(known[0]),
        last=float(known[-1]),
        lowest=lowest(story),
    )
