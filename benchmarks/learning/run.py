"""``python -m benchmarks.learning.run``: measure how fast the defaults learn, then write the page."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.learning.data import DATA_SETS, TINY, DataSet
from benchmarks.learning.measure import GRID, Contestant, Task, contestants
from benchmarks.learning.page import write_page
from benchmarks.results import OUTPUT, measured

PAGE = Path("docs/results/learning.md")
GRID_SHARE = 0.3
"""Share of the time limit for settings of the grid: what matters is how soon they approach the best."""


def measure(data: DataSet, seeds: Sequence[int], *, grid: bool) -> dict[str, Any]:
    """Run all contestants on a data set, one after the other for each seed."""
    train, test = data.make()
    everyone = contestants(data)
    shorter = replace(data, seconds=GRID_SHARE * data.seconds)
    curves: dict[str, list[dict[str, Any]]] = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")

        def learn(name: str, contestant: Contestant, task: Task) -> None:
            curves.setdefault(name, []).append(asdict(contestant(task)))

        for contestant in everyone.values():  # compiles, imports, touches memory
            contestant(Task(replace(data, seconds=0.01), train, test, seed=0))
        for seed in seeds:
            for name, contestant in everyone.items():
                learn(name, contestant, Task(data, train, test, seed))
            for name, contestant in GRID.items() if grid else ():
                learn(name, contestant, Task(shorter, train, test, seed))
    return {"title": data.title, "shape": list(train.shape), "n_components": data.n_components,
            "alpha": data.problem.alpha, "curves": curves}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the data sets named on the command line, or all available ones, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"data sets: {', '.join(DATA_SETS)}")
    parser.add_argument("--seeds", type=int, default=5, help="paired seeds")
    parser.add_argument("--no-grid", action="store_true", help="skip the grid of batch sizes and exponents")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    parser.add_argument("--output", type=Path, default=OUTPUT / "learning", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    console, data_sets = Console(stderr=True), TINY if given.tiny else DATA_SETS
    for name, data in data_sets.items():
        if given.names and name not in given.names:
            continue
        if not data.is_here:
            console.print(f"{name} left out: {data.needs} is missing", highlight=False)
            continue
        console.print(name, highlight=False)
        settings = {"seeds": given.seeds, "grid": not given.no_grid, "seconds": data.seconds}
        measured(
            name, settings, lambda data=data: measure(data, range(given.seeds), grid=not given.no_grid), given.output,
            again=given.again,
        )  # fmt: skip
    write_page(data_sets, given.output, given.page)


if __name__ == "__main__":
    main()
