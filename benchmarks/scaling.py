"""``python -m benchmarks.scaling``: how time, memory and bytes grow, compared with theory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core import memory_growth, start
from benchmarks.pages import drawn, machines, origin, plot, show, table
from benchmarks.results import OUTPUT, load, measured
from terafactor import MaskedDictionaryLearning, NormBall, RandomMasks

PAGE = Path("docs/results/scaling.md")
BATCH = 40
SETTING = {"alpha": 1e-3, "penalty": "l2", "constraint": "l1", "batch_size": BATCH,
           "n_epochs": 1, "random_state": 0}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The central sizes, and the factors by which each is varied in turn."""

    n: int = 1_600
    p: int = 20_000
    k: int = 40
    factors: tuple[float, ...] = (0.25, 0.5, 1, 2, 4)
    reductions: tuple[float, ...] = (1, 2, 4, 8, 12, 24)
    threads: tuple[int, ...] = (1, 2)
    memory_p: tuple[int, ...] = (50_000, 100_000, 200_000, 400_000)
    memory_k: tuple[int, ...] = (20, 40, 80)
    repeats: int = 7


TINY = Size(80, 400, 4, (0.5, 1), (1, 4), (1, 2), (2_000, 4_000), (4, 8), 1)


def epoch_time(n: int, p: int, k: int, reduction: float = 1, n_threads: int = 1) -> Callable[[], object]:
    """Return a function that fits for one epoch."""
    X = np.random.default_rng(0).standard_normal((n, p), np.float32)
    init = start(X, k, NormBall("l1"))
    estimator = MaskedDictionaryLearning(
        k, init=init, reduction=RandomMasks(reduction, "masked"), n_threads=n_threads, **SETTING
    )
    return lambda: estimator.fit(X)


def curve(
    size: Size,
    values: Sequence[float],
    make: Callable[[float], Callable[[], object]],
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the best time of an epoch for each value; CPU time unless threads vary."""
    return {"values": list(values), "measured": [_best(make(value), size.repeats, clock) for value in values]}


def _best(run: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    run()
    times = []
    for _ in range(repeats):
        started = clock()
        run()
        times.append(clock() - started)
    return min(times)


def times(size: Size) -> dict[str, Any]:
    """Return the time of an epoch against n, p, k, r and threads."""
    n, p, k = size.n, size.p, size.k
    scaled = {name: [int(factor * value) for factor in size.factors] for name, value in (("n", n), ("p", p), ("k", k))}
    return {
        "n": curve(size, scaled["n"], lambda value: epoch_time(int(value), p, k)),
        "p": curve(size, scaled["p"], lambda value: epoch_time(n, int(value), k)),
        "k": curve(size, scaled["k"], lambda value: epoch_time(n, p, int(value))),
        "r": curve(size, size.reductions, lambda value: epoch_time(n, p, k, value)),
        "threads": curve(
            size, size.threads, lambda value: epoch_time(n, p, k, n_threads=int(value)), time.perf_counter
        ),
    }


def bytes_read(size: Size) -> dict[str, list[float]]:
    """Return the bytes of an epoch against r, without the first k rows, which initialize the atoms."""
    X = np.random.default_rng(0).standard_normal((size.n, size.p), np.float32)
    first = size.k * size.p * X.itemsize
    found = [
        MaskedDictionaryLearning(size.k, reduction=RandomMasks(r, "masked"), **SETTING).fit(X).history_[-1].bytes_read
        - first
        for r in size.reductions
    ]
    return {"values": list(size.reductions), "measured": found}


def memory(size: Size) -> dict[str, Any]:
    """Return the growth of memory during a fit against p and k; empty where /proc is missing."""
    probe = cache(partial(memory_growth, 120, reduction=10, statistics="masked"))  # both curves share a point
    middle = size.memory_p[len(size.memory_p) // 2]
    against_p = {"values": list(size.memory_p), "measured": [probe(p, size.k) for p in size.memory_p], "k": size.k}
    against_k = {"values": list(size.memory_k), "measured": [probe(middle, k) for k in size.memory_k], "p": middle}
    return {} if None in against_p["measured"] else {"p": against_p, "k": against_k}


def measure(size: Size) -> dict[str, Any]:
    """Return all curves."""
    return {"times": times(size), "bytes": bytes_read(size), "memory": memory(size)}


THEORY: dict[str, tuple[str, Callable[[float], float]]] = {
    "n": ("grows as n", lambda n: n),
    "p": ("grows as p", lambda p: p),
    "k": ("between k and k²: products with codes grow as k, the sweep over atoms as k²", lambda k: k),
    "r": ("falls as 1 / r", lambda r: 1 / r),
    "threads": ("falls as 1 / threads", lambda threads: 1 / threads),
}
REMARKS = {
    "r": " Opening, checking and starting do not shrink with r, and a step has some tenths of a millisecond that do "
    "not, which weigh at this size; [the bars](bars.md) have the speed-up at p = 200,000, ten times wider."
}
LABELS = {"n": "rows n", "p": "features p", "k": "atoms k", "r": "reduction r", "threads": "threads"}


def line_of_theory(found: dict[str, list[float]], law: Callable[[float], float]) -> list[float]:
    """Return the law through the middle measured point; for r and threads, through the first."""
    place = len(found["values"]) // 2 if law(2) > law(1) else 0
    scale = found["measured"][place] / law(found["values"][place])
    return [scale * law(value) for value in found["values"]]


def state_bytes(p: float, k: float) -> float:
    """Return the bytes of dictionary and statistics, two matrices of k x p in float32 and one of counts."""
    return 2 * 4 * k * p + 8 * p


def slope(found: dict[str, list[float]]) -> float:
    """Return the exponent of the power law that fits best."""
    return float(np.polyfit(np.log(found["values"]), np.log(found["measured"]), 1)[0])


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw every curve with its line of theory."""
    panels = list(result["times"].items())
    with drawn(path, len(panels) + 1 + len(result["memory"]), width=2.7, height=2.9) as axes:
        for axis, (name, found) in zip(axes, panels, strict=False):
            _panel(axis, found, line_of_theory(found, THEORY[name][1]), LABELS[name], "seconds per epoch")
        full = result["bytes"]["measured"][0]
        theory = [full / r for r in result["bytes"]["values"]]
        _panel(axes[len(panels)], result["bytes"], theory, "reduction r", "bytes per epoch")
        for axis, (name, found) in zip(axes[len(panels) + 1 :], result["memory"].items(), strict=True):
            theory = [state_bytes(**{name: value, **_other(found)}) for value in found["values"]]
            _panel(axis, found, theory, LABELS[name], "bytes of memory")


def _other(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name] for name in ("p", "k") if name in found}


