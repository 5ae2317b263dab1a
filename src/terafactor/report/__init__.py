"""Reports: one self-contained HTML page about one or several runs. Writing a page needs the extra ``report``."""

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
