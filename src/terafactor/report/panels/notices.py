"""What went wrong or could go better, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.advice import notices
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.story import Story

LIST = """
<ul class="notices">
{% for run, notice in found %}
  <li>{% if run %}<b>{{ run }}:</b> {% endif %}{{ notice.what }}
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
        return fragment(LIST, found=[("", notice) for notice in notices(story)])

    def compare(self, stories: Sequence[Story]) -> str:
        return fragment(LIST, found=[(story.title, notice) for story in stories for notice in notices(story)])
