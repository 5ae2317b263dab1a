"""``python -m benchmarks.reduction.run``: measure what fewer features per step bring, then write the page."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.reduction import claim, components
from benchmarks.reduction.data import STUDIES, TINY, Study
from benchmarks.reduction.methods import LATEST, PASSES, Method, Task, from_pass, grouped, nested, on_grid, package
from benchmarks.reduction.page import BASE, CONTROL, MASKS, NESTED, write_page
from benchmarks.reduction.somf import somf
from benchmarks.results import OUTPUT, measured
from terafactor import pack

PAGE = Path("docs/results/reduction.md")

METHODS: dict[str, Method] = {
    BASE: package(),
    CONTROL: from_pass(1),
    MASKS: package(8, "masked"),
    f"{MASKS}, full statistics": package(8, "full"),
    f"{MASKS}, a Gram per group": grouped(8),
    NESTED: nested((8, 50)),
    "SOMF, r = 8, 4, 2, 1": somf(8),
}

STAGES: dict[str, Method] = {
    BASE: METHODS[BASE],
    "nested, r = 8 for 20 rows per atom": nested((8, 20)),
    "nested, r = 8 for 50 rows per atom, 2 for 10": nested((8, 50), (2, 10)),
}
"""Other lengths of the stages of nested features."""

SMALL = (BASE, MASKS, NESTED)
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
                    common = on_grid(asdict(curve), len(train))
                    low = int(np.argmin(common["objective"]))
                    seconds, rows = min(LATEST * common["seconds"][low], curve.seconds[-1]), np.inf
                curves[name].append(asdict(curve))
    return {"title": data.title, "shape": list(train.shape), "n_components": data.n_components,
            "alpha": data.problem.alpha, "packed": data.packed, "curves": curves}  # fmt: skip


def run(name: str, *, tiny: bool, seeds: int, output: Path, again: bool) -> None:
    """Measure one experiment of :func:`experiments`, unless there is a current record."""
    settings, work = experiments(tiny=tiny, seeds=seeds)[name]
    measured(name, settings, work, output, again=again)


def experiments(*, tiny: bool, seeds: int) -> dict[str, tuple[dict[str, Any], Callable[[], Any]]]:
    """Return settings and measurement of each experiment for which the data is available."""
    found: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {}
    for name, data in (TINY if tiny else STUDIES).items():
        if data.is_here:
            found[name] = {"seeds": seeds}, partial(measure, data, seeds)
            if data.stages:
                found[f"{name}_stages"] = {"seeds": seeds}, partial(measure, data, seeds, STAGES)
    size, planted = (claim.TINY, components.TINY) if tiny else (claim.QUICK, components.QUICK)
    found["claim"] = asdict(size), partial(claim.measure, size)
    found["components"] = asdict(planted), partial(components.measure, planted, {n: METHODS[n] for n in SMALL})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the experiments named on the command line, or all available ones, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"experiments: {', '.join(STUDIES)}, claim, components"
    )
    parser.add_argument("--seeds", type=int, default=10, help="paired seeds")
    parser.add_argument("--jobs", type=int, default=1, help="experiments at a time, each on one thread")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again what has a current record")
    parser.add_argument("--output", type=Path, default=OUTPUT / "reduction", help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    names = [name for name in experiments(tiny=given.tiny, seeds=given.seeds) if name in (given.names or [name])]
    work = partial(run, tiny=given.tiny, seeds=given.seeds, output=given.output, again=given.again)
    with ProcessPoolExecutor(given.jobs) as pool:
        done = {pool.submit(work, name): name for name in names}
        for future in as_completed(done):
            future.result()
            Console(stderr=True).print(f"{done[future]} is measured", highlight=False)
    write_page(TINY if given.tiny else STUDIES, given.output, given.page)


if __name__ == "__main__":
    main()
