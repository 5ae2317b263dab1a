"""``python -m benchmarks.paper.run``: measure what has no current record, then write the page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from benchmarks.paper import figure1, figure2, figure3, figure4, figure5
from benchmarks.paper.page import write_page
from benchmarks.paper.sizes import FULL, QUICK, TINY, Size
from benchmarks.results import OUTPUT, measured

FIGURES: dict[str, ModuleType] = {
    "figure1": figure1,
    "figure2": figure2,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
}
PAGE = Path("docs/results/paper.md")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the figures named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"figures to run: {', '.join(FIGURES)}")
    parser.add_argument("--full", action="store_true", help="the sizes of the paper")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    for data, what in (("hcp", "images of the HCP, packed"), ("movielens", "folder"), ("netflix", "folder")):
        parser.add_argument(f"--{data}", type=Path, help=f"path of a local copy: {what}")
    parser.add_argument("--output", type=Path, default=OUTPUT / "paper", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    size = FULL if given.full else TINY if given.tiny else QUICK
    run(replace(size, hcp=given.hcp, movielens=given.movielens, netflix=given.netflix), given)


def run(size: Size, given: argparse.Namespace) -> None:
    """Measure one figure after the other; write the page after each."""
    console = Console(stderr=True)
    for name in given.names or FIGURES:
        console.print(f"{name}: {FIGURES[name].TITLE}", highlight=False)
        measure, fields = partial(FIGURES[name].measure, size), FIGURES[name].FIELDS
        record = measured(name, settings(size, fields), measure, given.output, again=given.again)
        console.print(f"  {record['seconds']:.0f} s, measured {record['started']}", highlight=False)
        write_page(FIGURES, given.output, given.page, latest=name)


def settings(size: Size, fields: Sequence[str]) -> dict[str, Any]:
    """Return the settings that identify an experiment, as plain values; data by the name of its folder."""
    values = {name: value for name, value in asdict(size).items() if name in fields}
    plain = {name: value.name if isinstance(value, Path) else value for name, value in values.items()}
    return {"size": size.name, **plain}


if __name__ == "__main__":
    main()
