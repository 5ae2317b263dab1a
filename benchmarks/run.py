"""Run benchmarks, print every bar, and exit with an error when one is not met."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import brain, claims, core, missing, penalties, ratings, report, runs, sources
from benchmarks.harness import Bar
from benchmarks.pages import machines, show, table
from benchmarks.results import OUTPUT, commit_of, load, measured

SUITES = {
    "brain": brain.BENCHMARKS,
    "core": core.BENCHMARKS,
    "missing": missing.BENCHMARKS,
    "penalties": penalties.BENCHMARKS,
    "sources": sources.BENCHMARKS,
    "ratings": ratings.BENCHMARKS,
    "runs": runs.BENCHMARKS,
    "claims": claims.BENCHMARKS,
    "report": report.BENCHMARKS,
}
NAMES = [f"{suite}.{name}" for suite, benchmarks in SUITES.items() for name in benchmarks]

HEADINGS = ("suite", "bar", "figure", "asked", "measured", "when", "commit")

QUICK = [
    "core.recovery", "core.peers", "core.growth", "core.threads", "missing.recovery", "missing.cost", "missing.sparse",
    "penalties.codes", "sources.reading", "sources.fitting", "brain.decompression",
    "ratings.accuracy", "ratings.recommend", "ratings.reading", "runs.checkpoint", "claims.samples",
]  # fmt: skip
"""Benchmarks that take less than five minutes together, with fewer repeats."""


def main() -> int:
    """Run the benchmarks named on the command line, or all; write the result of each as soon as it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"benchmarks to run: {', '.join(NAMES)}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, and only the short benchmarks unless some are named"
    )
    parser.add_argument("--page", type=Path, help="Markdown file to write all recorded results to")
    arguments = parser.parse_args()
    names = arguments.names or (QUICK if arguments.quick else NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that child processes are killed too
    folder = OUTPUT / ("quick" if arguments.quick else "bars")
    console, failed = Console(), []
    for name in names:
        console.print(f"[dim]running {name}[/dim]")
        record = measured(name, {}, lambda name=name: run(name, arguments.quick), folder, again=True)
        console.print(as_table(record["result"]))
        console.print(f"[dim]{name} took {record['seconds']:.0f} s[/dim]")
        failed += [bar["name"] for bar in record["result"] if not bar.get("holds", True)]
        if arguments.page:
            arguments.page.parent.mkdir(parents=True, exist_ok=True)
            arguments.page.write_text(as_page([record for known in NAMES if (record := load(known, folder))]))
    if arguments.quick and not arguments.names:
        left_out = [name for name in NAMES if name not in names]
        console.print(f"[dim]left out: {', '.join(left_out)}[/dim]")
    console.print("[green]every bar holds[/green]" if not failed else f"[red]not met: {'; '.join(failed)}[/red]")
    return 1 if failed else 0


def run(name: str, quick: bool) -> list[dict[str, Any]]:
    """Return the results of a benchmark as plain values."""
    suite, benchmark = name.split(".")
    found = SUITES[suite][benchmark](quick)
    return [asdict(result) | ({"holds": result.holds} if isinstance(result, Bar) else {}) for result in found]


def as_table(results: list[dict[str, Any]]) -> Table:
    """Return the bars as a table, with the times that they come from."""
    screen = Table("bar", "figure", "asked", "", "measured", expand=True)
    for result in results:
        if "reason" in result:
            screen.add_row(result["name"], "-", "-", "[yellow]skipped[/yellow]", result["reason"])
            continue
        verdict = "[green]holds[/green]" if result["holds"] else "[red]falls short[/red]"
        screen.add_row(result["name"], figure(result), asked(result), verdict, details(result))
    return screen


def figure(bar: dict[str, Any]) -> str:
    """Return the measured figure with its unit."""
    return f"{bar['figure']:.4g} {bar['unit']}"


def asked(bar: dict[str, Any]) -> str:
    """Return the bound of a bar with its unit."""
    return f"{'at most' if bar['at_most'] else 'at least'} {bar['bound']:.4g} {bar['unit']}"


def details(bar: dict[str, Any]) -> str:
    """Return the numbers that the figure of a bar was computed from."""
    return ", ".join(f"{key} {show(value)}" for key, value in bar["details"].items())


def as_page(records: list[dict[str, Any]]) -> str:
    """Return all results as a page: bars that fall short, bars that hold, bars not measured, and the machines."""
    found = [(record, result) for record in records for result in record["result"]]
    lines = ["# Every bar, as last measured", "", "Written by `make bench-full`; do not edit by hand.", ""]
    for title, holds in (("What falls short", False), ("What holds", True)):
        rows = [
            (record["name"], bar["name"], figure(bar), asked(bar), details(bar), record["started"], commit_of(record))
            for record, bar in found
            if bar.get("holds") is holds
        ]
        lines += [f"## {title}", "", *table(HEADINGS, rows)]
    skipped = [(record["name"], bar["name"], bar["reason"]) for record, bar in found if "reason" in bar]
    if skipped:
        lines += ["## What was not measured", "", *table(("suite", "bar", "why"), skipped)]
    return "\n".join([*lines, "## Where", "", *machines(records)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
