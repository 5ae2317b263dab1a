"""Run benchmarks, print every bar, and leave with an error when one is not met."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import core, sources
from benchmarks.harness import Bar, Result, machine

SUITES = {"core": core.BENCHMARKS, "sources": sources.BENCHMARKS}
OUTPUT = Path(__file__).parent / "output"


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    names = [f"{suite}.{name}" for suite, benchmarks in SUITES.items() for name in benchmarks]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, list[Result]] = {}
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    for name in arguments.names or names:
        suite, benchmark = name.split(".")
        console.print(f"[dim]running {name}[/dim]")
        results[name] = list(SUITES[suite][benchmark](arguments.quick))
        console.print(as_table(results[name]))
    save(results, started, arguments.quick)
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


def save(results: dict[str, list[Result]], started: str, quick: bool) -> None:
    """Write figures, machine and versions to a file that the results pages are made from."""
    OUTPUT.mkdir(exist_ok=True)
    content = {
        "started": started,
        "quick": quick,
        "machine": machine(),
        "results": {name: [asdict(bar) for bar in bars] for name, bars in results.items()},
    }
    (OUTPUT / "results.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
