"""Contract suites: tests that every implementation of an interface subclasses. Needs pytest."""

from terafactor.testing.source_contract import CountingSource, SourceContract

__all__ = ["CountingSource", "SourceContract"]