def _panel(axis: Any, found: dict[str, Any], theory: list[float], x: str, y: str) -> None:
    plot(axis, 0, found["values"], found["measured"], "measured")
    axis.plot(found["values"], theory, "--", color="black", linewidth=1, label="theory")
    axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axis.minorticks_off()
    axis.set_xticks(found["values"], [show(value) for value in found["values"]], fontsize=7, rotation=45)
    axis.legend(frameon=False, fontsize=7)


def describe(result: dict[str, Any]) -> list[str]:
    """Return tables of measured against theory, and exponents."""
    lines = []
    for name, found in result["times"].items():
        law, function = THEORY[name]
        rows = zip(found["values"], found["measured"], line_of_theory(found, function), strict=True)
        lines += [f"### Time of an epoch against {LABELS[name]}: {law}", ""]
        lines += table((LABELS[name], "s", "theory, s", "over theory"), [(v, m, t, m / t) for v, m, t in rows])
        lines += [f"The exponent that fits best is {slope(found):.2f}.{REMARKS.get(name, '')}", ""]
    full = result["bytes"]["measured"][0]
    rows = [
        (r, m / 1e6, full / r / 1e6, m / (full / r)) for r, m in zip(*list(result["bytes"].values())[:2], strict=True)
    ]
    lines += ["### Bytes of an epoch against reduction: falls as 1 / r", ""]
    lines += table(("reduction r", "MB", "theory, MB", "over theory"), rows)
    for name, found in result["memory"].items():
        rows = []
        for value, grown in zip(found["values"], found["measured"], strict=True):
            theory = state_bytes(**{name: value, **_other(found)})
            rows.append((value, grown / 1e6, theory / 1e6, grown / theory))
        lines += [f"### Memory of a fit against {LABELS[name]}: two matrices of k x p, r = 10, data aside", ""]
        lines += table((LABELS[name], "MB", "theory, MB", "over theory"), rows)
    return lines


def write_page(folder: Path, page: Path) -> None:
    """Write the page from the record."""
    record = load("scaling", folder)
    if record is None:
        return
    picture = page.parent / "figures" / "scaling.png"
    draw(record["result"], picture)
    sizes = record["settings"]
    lines = [
        "# How it scales", "",
        "Written by `make scaling` from the record in `benchmarks/output`; do not edit by hand. Ridge "
        f"codes, l1 ball, masked statistics, batches of {BATCH}, float32 in memory; around n = {sizes['n']:,}, "
        f"p = {sizes['p']:,}, k = {sizes['k']}, one number varies at a time. Times are CPU seconds, wall time "
        f"against threads, the best of {sizes['repeats']}.", "",
        f"![scaling](figures/{picture.name})", "", *describe(record["result"]), *origin(record),
        "## Machine and versions", "", *machines([record]),
    ]  # fmt: skip
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure unless there is a current record, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--again", action="store_true", help="measure again")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the record")
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown file to write")
    given = parser.parse_args(arguments)
    size = TINY if given.tiny else Size()
    measured("scaling", asdict(size), lambda: measure(size), given.output, again=given.again)
    write_page(given.output, given.page)


if __name__ == "__main__":
    main()
