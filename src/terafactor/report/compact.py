"""A small report for notebooks, without scripts or external resources."""

from __future__ import annotations

import numpy as np

from terafactor.report import drawings, pictures
from terafactor.report.advice import notices
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panels.summary import newest

COMPACT_ATOMS = 40
"""Atoms shown."""

COMPACT = """
<div style="font: 13px/1.5 -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif; max-width: 46em">
<style>
.terafactor-compact path { fill: none; stroke: #0072b2; stroke-width: 1.5; vector-effect: non-scaling-stroke }
.terafactor-compact .rule { stroke: #9aa3ad; stroke-width: .5 }
.terafactor-compact svg { width: 100%; height: 4.5em }
</style>
<p style="margin: .5em 0"><b>{{ context.title }}</b>: {{ n_atoms | count }} atoms of {{ n_features | count }} features
{%- if context.last %}, learned from {{ context.last.n_samples | count }} rows in {{ context.last.seconds | duration }};
{{ context.progress_name }} {{ figure | number }}{% endif %}.</p>
{% if curve %}<div class="terafactor-compact">{{ curve }}</div>{% endif %}
{% if image %}
<img src="{{ image }}" alt="atoms" style="image-rendering: pixelated; width: 100%">
{% endif %}
{% for notice in notices %}<p style="margin: .3em 0">{{ notice.what }} <i>{{ notice.remedy }}</i></p>{% endfor %}
<p style="margin: .3em 0; opacity: .7"><code>report("out.html", X)</code> writes the full report.</p>
</div>
"""


def compact(context: ReportContext) -> str:
    """Return a few lines of HTML about a fitted model."""
    n_atoms, n_features = (0, 0) if context.components is None else context.components.shape
    content = fragment(
        COMPACT,
        context=context,
        n_atoms=n_atoms,
        n_features=n_features,
        figure=newest(context),
        curve=_curve(context),
        image=_mosaic(context),
        notices=notices(context),
    )
    return str(content)  # a plain string: appended to a fragment, the diagram before it would be escaped


def _curve(context: ReportContext) -> str:
    """Return the progress against rows seen, if the history has at least two values."""
    known = np.isfinite(context.progress)
    if known.sum() < 2:
        return ""
    rows = np.array([line.n_samples for line in context.history])[known]
    even = np.interp(np.linspace(rows[0], rows[-1], 300), rows, context.progress[known])
    return drawings.curve(even, width=600, height=80, label=context.progress_name)


def _mosaic(context: ReportContext) -> str:
    """Return some atoms side by side if they are pictures, otherwise an empty string."""
    if context.picture_shape is None or context.components is None:
        return ""
    shown = context.atom_order[:COMPACT_ATOMS]
    atoms = context.components[shown].reshape(len(shown), *context.picture_shape)
    return pictures.picture(pictures.sprite(pictures.gray(pictures.shrink(atoms, 64 * 64)), across=20))
