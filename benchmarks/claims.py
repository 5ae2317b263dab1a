"""The bars of the paper's claims: speed-up and objective of masks, the trend of table 1."""

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
from terafactor import ArraySource, ElasticNet, NormBall
from terafactor.datasets import make_brain_like
from terafactor.problem import Problem
from terafactor.solver import objective

PROBLEM = Problem(2e-3, ElasticNet(0.0), NormBall("l1"))
NEAR = 0.75
"""Share of r that counts as near."""


def speed_up(quick: bool) -> Iterator[Result]:
    """Some steps at the size of the paper's images, p = 200 000, k = 70: ridge codes, the l1 ball, one thread."""
    X, _ = make_brain_like(800, 200_000)
    source, init = ArraySource(X), start(X, 70, PROBLEM.constraint)
    epochs = {
        f"r={r} s": partial(learn, source, PROBLEM, init, reduction=r, statistics="masked") for r in (1, 4, 8, 12)
    }
    times = best_times(epochs, repeats=1 if quick else 3)
    for r in (4, 8, 12):
        yield Bar(f"speed-up per epoch at r={r}", times["r=1 s"] / times[f"r={r} s"], NEAR * r, False, details=times)


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
    """Return what table 1 shows for the three synthetic tables: what ``make paper`` measured here, or else now."""
    record = measured("figure4", settings(QUICK, figure4.FIELDS), partial(figure4.measure, QUICK), OUTPUT / "paper")
    return [entry for entry in record["result"] if entry["name"].startswith("synthetic")]


def trend(quick: bool) -> Iterator[Result]:
    """Table 1 on synthetic ratings of three sizes: the advantage over coordinate descent, from each to the next.

    It is how many times sooner a method passes the error where coordinate descent converges: 0 when it never does.
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
