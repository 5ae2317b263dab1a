"""The report: one self-contained page about a run, or several. Needs the extra ``report`` when a page is made."""

from terafactor.report.markup import fragment
from terafactor.report.page import write_report
from terafactor.report.panel import Panel
from terafactor.report.story import Example, RowSample, Story

__all__ = ["Example", "Panel", "RowSample", "Story", "fragment", "write_report"]
