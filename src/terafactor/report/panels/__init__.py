"""The standard panels of a report, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor.report.context import ReportContext
from terafactor.report.panel import Panel
from terafactor.report.panels.atoms import AtomsPanel
from terafactor.report.panels.correlation import CorrelationPanel
from terafactor.report.panels.notices import NoticesPanel
from terafactor.report.panels.progress import ProgressPanel
from terafactor.report.panels.reconstruction import ReconstructionPanel
from terafactor.report.panels.setting import SettingPanel
from terafactor.report.panels.summary import SummaryPanel
from terafactor.report.panels.usage import UsagePanel

__all__ = ["panels_of"]


def panels_of(contexts: Sequence[ReportContext]) -> list[Panel]:
    """Return the panels of a page: the standard ones, and those of the estimators, which replace equal names."""
    standard: list[Panel] = [
        SummaryPanel(),
        NoticesPanel(),
        ProgressPanel(),
        AtomsPanel(),
        UsagePanel(),
        ReconstructionPanel(),
        CorrelationPanel(),
    ]
    named = {panel.name: panel for panel in standard}
    for context in contexts:
        named |= {panel.name: panel for panel in context.panels}
    return [*named.values(), SettingPanel()]
