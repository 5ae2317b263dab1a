"""Data, parameters, software and machine of a run."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

TABLES = """
<div class="columns">
{% for heading, values in tables if values %}
  <table class="settings"><caption>{{ heading }}</caption><tbody>
  {% for name, value in values.items() if value is not none %}
    <tr><th>{{ name }}</th><td>{{ value | setting }}</td></tr>
  {% endfor %}
  </tbody></table>
{% endfor %}
</div>
"""


class SettingPanel(Panel):
    """Parameters, data, versions."""

    name, title = "setting", "Setup"

    def draw(self, context: ReportContext) -> str:
        tables = [
            ("Data", context.data),
            ("Parameters", context.parameters),
            ("Software and machine", context.software),
        ]
        return fragment(TABLES, tables=tables)

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        return fragment(
            "{% for title, content in drawn %}<details><summary>{{ title }}</summary>{{ content }}</details>"
            "{% endfor %}",
            drawn=[(context.title, self.draw(context)) for context in contexts],
        )
