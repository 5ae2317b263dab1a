"""Write docs/results/paper.md from the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import machines, origin
from benchmarks.results import load

INTRODUCTION = """# The paper's figures and table, with terafactor

Written by `make paper` from the records in `benchmarks/output/paper`; only the paper's own figures are entered by
hand. Times are CPU seconds of one thread, without imports, compilation and evaluation. The experiments have the size
"{size}". The paper's sizes need local copies of its data (`make paper FULL=1 HCP=... MOVIELENS=... NETFLIX=...`), so
compare ratios between methods rather than seconds with the paper's hours.
"""


def write_page(figures: dict[str, Any], folder: Path, page: Path, latest: str) -> None:
    """Write the page from the records in ``folder``; draw the ``latest`` figure, and those without a picture."""
    records = {name: record for name in figures if (record := load(name, folder)) is not None}
    sizes = ", ".join(sorted({record["settings"]["size"] for record in records.values()}))
    lines = [INTRODUCTION.format(size=sizes)]
    for name, record in records.items():
        figure = figures[name]
        picture = page.parent / "figures" / f"paper_{name}.png"
        if name == latest or not picture.exists():
            figure.draw(record["result"], picture)
        lines += [f"## {figure.TITLE}", "", figure.PUBLISHED, ""]
        lines += [f"![{figure.TITLE}](figures/{picture.name})", "", *figure.describe(record["result"]), *origin(record)]
    missing = [name for name in figures if name not in records]
    lines += [f"Not run yet: {', '.join(missing)}.", ""] if missing else []
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")
