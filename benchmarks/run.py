"""Run benchmarks, print every bar, and leave with an error when one is not met."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import brain, claims, core, exact, missing, ratings, report, runs, sources
from benchmarks.harness import Bar, Result, machine

SUITES = {
    "brain": brain.BENCHMARKS,
    "core": core.BENCHMARKS,
    "missing": missing.BENCHMARKS,
    "exact": exact.BENCHMARKS,
    "sources": sources.BENCHMARKS,
    "ratings": ratings.BENCHMARKS,
    "runs": runs.BENCHMARKS,
    "claims": claims.BENCHMARKS,
    "report": report.BENCHMARKS,
}
OUTPUT = Path(__file__).parent / "output"


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    names = [f"{suite}.{name}" for suite, benchmarks in SUITES.items() for name in benchmarks]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--page", type=Path, help="Markdown file for the results")
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, list[Result]] = {}
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    for name in arguments.names or names:
        suite, benchmark = name.split(".")
        console.print(f"[dim]running {name}[/dim]")
        began = time.perf_counter()
        results[name] = list(SUITES[suite][benchmark](arguments.quick))
        console.print(as_table(results[name]))
        console.print(f"[dim]{name} took {time.perf_counter() - began:.0f} s[/dim]")
    content = save(results, started, arguments.quick)
    if arguments.page:
        arguments.page.parent.mkdir(parents=True, exist_ok=True)
        arguments.page.write_text(as_page(content))
    failed = [bar.name for bars in results.values() for bar in bars if isinstance(bar, Bar) and not bar.holds]
    console.print("[green]every bar holds[/green]" if not failed else f"[red]not met: {'; '.join(failed)}[/red]")
    return 1 if failed else 0


def as_table(results: list[Result]) -> Table:
    """Return the bars as a table, with the times behind them."""
    table = Table("bar", "figure", "asked", "", "measured", expand=True)
    for result in results:
        if not isinstance(result, Bar):
            table.add_row(result.name, "-", "-", "[yellow]skipped[/yellow]", result.reason)
            continue
        sign = "<=" if result.at_most else ">="
        verdict = "[green]holds[/green]" if result.holds else "[red]falls short[/red]"
        details = ", ".join(f"{key} {value:.4g}" for key, value in result.details.items())
        table.add_row(
            result.name,
            f"{result.figure:.3g} {result.unit}",
            f"{sign} {result.bound:.4g} {result.unit}",
            verdict,
            details,
        )
    return table


def as_page(content: dict[str, Any]) -> str:
    """Return the results as a page: what falls short first, then what holds, then the machine."""
    bars = [(name, bar) for name, found in content["results"].items() for bar in found if "figure" in bar]
    short, met = ([item for item in bars if item[1]["holds"] == holds] for holds in (False, True))
    skipped = [bar for found in content["results"].values() for bar in found if "reason" in bar]
    lines = ["# Every bar, as last measured", "", "Written by `make bench-full`; nothing here is typed by hand.", ""]
    for title, items in (("What falls short", short), ("What holds", met)):
        lines += [f"## {title}", "", "| suite | bar | figure | asked |", "|---|---|---|---|"]
        for name, bar in items:
            sign = "at most" if bar["at_most"] else "at least"
            asked = f"{sign} {bar['bound']:.4g} {bar['unit']}"
            lines.append(f"| {name} | {bar['name']} | {bar['figure']:.3g} {bar['unit']} | {asked} |")
        lines.append("")
    lines += [f"Skipped: {bar['name']} ({bar['reason']})" for bar in skipped]
    lines += ["## What was measured", ""]
    lines += [
        f"- {bar['name']}: " + ", ".join(f"{key} {value:.4g}" for key, value in bar["details"].items())
        for _, bar in bars
        if bar["details"]
    ]
    lines += ["", "## Where", ""]
    lines += [f"- {key}: {value}" for key, value in ({"started": content["started"]} | content["machine"]).items()]
    return "\n".join(lines) + "\n"


def save(results: dict[str, list[Result]], started: str, quick: bool) -> dict[str, Any]:
    """Write figures, machine and versions to a file that the results pages are made from."""
    OUTPUT.mkdir(exist_ok=True)
    content = {
        "started": started,
        "quick": quick,
        "machine": machine(),
        "results": {name: [as_record(bar) for bar in bars] for name, bars in results.items()},
    }
    (OUTPUT / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    return content


def as_record(result: Result) -> dict[str, Any]:
    """Return a result as plain values."""
    return asdict(result) | ({"holds": result.holds} if isinstance(result, Bar) else {})


if __name__ == "__main__":
    sys.exit(main())
