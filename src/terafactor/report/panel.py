"""The extension point of the report: a page is a list of panels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment


class Panel(ABC):
    """One section of the page.

    An implementation gives :attr:`name`, :attr:`title` and :meth:`draw`. An estimator adds panels to its reports by
    returning them from ``panels()``; one with the :attr:`name` of a panel that the page has already takes its place.

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
    """Its anchor in the page, one word."""

    title: str
    """Its heading."""

    def applies(self, context: ReportContext) -> bool:
        """Whether there is something to draw."""
        return True

    @abstractmethod
    def draw(self, context: ReportContext) -> str:
        """Return the section for one run, made by :func:`fragment`; plain text is escaped."""

    def of(self, context: ReportContext) -> Panel:
        """Return the panel that this run has under the same name, which may know its estimator; else this one."""
        return next((panel for panel in context.panels if panel.name == self.name), self)

    def compare(self, contexts: Sequence[ReportContext]) -> str:
        """Return the section for several runs: by default, each to unfold."""
        drawn = [(context.title, self.of(context).draw(context)) for context in contexts]
        return fragment(
            "{% for title, content in drawn %}<details{% if loop.first %} open{% endif %}>"
            "<summary>{{ title }}</summary>{{ content }}</details>{% endfor %}",
            drawn=drawn,
        )
