"""What the pages of results share: tables, formatted numbers, the origin of a result, the style of figures."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.results import commit_of

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Those of Okabe and Ito, which color-blind readers can distinguish."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def show(value: Any) -> str:
    """Return a number with three significant digits; text as it is, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table, an empty one after it."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return [*lines, *("| " + " | ".join(map(show, row)) + " |" for row in rows), ""]


def origin(record: dict[str, Any]) -> list[str]:
    """Return the line that states when, where and with which code a result was measured."""
    when = f"Measured {record['started']} in {record['seconds']:.0f} s at commit {commit_of(record)}"
    return [f"*{when}, on {record['machine']['processor']}.*", ""]


def machines(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the list of machines and versions that results come from."""
    kinds = {tuple(record["machine"].items()) for record in records}
    return [line for kind in sorted(kinds) for line in ["- " + ", ".join(f"{key} {value}" for key, value in kind)]]


MOST_IN_ROW = 4
"""Panels in a row that are still legible on a page."""


@contextmanager
def drawn(path: Path, n_panels: int, *, width: float = 4.2, height: float = 3.2) -> Generator[Any, None, None]:
    """Yield the axes of a figure with panels side by side, in rows of a few, and save it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    # A row of three where that leaves fewer places empty.
    in_row = min(n_panels, min((MOST_IN_ROW, MOST_IN_ROW - 1), key=lambda count: -n_panels % count))
    n_rows = -(-n_panels // in_row)
    size = (width * in_row, height * n_rows)
    figure, grid = plt.subplots(n_rows, in_row, figsize=size, squeeze=False, layout="constrained")
    axes, spare = grid.ravel()[:n_panels], grid.ravel()[n_panels:]
    for axis in spare:
        axis.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    try:
        yield axes
        for axis in axes:
            axis.xaxis.set_minor_formatter(NullFormatter())  # labels of a logarithmic scale overlap
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": None})
    finally:
        plt.close(figure)


def plot(axis: Any, number: int, x: Sequence[float], y: Sequence[float], label: str, **style: Any) -> None:
    """Draw one curve; color and marker follow its number."""
    look = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 3.5}
    axis.plot(x, y, label=label, **(look | {"linewidth": 1.4} | style))
