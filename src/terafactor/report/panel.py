"""The extension point of the report: a page is a list of panels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment


class Panel(ABC):
    """One section of the page.

    A subclass defines :attr:`name`, :attr:`title` and :meth:`draw`. An estimator returns additional panels for its
    reports from ``panels()``; a panel with the :attr:`name` of a standard one replaces it.

    Examples
    --------
    >>> from terafactor.report import Panel, ReportContext, fragment
    >>> class Sizes(Panel):
    ...     name, title = "sizes", "Sizes of atoms"
    ...
    ...     def draw(self, context):
    ...         return fragment("<p>{{ n }} atoms</p>", n=len(context.components))
    """

    name: str
    """Anchor in the page: one word."""

    title: str
    """Heading."""

    def applies(self, context: ReportContext) -> bool:
        """Return whether there is something to draw."""
        return True

    @abstractmethod
    def draw(self, context: ReportContext) -> str:
        """Return the section for one run, made by :func:`fragment`; plain text is escaped."""

    def of(self, context: ReportContext) -> Panel:
        """Return the panel of this name that the estimator of a run supplies; by default this one."""
        return next((panel for panel in context.panels if panel.name == self.name), self)

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        """Return the section for several runs: by default, a collapsible section for each."""
        drawn = [(context.title, self.of(context).draw(context)) for context in contexts]
        return fragment(
            "{% for title, content in drawn %}<details{% if loop.first %} open{% endif %}>"
            "<summary>{{ title }}</summary>{{ content }}</details>{% endfor %}",
            drawn=drawn,
        )
