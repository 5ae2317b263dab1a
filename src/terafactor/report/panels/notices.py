"""What went wrong or could go better, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.advice import notices
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.story import Story

LIST = """
<ul class="notices">
{% for notice in notices %}
  <li>{% if notice.run %}<b>{{ notice.run }}:</b> {% endif %}{{ notice.what }}
  {% if notice.remedy %}<span class="remedy">{{ notice.remedy }}</span>{% endif %}</li>
{% endfor %}
</ul>
"""


class NoticesPanel(Panel):
    """Warnings in words."""

    name, title = "notices", "Worth knowing"

    def applies(self, story: Story) -> bool:
        return bool(notices(story))

    def draw(self, story: Story) -> str:
        return fragment(
            LIST, notices=[{"run": "", "what": notice.what, "remedy": notice.remedy} for notice in notices(story)]
        )

    def compare(self, stories: Sequence[Story]) -> str:
        found = [
            {"run": story.title, "what": notice.what, "remedy": notice.remedy}
            for story in stories
            for notice in notices(story)
        ]
        return fragment(LIST, notices=found)
