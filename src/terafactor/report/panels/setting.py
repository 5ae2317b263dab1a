"""What was run, on what, with what."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.story import Story

TABLES = """
<div class="columns">
{% for heading, values in tables if values %}
  <table class="settings"><caption>{{ heading }}</caption><tbody>
  {% for name, value in values.items() %}
    <tr><th>{{ name }}</th><td>{{ value | setting }}</td></tr>
  {% endfor %}
  </tbody></table>
{% endfor %}
</div>
"""


class SettingPanel(Panel):
    """Parameters, data, versions."""

    name, title = "setting", "What was run"

    def draw(self, story: Story) -> str:
        tables = [("Data", story.data), ("Parameters", story.parameters), ("Software and machine", story.software)]
        return fragment(TABLES, tables=tables)

    def compare(self, stories: Sequence[Story]) -> str:
        return fragment(
            "{% for title, content in drawn %}<details><summary>{{ title }}</summary>{{ content }}</details>"
            "{% endfor %}",
            drawn=[(story.title, self.draw(story)) for story in stories],
        )
