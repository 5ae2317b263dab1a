"""Bars of the paper's claims: speed-up and objective of masks, the trend of table 1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.core import brain_like, learn, start
from benchmarks.harness import Bar, Result, Skipped, best_times
from benchmarks.paper import figure4
from benchmarks.paper.run import settings
from benchmarks.paper.sizes import QUICK
from benchmarks.results import OUTPUT, measured
from benchmarks.sources import store_of
from terafactor import ArraySource, ElasticNet, NormBall
from terafactor.datasets import make_brain_like
from terafactor.problem import Problem
from terafactor.solver import objective

PROBLEM = Problem(2e-3, ElasticNet(0.0), NormBall("l1"))
NEAR = 0.75
"""Share of r that is required as speed-up."""


def speed_up(quick: bool) -> Iterator[Result]:
    """Epochs at the size of the paper's images, p = 200 000, k = 70: ridge codes, the l1 ball, one thread.

    From a packed store in the page cache, and from an array in memory, where adjacent features share cache lines. A fit
    at r takes r epochs, so that the cost of starting it is the same share of all.
    """
    X, _ = make_brain_like(800, 200_000)
    init, reductions = start(X, 70, PROBLEM.constraint), (1, 4, 8, 12)
    with store_of(X) as store:
        for place, source in (("a store", store), ("memory", ArraySource(X))):
            epochs = {
                f"r={r} s": partial(learn, source, PROBLEM, init, reduction=r, statistics="masked", n_epochs=r)
                for r in reductions
            }
            total = best_times(epochs, repeats=1 if quick else 3)
            times = {name: total[name] / r for name, r in zip(epochs, reductions, strict=True)}
            for r in reductions[1:]:
                gain = times["r=1 s"] / times[f"r={r} s"]
                yield Bar(f"speed-up per epoch from {place} at r={r}", gain, NEAR * r, False, details=times)


def same_samples(quick: bool) -> Iterator[Result]:
    """Held-out objective of r = 4 after as many samples as r = 1: 3 600 x 20 000, eight passes."""
    X, held_out = brain_like(20_000)
    source, init = ArraySource(X), start(X, 40, PROBLEM.constraint)
    ends = {}
    for r in (1, 4):
        state = learn(source, PROBLEM, init, reduction=r, statistics="masked", n_epochs=4 if quick else 8)
        ends[r] = objective(ArraySource(held_out), state.dictionary.copy(order="C"), PROBLEM)
    excess = 100 * (ends[4] / ends[1] - 1)
    details = {f"r={r}": value for r, value in ends.items()}
    yield Bar("objective of r=4 above r=1 after as many samples", excess, 2, unit="%", details=details)


def table_1() -> list[dict[str, Any]]:
    """Return the entries of table 1 for the three synthetic tables; measure them if there is no current record."""
    record = measured("figure4", settings(QUICK, figure4.FIELDS), partial(figure4.measure, QUICK), OUTPUT / "paper")
    return [entry for entry in record["result"] if entry["name"].startswith("synthetic")]


def trend(quick: bool) -> Iterator[Result]:
    """Table 1 on synthetic ratings of three sizes: the advantage over coordinate descent, from each to the next.

    The advantage is the speed-up to the error where coordinate descent converges; 0 if that is never reached.
    """
    if quick:
        yield Skipped("trend of table 1", "takes minutes: run it without --quick")
        return
    found = table_1()
    for method in (figure4.PAPER, figure4.TODAY):
        gains = [(entry["name"], figure4.at_level_of_baseline(entry, method) or 0.0) for entry in found]
        for (name, before), (larger, after) in pairwise(gains):
            title = f"advantage of {method} over coordinate descent, {larger} less {name}"
            yield Bar(title, after - before, 0, False, details={name: before, larger: after})


BENCHMARKS = {"speed": speed_up, "samples": same_samples, "trend": trend}
