"""The report: one self-contained page about a run, or several. Needs the extra ``report`` when a page is made."""

from terafactor.report.charts import Axis, Curve, bar_chart, histogram, line_chart
from terafactor.report.context import Example, ReportContext, RowSample
from terafactor.report.markup import fragment
from terafactor.report.page import write_report
from terafactor.report.panel import Panel
from terafactor.report.pictures import picture
from terafactor.report.reporting import Reporting

__all__ = [
    "Axis",
    "Curve",
    "Example",
    "Panel",
    "ReportContext",
    "Reporting",
    "RowSample",
    "bar_chart",
    "fragment",
    "histogram",
    "line_chart",
    "picture",
    "write_report",
]
