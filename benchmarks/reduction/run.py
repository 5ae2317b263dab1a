"""``python -m benchmarks.reduction.run``: measure what fewer features per step bring, then write the page."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.reduction.data import STUDIES, TINY, Study
from benchmarks.reduction.methods import PASSES, PATIENCE, Method, Task, from_pass, grouped, nested, package
from benchmarks.reduction.page import BASE, CONTROL, write_page
from benchmarks.reduction.somf import somf
from benchmarks.results import OUTPUT, measured
from terafactor import pack

PAGE = Path("docs/results/reduction.md")

METHODS: dict[str, Method] = {
    BASE: package(),
    CONTROL: from_pass(1),
    "masks, r = 8": package(8, "masked"),
    "masks, r = 8, full statistics": package(8, "full"),
    "masks, r = 8, a Gram per group": grouped(8),
    "nested, r = 8": nested((8, 50)),
    "SOMF, r = 8, 4, 2, 1": somf(8),
}

STAGES: dict[str, Method] = {
    BASE: METHODS[BASE],
    "nested, r = 8 for 20 rows per atom": nested((8, 20)),
    "nested, r = 8 for 50 rows per atom, 2 for 10": nested((8, 50), (2, 10)),
}
"""Other lengths of the stages of nested features."""

SMALL = (BASE, "masks, r = 8", "nested, r = 8")
"""Methods of the search for small components."""


def measure(data: Study, n_seeds: int, methods: Mapping[str, Method] = METHODS) -> dict[str, Any]:
    """Run methods on a data set, one after the other for each seed."""
    train, test = data.make()
    curves: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    with warnings.catch_warnings(), threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        store = pack(train, Path(folder) / "store") if data.packed else None
        for method in methods.values():  # compiles, imports, touches memory
            method(Task(data, train, test, seed=0, seconds=0.1, rows=2 * len(train), store=store))
        for seed in range(n_seeds):
            seconds, rows = np.inf, float(PASSES * len(train))
            for name, method in methods.items():
                curve = method(Task(data, train, test, seed, seconds, rows, store))
                if name == BASE:
                    seconds, rows = PATIENCE * curve.seconds[-1], np.inf
                curves[name].append(asdict(curve))
    return {"title": data.title, "shape": list(train.shape), "n_components": data.n_components,
            "alpha": data.problem.alpha, "packed": data.packed, "curves": curves}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the data sets named on the command line, or all available ones, and write the page."""
    from benchmarks.reduction import claim, components

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"experiments: {', '.join(STUDIES)}, components, claim"
    )
    parser.add_argument("--seeds", type=int, default=10, help="paired seeds; costly data sets have fewer")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    parser.add_argument("--output", type=Path, default=OUTPUT / "reduction", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    console, studies = Console(stderr=True), TINY if given.tiny else STUDIES
    for name, data in studies.items():
        if given.names and name not in given.names:
            continue
        if not data.is_here:
            console.print(f"{name} left out: {data.needs} is missing", highlight=False)
            continue
        console.print(name, highlight=False)
        n_seeds, work = min(given.seeds, data.seeds), {name: METHODS}
        if data.stages:
            work[f"{name}_stages"] = STAGES
        for part, methods in work.items():
            run = partial(measure, data, n_seeds, methods)
            measured(part, {"seeds": n_seeds}, run, given.output, again=given.again)
    if not given.names or "components" in given.names:
        console.print("components", highlight=False)
        planted = components.TINY if given.tiny else components.QUICK
        found = partial(components.measure, planted, {name: METHODS[name] for name in SMALL})
        measured("components", asdict(planted), found, given.output, again=given.again)
    if not given.names or "claim" in given.names:
        console.print("claim", highlight=False)
        size = claim.TINY if given.tiny else claim.QUICK
        measured("claim", asdict(size), lambda: claim.measure(size), given.output, again=given.again)
    write_page(studies, given.output, given.page)


if __name__ == "__main__":
    main()
