"""Write docs/results/learning.md from the records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.measure import BEFORE, GRID, MOST_SECONDS, N_PASSES, NEW
from benchmarks.pages import COLORS, drawn, machines, origin, plot, show, table
from benchmarks.results import load

INTRODUCTION = f"""# How fast it learns

Written by `make learning` from the records in `benchmarks/output/learning`; do not edit by hand.

Held-out objective against CPU time and against rows seen, with one thread, reduction 1 and the same strength of the
penalty for all. Compilation, imports and evaluations are not timed. Curves are medians over paired seeds, bands are
quartiles. Levels are distances from the lowest objective of all contestants and seeds.

"{BEFORE}" was the default of version 0.1. It is evaluated after {N_PASSES} passes or
{MOST_SECONDS:g} seconds, whichever comes first. scikit-learn learns batch by batch through `partial_fit`, with its
default batch size. SPAMS has no callbacks: each of its points is a fit from scratch. Settings of the grid (batches of
k/2 to 4 k, exponents 0.51 to 0.9) learn for three tenths of the time that the default has, so "-" can mean that they
would reach a level later; data sets without a value were measured without the grid, or it did not reach 1 %.

[What the defaults do](../defaults.md) has the reasons.

## In short
"""

LEVELS = (0.1, 0.05, 0.02, 0.01, 0.005)
WORTH = 0.5
"""Levels that the earlier default reaches in fewer seconds are not compared: they are too easy."""


def write_page(names: Iterable[str], folder: Path, page: Path) -> None:
    """Draw every data set that has a record in ``folder``, and write the page."""
    records = {name: record for name in names if (record := load(name, folder)) is not None}
    lines = [INTRODUCTION, *summary({name: record["result"] for name, record in records.items()})]
    for name, record in records.items():
        result, picture = record["result"], page.parent / "figures" / f"learning_{name}.png"
        draw(result, picture)
        n, p = result["shape"]
        lines += [f"## {result['title']}", "",
                  f"{n:,} x {p:,}, k = {result['n_components']}, alpha = {result['alpha']:g}.", "",
                  f"![{result['title']}](figures/{picture.name})", "", *times(result), *origin(record)]  # fmt: skip
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def lowest(result: Mapping[str, Any]) -> float:
    """Return the lowest objective of all contestants."""
    return min(min(curve["objective"]) for curves in result["curves"].values() for curve in curves)


def time_to(curves: Sequence[Mapping[str, Any]], level: float) -> float:
    """Return the median over seeds of the seconds to a level, infinite if most seeds do not reach it."""
    return float(np.median([_first(curve, level) for curve in curves]))


def _first(curve: Mapping[str, Any], level: float) -> float:
    pairs = zip(curve["seconds"], curve["objective"], strict=True)
    return next((seconds for seconds, value in pairs if value <= level), math.inf)


def end_of(curves: Sequence[Mapping[str, Any]]) -> float:
    """Return the median over seeds of the last objective."""
    return float(np.median([curve["objective"][-1] for curve in curves]))


def evaluation_of(curves: Sequence[Mapping[str, Any]], n_rows: int) -> tuple[float, float]:
    """Return seconds and objective of a contestant after ten passes or thirty seconds; medians over seeds."""
    found = []
    for curve in curves:
        rows, seconds = np.array(curve["rows"]), np.array(curve["seconds"])
        place = int(np.flatnonzero((rows >= N_PASSES * n_rows) | (seconds >= MOST_SECONDS) | (rows == rows[-1]))[0])
        found.append((curve["seconds"][place], curve["objective"][place]))
    seconds, objectives = np.median(found, axis=0)
    return float(seconds), float(objectives)


def summary(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of time saved by the default, and the cases where it loses."""
    rows, lost, gains = [], [], []
    for name, result in results.items():
        curves, best = result["curves"], lowest(result)
        before, end = evaluation_of(curves[BEFORE], result["shape"][0])
        now = time_to(curves[NEW], end)
        gains += [before / now] if math.isfinite(now) else []
        rows.append((name, before, now, before / now, _against_grid(result), _percent(end_of(curves[NEW]) / best - 1),
                     _percent(end / best - 1)))  # fmt: skip
        lost += list(losses(name, result))
    headings = ["data", "earlier default, s", "default there after, s", "times sooner", "time to 1 % / best of grid",
                "default ends above best", "earlier default ends above best"]  # fmt: skip
    mean = float(np.exp(np.mean(np.log(gains)))) if gains else math.nan
    return [
        f"The default is where the earlier one ends after 1/{mean:.1f} of its time (geometric mean).",
        "",
        *table(headings, rows),
        "### Where it loses",
        "",
        *(lost or ["Nowhere on these data sets."]),
        "",
    ]


