"""``python -m benchmarks.clusters.run``: measure what rounds and clusters bring, then write the page."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.clusters.measure import DATA, TINY, Size, record_tasks, round_overhead, steps_to_level, worker_memory
from benchmarks.clusters.page import write_page
from benchmarks.learning.data import FOLDER
from benchmarks.results import OUTPUT, measured

PAGE = Path("docs/results/clusters.md")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the experiments named on the command line, or all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"experiments: {', '.join(DATA)}, overhead, memory, records")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    parser.add_argument("--output", type=Path, default=OUTPUT / "clusters", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    console, size = Console(stderr=True), TINY if given.tiny else Size()
    experiments: dict[str, Callable[[], Any]] = {
        name: lambda data=data: steps_to_level(data, size)
        for name, data in DATA.items()
        if data.needs is None or (FOLDER / data.needs).exists()
    }
    experiments |= {"overhead": lambda: round_overhead(size), "memory": lambda: worker_memory(size),
                    "records": lambda: record_tasks(size)}  # fmt: skip
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for name, measure in experiments.items():
            if not given.names or name in given.names:
                console.print(name, highlight=False)
                measured(name, asdict(size), measure, given.output, again=given.again)
    write_page(given.output, given.page)


if __name__ == "__main__":
    main()
