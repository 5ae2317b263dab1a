"""A small report for notebooks: no script, and nothing that reaches outside of it."""

from __future__ import annotations

import numpy as np

from terafactor.report import drawings, pictures
from terafactor.report.advice import notices
from terafactor.report.markup import fragment
from terafactor.report.panels.summary import newest
from terafactor.report.story import Story

MAX_ATOMS = 40
"""Atoms shown."""

COMPACT = """
<div style="font: 13px/1.5 -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif; max-width: 46em">
<style>
.terafactor-compact path { fill: none; stroke: #0072b2; stroke-width: 1.5; vector-effect: non-scaling-stroke }
.terafactor-compact .rule { stroke: #9aa3ad; stroke-width: .5 }
.terafactor-compact svg { width: 100%; height: 4.5em }
</style>
<p style="margin: .5em 0"><b>{{ story.title }}</b>: {{ n_atoms | count }} atoms of {{ n_features | count }} features
{%- if story.last %}, learned from {{ story.last.n_samples | count }} rows in {{ story.last.seconds | duration }};
{{ story.progress_name }} {{ figure | number }}{% endif %}.</p>
{% if curve %}<div class="terafactor-compact">{{ curve }}</div>{% endif %}
{% if image %}
<img src="{{ image }}" alt="atoms" style="image-rendering: pixelated; width: 100%">
{% endif %}
{% for notice in notices %}<p style="margin: .3em 0">{{ notice.what }} <i>{{ notice.remedy }}</i></p>{% endfor %}
<p style="margin: .3em 0; opacity: .7"><code>report("out.html", X)</code> writes all of it to a page.</p>
</div>
"""


def compact(story: Story) -> str:
    """Return a few lines of HTML about a fitted model."""
    n_atoms, n_features = (0, 0) if story.components is None else story.components.shape
    content = fragment(
        COMPACT,
        story=story,
        n_atoms=n_atoms,
        n_features=n_features,
        figure=newest(story),
        curve=_curve(story),
        image=_mosaic(story),
        notices=notices(story),
    )
    return str(content)  # a plain string: joined to a fragment, the diagram before it would be escaped


def _curve(story: Story) -> str:
    """Return the figure that falls against rows seen, where the history tells it more than once."""
    known = np.isfinite(story.progress)
    if known.sum() < 2:
        return ""
    rows = np.array([line.n_samples for line in story.history])[known]
    even = np.interp(np.linspace(rows[0], rows[-1], 300), rows, story.progress[known])
    return drawings.curve(even, width=600, height=80, label=story.progress_name)


def _mosaic(story: Story) -> str:
    """Return some atoms side by side where they are pictures, else nothing."""
    if story.picture_shape is None or story.components is None:
        return ""
    shown = story.atom_order[:MAX_ATOMS]
    atoms = story.components[shown].reshape(len(shown), *story.picture_shape)
    return pictures.picture(pictures.sprite(pictures.grey(pictures.shrink(atoms, 64 * 64)), across=20))
