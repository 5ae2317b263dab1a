"""Objective against time, rows and bytes read; sparsity and memory against time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from terafactor._format import number
from terafactor._typing import Array
from terafactor.report.charts import Axis, Curve, line_chart
from terafactor.report.comparison import differences
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

TIME = Axis("time", "duration")

NO_CURVE = """
<p class="note">
{%- if running -%}
There is one evaluation of the {{ name }} so far; the curve begins with the next one.
{%- else -%}
There is no curve: the {{ name }} was evaluated only once. <code>fit(X, validation=rows)</code> records the objective
on held-out rows during the fit.
{%- endif -%}
</p>
"""

CHARTS = """
{{ main }}{% if more %}<div class="pair">{% for chart in more %}{{ chart }}{% endfor %}</div>{% endif %}
"""

MORE = {
    "sparsity": ("l1 / l2 norm of atoms: smaller is sparser", Axis("l1 / l2")),
    "memory": ("Peak memory", Axis("memory", "data_size")),
}
"""Other quantities in the history: caption and axis of each."""


class ProgressPanel(Panel):
    """Curves of the history; several runs share the axes."""

    name, title = "progress", "Progress"

    def applies(self, context: ReportContext) -> bool:
        return len(context.known_progress) > 0

    def draw(self, context: ReportContext) -> str:
        return self.compare([context])

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        figure = contexts[0].progress_name
        more = dict(MORE) if any(len(context.history) > 1 for context in contexts) else {}
        if contexts[0].objective_is_error:  # factors of ratings can be rotated, so their sparsity means nothing
            more.pop("sparsity", None)
        return fragment(
            CHARTS,
            main=_main_chart(figure, contexts),
            more=[_small_chart(name, caption, axis, contexts) for name, (caption, axis) in more.items()],
        )


def _main_chart(figure: str, contexts: Sequence[ReportContext]) -> str:
    """Return the chart of the progress, or the reason for its absence."""
    if all(len(context.known_progress) < 2 for context in contexts):
        return fragment(NO_CURVE, name=figure, running=contexts[0].running)
    curves = [Curve(context.title, _positions(context), context.progress) for context in contexts]
    x_axes = [TIME, Axis(f"{contexts[0].row_name} seen", "count"), Axis("bytes read", "data_size")]
    return line_chart(_caption(contexts), x_axes, Axis(figure), curves)


def _small_chart(name: str, caption: str, axis: Axis, contexts: Sequence[ReportContext]) -> str:
    """Return a chart of one quantity in the histories, against time only."""
    curves = [Curve(context.title, _positions(context)[:1], _column(context, name)) for context in contexts]
    return line_chart(caption, [TIME], axis, curves, small=True)


def _positions(context: ReportContext) -> list[Array]:
    return [_column(context, name) for name in ("seconds", "n_samples", "bytes_read")]


def _column(context: ReportContext, name: str) -> Array:
    return np.array([getattr(line, name) for line in context.history], dtype=np.float64)


def _caption(contexts: Sequence[ReportContext]) -> str:
    figure, known = contexts[0].progress_name, contexts[0].known_progress
    name = figure[0].upper() + figure[1:]
    if len(contexts) > 1:
        apart = differences(contexts)
        verdict = f", which are not comparable: they differ in {apart}" if apart else "; lower is better"
        return f"{name} of {len(contexts)} runs{verdict}"
    return f"{name}: from {number(known[0])} to {number(known[-1])}, lowest {number(known.min())}"
