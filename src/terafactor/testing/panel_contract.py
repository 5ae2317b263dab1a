"""Tests that every panel of the report must pass."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from terafactor.report import Panel, ReportContext
from terafactor.report.markup import fragment

HOSTILE = "</script></style>\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"
"""Text that would execute if it entered a page unescaped."""


class PanelContract:
    """Tests of one panel. A subclass defines :meth:`make`.

    Examples
    --------
    >>> from terafactor.report.panels.atoms import AtomsPanel
    >>> from terafactor.testing import PanelContract, make_report_context
    >>> class TestAtomsPanel(PanelContract):
    ...     def make(self):
    ...         return AtomsPanel(), make_report_context()
    """

    def make(self) -> tuple[Panel, ReportContext]:
        """Return the panel, and a context to which it applies."""
        raise NotImplementedError

    def test_has_an_anchor_and_a_heading(self) -> None:
        panel, _ = self.make()
        assert re.fullmatch(r"[a-z][a-z-]*", panel.name)
        assert panel.title.strip()

    def test_draws_a_fragment(self) -> None:
        panel, context = self.make()
        drawn = panel.draw(context)
        assert panel.applies(context)
        assert drawn == fragment("{{ drawn }}", drawn=drawn), "plain text is escaped: use fragment"
        assert dangers(drawn) == []

    def test_draws_deterministically(self) -> None:
        panel, context = self.make()
        assert panel.draw(context) == panel.draw(context)

    def test_accepts_an_empty_context(self) -> None:
        panel, _ = self.make()
        empty = ReportContext(title="nothing yet", kind="Nothing")
        if panel.applies(empty):
            assert dangers(panel.draw(empty)) == []

    def test_compares_runs(self) -> None:
        panel, context = self.make()
        drawn = panel.compare([context, replace(context, title="another run")])
        assert dangers(drawn) == []
        assert "another run" in drawn

    def test_escapes_text(self) -> None:
        panel, context = self.make()
        context = hostile(context)
        assert dangers(panel.draw(context)) == []
        assert dangers(panel.compare([context, context])) == []


def hostile(context: ReportContext) -> ReportContext:
    """Return a context in which every text tries to break out of the page."""
    n_features = 0 if context.components is None else context.components.shape[1]
    return replace(
        context,
        title=HOSTILE,
        kind=HOSTILE,
        parameters={HOSTILE: HOSTILE, "alpha": HOSTILE},
        data={HOSTILE: HOSTILE},
        software={HOSTILE: HOSTILE},
        objective_name=HOSTILE,
        stopped_by=HOSTILE,
        feature_names=None if context.feature_names is None else [HOSTILE] * n_features,
        warnings=[HOSTILE],
    )


def dangers(html: str) -> list[str]:
    """Return what could execute or load resources in a piece of HTML: scripts, handlers, URLs; not links to files."""
    finder = _Dangers()
    finder.feed(html)
    finder.close()
    return finder.found


class _Dangers(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        runs = tag == "script" and given.get("type") != "application/json"
        if runs or tag in ("iframe", "object", "embed", "link", "base", "form", "meta"):
            self.found.append(tag)
        for name, value in attrs:
            fetched = name in ("src", "srcset", "action", "background") and not re.match(r"data:image/png", value or "")
            leads_out = name == "href" and re.match(r"//|[a-z+.-]+:", value or "")
            if name.startswith("on") or fetched or leads_out:
                self.found.append(f"{tag} {name}={value}")
