"""What went wrong or could be better, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.advice import notices
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

LIST = """
<ul class="notices">
{% for run, notice in found %}
  <li>{% if run %}<b>{{ run }}:</b> {% endif %}{{ notice.what }}
  {% if notice.remedy %}<span class="remedy">{{ notice.remedy }}</span>{% endif %}</li>
{% endfor %}
</ul>
"""


class NoticesPanel(Panel):
    """Notices and remedies."""

    name, title = "notices", "Worth knowing"

    def applies(self, context: ReportContext) -> bool:
        return bool(notices(context))

    def draw(self, context: ReportContext) -> str:
        return fragment(LIST, found=[("", notice) for notice in notices(context)])

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        return fragment(LIST, found=[(context.title, notice) for context in contexts for notice in notices(context)])
