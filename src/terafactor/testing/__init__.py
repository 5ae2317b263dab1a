"""Contract suites: tests that every implementation of an interface must pass. Needs pytest."""

from terafactor.testing.panel_contract import PanelContract
from terafactor.testing.report_contexts import make_history, make_report_context, make_sample
from terafactor.testing.source_contract import CountingSource, SourceContract

__all__ = ["CountingSource", "PanelContract", "SourceContract", "make_history", "make_report_context", "make_sample"]
