"""The first thing a reader sees: how far it came, how long it took."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.comparison import differences
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.story import Story

TILES = """
<dl class="tiles">
{% for name, value, note in tiles %}
  <div><dt>{{ name }}</dt><dd>{{ value }}</dd><dd class="note">{{ note }}</dd></div>
{% endfor %}
</dl>
"""

TABLE = """
{% if differences %}<p class="alert">These runs differ in {{ differences }}: their figures do not compare, and a lower
{{ figure }} is not better.</p>{% endif %}
<div class="wide"><table class="figures">
<thead><tr><th>run</th><th>{{ figure }}</th><th>lowest</th><th>time</th><th>rows seen</th><th>read</th>
{% for name in differing %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for story in stories %}
  <tr><th><span class="key series{{ loop.index0 }}"></span>{{ story.title }}</th>
  <td>{{ newest(story) | number }}</td>
  <td>{{ lowest(story) | number }}</td>
  {% if story.last %}
  <td>{{ story.last.seconds | duration }}</td><td>{{ story.last.n_samples | count }}</td>
  <td>{{ story.last.bytes_read | data_size }}</td>
  {% else %}<td></td><td></td><td></td>{% endif %}
  {% for name in differing %}<td>{{ story.parameters.get(name) | setting }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
"""


class SummaryPanel(Panel):
    """Key figures; for several runs, a table with the parameters that differ."""

    name, title = "summary", "Summary"

    def draw(self, story: Story) -> str:
        return fragment(TILES, tiles=[*_progress_tiles(story), *_model_tiles(story)])

    def compare(self, stories: Sequence[Story]) -> str:
        figure = stories[0].progress_name
        how = {"differing": differing(stories), "lowest": lowest, "newest": newest, "differences": differences(stories)}
        return fragment(TABLE, stories=stories, figure=figure, **how)


def differing(stories: Sequence[Story]) -> list[str]:
    """Return the names of the parameters that are not the same in all runs."""
    names = dict.fromkeys(name for story in stories for name in story.parameters)
    return [name for name in names if len({repr(story.parameters.get(name)) for story in stories}) > 1]


def lowest(story: Story) -> float | None:
    """Return the lowest figure of the history."""
    return float(story.known_progress.min()) if len(story.known_progress) else None


def newest(story: Story) -> float | None:
    """Return the last figure that is known."""
    return float(story.known_progress[-1]) if len(story.known_progress) else None


def _progress_tiles(story: Story) -> list[tuple[str, str, str]]:
    if story.last is None:
        return []
    return [
        (story.progress_name, fragment("{{ value | number }}", value=newest(story)), story.settling or _fall(story)),
        ("time to learn", fragment("{{ value | duration }}", value=story.last.seconds), "evaluations aside"),
        ("rows seen", fragment("{{ value | count }}", value=story.last.n_samples), _pace(story)),
        ("read", fragment("{{ value | data_size }}", value=story.last.bytes_read), "from the source"),
    ]


def _model_tiles(story: Story) -> list[tuple[str, str, str]]:
    if story.components is None:
        return []
    n_atoms, n_features = story.components.shape
    reduction = story.parameters.get("reduction", 1)
    share = "all at every step" if reduction == 1 else fragment("one in {{ r | number }} per step", r=reduction)
    return [
        ("atoms", fragment("{{ n | count }}", n=n_atoms), "learned"),
        ("features", fragment("{{ n | count }}", n=n_features), share),
    ]


def _fall(story: Story) -> str:
    known = story.known_progress
    return fragment("from {{ first | number }}", first=float(known[0])) if len(known) > 1 else "lower is better"


def _pace(story: Story) -> str:
    if story.last is None or story.last.seconds <= 0:
        return ""
    return fragment("{{ pace | count }} per second", pace=story.last.n_samples / story.last.seconds)
