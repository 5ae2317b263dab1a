"""Contract suites: tests that every implementation of an interface subclasses. Needs pytest."""

from terafactor.testing.panel_contract import PanelContract
from terafactor.testing.source_contract import CountingSource, SourceContract
from terafactor.testing.stories import make_history, make_sample, make_story

__all__ = ["CountingSource", "PanelContract", "SourceContract", "make_history", "make_sample", "make_story"]
