"""``python -m benchmarks.peers.run``: run the contests that have no current record, then write the page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers import dense, ratings
from benchmarks.peers.contest import Contest, hold
from benchmarks.peers.page import write_page
from benchmarks.results import OUTPUT, measured

PAGE = Path("docs/results/peers.md")


def contests(tiny: bool) -> dict[str, tuple[dict[str, Any], Callable[[], Contest]]]:
    """Return settings and constructor of every contest."""
    on_dense = dense.TINY if tiny else dense.DenseSize()
    on_ratings = ratings.TINY if tiny else ratings.RatingsSize()
    makers: dict[str, tuple[Any, Any]] = {
        "sparse_codes": (on_dense, dense.sparse_codes),
        "sparse_maps": (on_dense, dense.sparse_maps),
        "non_negative": (on_dense, dense.non_negative),
        "rating_error": (on_ratings, ratings.error_of_predictions),
        "rating_order": (on_ratings, ratings.order_of_recommendations),
    }
    return {name: (asdict(size), partial(maker, size)) for name, (size, maker) in makers.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the contests named on the command line, or all."""
    names = list(contests(tiny=True))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"contests to run: {', '.join(names)}")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    parser.add_argument("--output", type=Path, default=OUTPUT / "peers", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    console = Console(stderr=True)
    for name, (settings, make) in contests(given.tiny).items():
        if not given.names or name in given.names:
            console.print(name, highlight=False)
            measured(name, settings, lambda make=make: hold(make()), given.output, again=given.again)
            write_page(names, given.output, given.page, latest=name)


if __name__ == "__main__":
    main()
