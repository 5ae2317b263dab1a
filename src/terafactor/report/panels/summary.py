"""Key figures of a run: objective, time, rows, bytes, atoms."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.comparison import differences
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

TILES = """
<dl class="tiles">
{% for name, value, note in tiles %}
  <div><dt>{{ name }}</dt><dd>{{ value }}</dd><dd class="note">{{ note }}</dd></div>
{% endfor %}
</dl>
"""

SUMMARY = """
{% if differences %}<p class="alert">These runs are not comparable: they differ in {{ differences }}. A lower
{{ figure }} is not better.</p>{% endif %}
<div class="wide"><table class="figures">
<thead><tr><th>run</th><th>{{ figure }}</th><th>lowest</th><th>time</th><th>{{ rows }} seen</th><th>read</th>
{% for name in differing %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for context in contexts %}
  <tr><th><span class="key series{{ loop.index0 }}"></span>{{ context.title }}</th>
  <td>{{ newest(context) | number }}</td>
  <td>{{ lowest(context) | number }}</td>
  {% if context.last %}
  <td>{{ context.last.seconds | duration }}</td><td>{{ context.last.n_samples | count }}</td>
  <td>{{ context.last.bytes_read | data_size }}</td>
  {% else %}<td></td><td></td><td></td>{% endif %}
  {% for name in differing %}<td>{{ context.parameters.get(name) | setting }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
"""


class SummaryPanel(Panel):
    """Key figures; for several runs, a table with the parameters that differ."""

    name, title = "summary", "Summary"

    def draw(self, context: ReportContext) -> str:
        return fragment(TILES, tiles=[*_progress_tiles(context), *_model_tiles(context)])

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        figure = contexts[0].progress_name
        values = {
            "differing": differing(contexts),
            "lowest": lowest,
            "newest": newest,
            "differences": differences(contexts),
        }
        return fragment(SUMMARY, contexts=contexts, figure=figure, rows=contexts[0].row_name, **values)


def differing(contexts: Sequence[ReportContext]) -> list[str]:
    """Return the names of the parameters that are not the same in all runs."""
    names = dict.fromkeys(name for context in contexts for name in context.parameters)
    return [name for name in names if len({repr(context.parameters.get(name)) for context in contexts}) > 1]


def lowest(context: ReportContext) -> float | None:
    """Return the lowest progress value of the history."""
    return float(context.known_progress.min()) if len(context.known_progress) else None


def newest(context: ReportContext) -> float | None:
    """Return the last known progress value of the history."""
    return float(context.known_progress[-1]) if len(context.known_progress) else None


def _progress_tiles(context: ReportContext) -> list[tuple[str, str, str]]:
    if context.last is None:
        return []
    return [
        (
            context.progress_name,
            fragment("{{ value | number }}", value=newest(context)),
            context.convergence or _fall(context),
        ),
        ("training time", fragment("{{ value | duration }}", value=context.last.seconds), "without evaluations"),
        (f"{context.row_name} seen", fragment("{{ value | count }}", value=context.last.n_samples), _pace(context)),
        ("data read", fragment("{{ value | data_size }}", value=context.last.bytes_read), "from the data source"),
    ]


def _model_tiles(context: ReportContext) -> list[tuple[str, str, str]]:
    if context.components is None:
        return []
    n_atoms, n_features = context.components.shape
    reduction = context.parameters.get("reduction", 1)
    share = "all in each step" if reduction == 1 else fragment("one in {{ r | number }} in each step", r=reduction)
    return [
        (context.atom_name, fragment("{{ n | count }}", n=n_atoms), ""),
        (context.feature_name, fragment("{{ n | count }}", n=n_features), share),
    ]


def _fall(context: ReportContext) -> str:
    known = context.known_progress
    return fragment("from {{ first | number }}", first=float(known[0])) if len(known) > 1 else "lower is better"


def _pace(context: ReportContext) -> str:
    if context.last is None or context.last.seconds <= 0:
        return ""
    return fragment("{{ pace | count }} per second", pace=context.last.n_samples / context.last.seconds)
