"""Numbers as people read them, and untrusted text made safe for a terminal."""

from __future__ import annotations

import logging
import math
from typing import Any

__all__ = [
    "NOTICE", "ConsoleFormatter", "LogFormatter", "count", "counted", "data_size", "duration", "number", "percent",
    "printable", "setting",
]  # fmt: skip

NOTICE = {"is_notice": True}
"""``extra`` of log records that every user should see, as a warning, but that warn of nothing."""


def count(value: float) -> str:
    """Return a whole number with commas: ``1,234``."""
    return f"{value:,.0f}"


def counted(value: int, noun: str) -> str:
    """Return a count and its noun: ``1 row``, ``1,234 rows``."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def number(value: float | None) -> str:
    """Return a number with four digits, without an exponent where that is readable; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share as a percentage, with a decimal below 10 and near 100: ``12 %``, ``0.4 %``, ``99.5 %``."""
    value = 100 * share
    if math.isnan(value):
        return "-"
    return f"{value:.0f} %" if value == 0 or 10 <= abs(value) <= 99 or abs(value) == 100 else f"{value:.1f} %"


def data_size(n_bytes: float) -> str:
    """Return a number of bytes with its unit, in powers of 1000: ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 999.5 or unit == "TB":  # 999.5 and above would be rounded to 1000
            break
        n_bytes /= 1000
    return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.3g} {unit}"


def duration(seconds: float) -> str:
    """Return a time with its unit: ``420 ms``, ``3 min 20 s``, ``2 h 05 min``; a dash for NaN."""
    if math.isnan(seconds):
        return "-"
    if 0 < seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def printable(text: object, *, lines: bool = False) -> str:
    """Return untrusted text with escapes for all characters that could control a terminal.

    lines: keep line breaks.

    >>> print(printable("a\x1b[31m b"))
    a\\x1b[31m b
    """
    return "".join(
        each if each.isprintable() or (lines and each == "\n") else each.encode("unicode_escape").decode()
        for each in str(text)
    )


class LogFormatter(logging.Formatter):
    """Escape characters in log lines that could control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


class ConsoleFormatter(LogFormatter):
    """Show records on a terminal, marked as warnings unless they are notices."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "" if getattr(record, "is_notice", False) else "warning: "
        return f"{mark}{printable(record.getMessage(), lines=True)}"


def setting(value: Any) -> str:
    """Return the value of a parameter as text: arrays by their shape, functions by their name."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"array of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return ", ".join(map(setting, value)) or "none"
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