def _against_grid(result: Mapping[str, Any]) -> str:
    """Return the time to 1 %, relative to the best of the grid."""
    level = 1.01 * lowest(result)
    grid = [time_to(result["curves"][name], level) for name in GRID if name in result["curves"]]
    if not grid or math.isinf(min(grid)):
        return "-"
    return show(time_to(result["curves"][NEW], level) / min(grid))


def losses(name: str, result: Mapping[str, Any]) -> Iterable[str]:
    """Yield where the default is slower than the earlier one, or than another package."""
    best, curves = lowest(result), result["curves"]
    for other, theirs in curves.items():
        if other == NEW or other in GRID:
            continue
        for level in LEVELS:
            mine, their = (time_to(which, best * (1 + level)) for which in (curves[NEW], theirs))
            if math.isfinite(their) and their < mine and (other != BEFORE or their >= WORTH):
                when = "does not reach it" if math.isinf(mine) else f"takes {show(mine)} s"
                yield f"- {name}, {100 * level:g} % above the best: {other} takes {show(their)} s, the default {when}."


def times(result: Mapping[str, Any]) -> list[str]:
    """Return the table of seconds to each level."""
    best, curves = lowest(result), result["curves"]
    level = 1.01 * best
    grid = sorted((name for name in GRID if name in curves), key=lambda name: time_to(curves[name], level))
    shown = [name for name in curves if name not in GRID] + grid[:1]
    rows = [
        (
            name + (", best of the grid" if name in GRID else ""),
            *(_seconds(time_to(curves[name], best * (1 + level))) for level in LEVELS),
            _percent(end_of(curves[name]) / best - 1),
        )
        for name in shown
    ]
    return table(["", *(f"s to {100 * level:g} %" for level in LEVELS), "end"], rows)


def _seconds(value: float) -> str | float:
    return "-" if math.isinf(value) else value


def _percent(share: float) -> str:
    return f"+{100 * share:.2f} %"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the distance from the best against time and against rows."""
    best = lowest(result)
    with drawn(path, 2, width=5.2, height=3.6) as axes:
        for axis, what, label in zip(axes, ("seconds", "rows"), ("processor seconds", "rows seen"), strict=True):
            for number, (name, curves) in enumerate((n, c) for n, c in result["curves"].items() if n not in GRID):
                x, quartiles = _band(curves, what, best)
                plot(axis, number, x, quartiles[1], name, markersize=0)
                axis.fill_between(x, quartiles[0], quartiles[2], alpha=0.15, linewidth=0, color=COLORS[number])
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel="above the best, %")
        axes[0].legend(frameon=False, fontsize=7)


def _band(curves: Sequence[Mapping[str, Any]], what: str, best: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points on an axis and quartiles over seeds of the excess in per cent there."""
    low = max(max(min(curve[what]) for curve in curves), 1e-4)
    high = min(max(curve[what]) for curve in curves)
    x = np.geomspace(low, max(high, low), 60)
    excess = [np.interp(x, curve[what], 100 * (np.array(curve["objective"]) / best - 1)) for curve in curves]
    return x, np.maximum(np.quantile(excess, (0.25, 0.5, 0.75), axis=0), 1e-2)
