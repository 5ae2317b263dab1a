"""Write docs/results/reduction.md from the records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import COLORS, drawn, machines, origin, plot, show, table
from benchmarks.reduction.data import EVERY
from benchmarks.reduction.methods import LATEST, PASSES, on_grid
from benchmarks.results import load

BASE, CONTROL = "r = 1", "r = 1, later rows first"
MASKS, NESTED = "masks, r = 8", "nested, r = 8"
FULL = f"{MASKS}, full statistics"
FROM_STORE = (BASE, MASKS, FULL)
"""Methods of the package, which read the packed study from its store."""

BANDWIDTH = 200e6
"""Bytes per second of the disk in the times on paper."""

LEVELS = {"end": 1.0, "1 %": 1.01}
"""Names and factors of the levels, relative to the end of r = 1."""

ROUGH = (1.02, 1.05, 1.1)
"""Rougher levels, for masks only."""

COSTS = {"seconds": "CPU time", "bytes": "bytes", "paper": "time at 200 MB/s"}
SOONER, FEWER_BYTES, LATER = 1 / 1.5, 0.5, 1.1
"""Ratios to r = 1 at which a method would become the default, in time and in bytes, and which it may nowhere exceed."""

INTRODUCTION = """# Do fewer features per step pay?

Written by `make reduction` from the records in `benchmarks/output/reduction`; do not edit by hand.

Each step of a fit can use all features (r = 1, the default), or an eighth of them. The methods:

- **r = 1**: the default batch size and schedule.
- **r = 1, later rows first**: a control. The default makes the initial atoms from rows of the first batch, which are
  then coded by themselves. Here the fit starts with the rows of its second pass.
- **masks, r = 8**: random masks and statistics of the features on the mask, as in the paper, with the default schedule
  for masks. It reads an eighth of the bytes per row.
- **masks, full statistics**: codes and atoms on the mask, statistics of all features from whole rows.
- **masks, a Gram per group**: 96 fixed groups of features, 12 random ones per step. Each group has its own code Gram
  matrix, which averages over the same rows as its data. The groups of a step share the ball.
- **nested**: learn from one fixed eighth of the features for 50 rows per atom, then from all. Regression on 10 rows per
  atom gives the atoms of the other features; the statistics of the former are moved to the Gram matrix of these rows.
- **SOMF**: statistics of all features, exact Gram matrix of the atoms, products averaged over the visits of a row, and
  a reduction of 8, 4, 2 in the first three passes, then 1 ([theory](../theory.md)).

The last three and the control are not in the package, but in `benchmarks/reduction`. All methods have the same batch
size, and visit the same rows in the same order, except on the packed study. To save time, hyperspectral patches are
cut to every {every[8]}th (8 x 8) and every {every[16]}th (16 x 16). This leaves few rows per atom (table of sizes), and
results may differ with all of them.

All fits are evaluated on held-out rows with all features, by one rule that depends on the rows visited alone: whenever
they have grown by a quarter, and at the end of passes 1, 2, 3, 4, 5, 7, 9, 12 and so on, where the objective is lower
than between passes. The "end" is the lowest objective of r = 1 in {passes} passes, the median over seeds. The other
level is 1 % above it. Seeds are paired: each ratio compares fits with the same seed. If r = 1 stays above a level with
some seed, that seed is compared where its r = 1 is lowest.

Other methods stop after the CPU time of r = 1, or {latest:g} times the time at which it was at its end. So no fit can
show that a method never reaches a level, and the bytes of one that does not are those at the stop. "> 3" means that
at least half of the seeds had not reached the level when they stopped, and that the median of these had cost 3 times
as much as r = 1 needs to the level. Tables show the median of ratios to r = 1, and the quartiles in parentheses, "-" if
not reached. Medians of ten seeds are the mean of the two in the middle.

Evaluations, compilation and imports are not timed; reading, gathering and copies are. Fits have one thread. "Time at
200 MB/s" is on paper: the larger of CPU time and bytes / 200 MB/s, for data that do not fit in memory. Two experiments
run at a time, one on each core. With less than 10 rows per atom, as in hyperspectral_16_256, the held-out objective
soon rises again. Before the other features join, nested features are evaluated with zero atoms there.
"""

REASONS = """## Why

- **Masks lose rows.** A feature is visited once in r steps, so its statistics average over r times fewer rows than the
  code Gram matrix. With x = a D + noise, the regression of feature f on the codes gives D_f C_f C^-1 instead of D_f,
  where C_f is the Gram matrix of the rows in which f was seen, and C that of all rows. This error is relative to the
  signal and of size sqrt(k r / R) after R rows ([theory](../theory.md)). It is small only for R much larger than k r:
  more rows than r = 1 needs on any of these data sets.
- **A Gram matrix per group removes that error**, and still does not catch up with r = 1: it is not the only cause.
- **Codes from an eighth of the features are noisier**, and more rows do not reduce that noise ([progress per
  row](#progress-per-row-the-claim-of-the-paper)). It also affects full statistics. These and SOMF read whole rows, so
  that they cannot save bytes.
- **Inertia** may be a third cause, not tested here: while an eighth of the features moves, the others hold the codes
  where they are.
- **Nested features** find the k-dimensional structure in steps that cost an eighth, and pay for it with a regression on
  10 rows per atom with all features. This can pay only if r = 1 needs many more rows per atom (table above), and if an
  eighth of the features is still much larger than k. Where r = 1 is within 1 % after few rows per atom, the regression
  alone takes longer, and nested features can only gain later, on the way to the end.
"""

Curve = Mapping[str, Any]


def write_page(names: Iterable[str], folder: Path, page: Path) -> None:
    """Draw every data set that has a record in ``folder``, and write the page."""
    from benchmarks.reduction import claim_page

    records = {name: record for name in names if (record := load(name, folder)) is not None}
    results = {name: comparable(record["result"]) for name, record in records.items()}
    introduction = INTRODUCTION.format(every=EVERY, passes=PASSES, latest=LATEST)
    lines = [introduction, *summary(results), *regimes(results), REASONS, *conclusions(results)]
    for name, result in results.items():
        picture = page.parent / "figures" / f"reduction_{name}.png"
        draw(result, picture)
        n, p = result["shape"]
        n_seeds = len(result["curves"][BASE])
        sizes = f"{n:,} x {p:,}, k = {result['n_components']}, p / k = {show(p / result['n_components'])}, "
        lines += [f"## {result['title']}", "", f"{sizes}alpha = {result['alpha']:g}, {n_seeds} seeds.", "",
                  *(_packed_note(result) if result["packed"] else []), f"![{result['title']}](figures/{picture.name})",
                  "", *costs(result), *origin(records[name])]  # fmt: skip
        if (stages := load(f"{name}_stages", folder)) is not None:
            lines += [f"Nested features with other stages, {n_seeds} seeds:", "",
                      *costs(comparable(stages["result"])), *origin(stages)]  # fmt: skip
    if (record := load("components", folder)) is not None:
        lines += [*small_components(record), *origin(record)]
        records["components"] = record
    if (record := load("claim", folder)) is not None:
        lines += [*claim_page.section(record["result"], page), *origin(record)]
        records["claim"] = record
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def _packed_note(result: Mapping[str, Any]) -> list[str]:
    per_row = [
        np.median([fit["seconds"][-1] / fit["rows"][-1] for fit in result["stops"][name]]) for name in (CONTROL, BASE)
    ]
    return [
        "The package reads a packed store, dropped from the page cache before each step, in the order of its shards. "
        "Methods outside the package read the same matrix from memory, in another order: the control takes "
        f"{per_row[0] / per_row[1]:.2f} of the CPU time of r = 1 per row. So nested features, SOMF and masks with a "
        "Gram per group are compared with the control here, and with its levels.",
        "",
    ]


def comparable(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with curves on the grid that all fits share, and the last point of each fit as its stop."""
    n_rows, fits = result["shape"][0], result["curves"]
    curves = {name: [on_grid(curve, n_rows) for curve in found] for name, found in fits.items()}
    stops = {name: [{what: values[-1:] for what, values in curve.items()} for curve in found]
             for name, found in fits.items()}  # fmt: skip
    return {**result, "curves": curves, "stops": stops}


def references(result: Mapping[str, Any], name: str, factor: float) -> list[tuple[Curve, float]]:
    """Return, for each seed, the fit with all features that a method is compared with, and the level to reach.

    The level is the median end of these fits, times a factor; where a seed ends above it, its own end.
    """
    whole = BASE if name in (*FROM_STORE, CONTROL) or not result["packed"] else CONTROL
    bases = [_first_rows(curve, PASSES * result["shape"][0]) for curve in result["curves"][whole]]
    ends = [min(curve["objective"]) for curve in bases]
    return [(base, max(factor * float(np.median(ends)), end)) for base, end in zip(bases, ends, strict=True)]


def _first_rows(curve: Curve, n_rows: float) -> Curve:
    count = sum(rows <= n_rows for rows in curve["rows"])
    return {what: values[:count] for what, values in curve.items()}


def end_of(result: Mapping[str, Any]) -> float:
    """Return the median end of r = 1."""
    return float(np.median([min(curve["objective"]) for curve, _ in references(result, BASE, 1.0)]))


def cost_of(curve: Curve, level: float, what: str) -> float:
    """Return the cost at which a curve first reaches a level, infinite if it does not."""
    place = next((place for place, value in enumerate(curve["objective"]) if value <= level), None)
    if place is None:
        return math.inf
    if what == "paper":
        return max(curve["seconds"][place], curve["bytes"][place] / BANDWIDTH)
    return float(curve[what][place])


def quartiles(values: Iterable[float]) -> list[float]:
    """Return quartiles; between two values, their mean, which is infinite if one is."""
    found = sorted(values)
    places = [(math.ceil(len(found) * share) - 1, math.floor(len(found) * share)) for share in (0.25, 0.5, 0.75)]
    return [(found[low] + found[high]) / 2 for low, high in places]


def ratios(result: Mapping[str, Any], name: str, factor: float, what: str) -> list[float]:
    """Return quartiles over seeds of a cost relative to that of r = 1 with the same seed."""
    pairs = zip(result["curves"][name], references(result, name, factor), strict=True)
    return quartiles(cost_of(curve, level, what) / cost_of(base, level, what) for curve, (base, level) in pairs)


def at_stop(result: Mapping[str, Any], name: str, factor: float, what: str) -> float:
    """Return the median relative cost at the stop, over seeds with which the level is not reached."""
    fits = zip(result["curves"][name], result["stops"][name], references(result, name, factor), strict=True)
    return float(np.median([cost_of(stop, math.inf, what) / cost_of(base, level, what)
                            for curve, stop, (base, level) in fits if min(curve["objective"]) > level]))  # fmt: skip


def n_reached(result: Mapping[str, Any], name: str, factor: float) -> int:
    """Return the number of seeds with which a method reaches a level."""
    pairs = zip(result["curves"][name], references(result, name, factor), strict=True)
    return sum(min(curve["objective"]) <= level for curve, (_, level) in pairs)


def middle(result: Mapping[str, Any], name: str, factor: float, what: str) -> str:
    """Return the median ratio as text, or what it exceeds."""
    value = ratios(result, name, factor, what)[1]
    return _ratio(value) if math.isfinite(value) else f"> {at_stop(result, name, factor, what):.2f}"


def summary(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of median ratios, and whether a method meets the conditions of a default."""
    names = list(dict.fromkeys(name for result in results.values() for name in result["curves"]))
    names = [name for name in names if name not in (BASE, CONTROL)]
    lines = ["## In short", ""]
    good: list[str] = []
    for level, factor in LEVELS.items():
        rows = [
            (name, *(" / ".join(middle(result, name, factor, what) for what in ("seconds", "bytes"))
                     for result in results.values()))
            for name in names
        ]  # fmt: skip
        title = "to the end of r = 1" if factor == 1 else f"to {level} above the end of r = 1"
        lines += [f"CPU time / bytes {title}, relative to r = 1, medians:", "", *table(["", *results], rows)]
        for name, (data, result) in itertools.product(names, results.items()):
            time, size = (ratios(result, name, factor, what)[1] for what in ("seconds", "bytes"))
            if time <= SOONER or size <= FEWER_BYTES:
                cells = ", ".join(f"{_cell(result, name, factor, what)} of the {COSTS[what]}" for what in COSTS)
                good.append(f"- {name}, {data}, {level}: {cells}.")
    lines += [*_control(results), "", "Where a method takes at most two thirds of the time, or reads at most half the "
              "bytes:", "", *(good or ["- Nowhere."])]  # fmt: skip
    lines += ["", "Methods that take at most 1.1 times the CPU time and the bytes of r = 1 on every data set, to 1 %: "
              + (", ".join(_never_later(results, names)) or "none") + ".", ""]  # fmt: skip
    return lines


def _control(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what the control shows about the levels."""
    in_memory = {data: result for data, result in results.items() if not result["packed"]}
    found = [ratios(result, CONTROL, 1.01, "seconds")[1] for result in in_memory.values()]
    missed = [data for data, result in in_memory.items() if not math.isfinite(ratios(result, CONTROL, 1.0, "rows")[1])]
    reached = [f"{data} {n_reached(result, CONTROL, 1.0)}" for data, result in in_memory.items()]
    return [
        "**The control** is r = 1 with other first rows, so its ratio should be 1. On data in memory, it takes "
        f"{min(found):.2f} to {max(found):.2f} of the CPU time to 1 %: smaller differences between methods mean "
        f"nothing. It reaches the end with these numbers of seeds: {', '.join(reached)}; with at most half of them on "
        f"{len(missed)} of {len(in_memory)} data sets. So the end, the lowest of many values, is no even contest: a "
        "method that misses it may be as good as r = 1. The conclusions below rest on 1 %.",
    ]


def regimes(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return tables of sizes, of rows that r = 1 needs, of costs of masks and nested features, and of rough levels."""
    rows, rough = [], []
    for data, result in results.items():
        (n, p), k = result["shape"], result["n_components"]
        cells = [" / ".join(middle(result, name, 1.01, what) for what in ("seconds", "bytes", "paper"))
                 for name in (MASKS, NESTED)]  # fmt: skip
        highest = max(curve["objective"][0] for curves in result["curves"].values() for curve in curves)
        share = end_of(result) / (highest - end_of(result))
        rows.append((data, p / k, n / k, rows_per_atom(result), f"{share:.1f} %", *cells))
        rough.append((data, *(" / ".join(middle(result, MASKS, factor, what) for what in ("seconds", "bytes"))
                              for factor in ROUGH)))  # fmt: skip
    headings = ["", "p / k", "rows per atom, one pass", "rows per atom to 1 %, r = 1", "1 % is this share of the gain"]
    return [
        "Sizes, and CPU time / bytes / time at 200 MB/s to 1 % above the end of r = 1, relative to r = 1. The gain is "
        "the distance from the end to the highest objective of any fit, after its first batch, so that the share is "
        "an upper bound:",
        "",
        *table([*headings, "masks", "nested"], rows),
        "Rough levels: CPU time / bytes of masks to some per cent above the end of r = 1, relative to r = 1. Where "
        "r = 1 is there after its first batch, the first evaluation, the ratio says little:",
        "",
        *table(["", *(f"{100 * (factor - 1):.0f} %" for factor in ROUGH)], rough),
    ]


def rows_per_atom(result: Mapping[str, Any]) -> float:
    """Return the median number of rows per atom that r = 1 needs to 1 % above its end."""
    needed = [cost_of(curve, level, "rows") for curve, level in references(result, BASE, 1.01)]
    return float(np.median(needed)) / int(result["n_components"])


def conclusions(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the section on what follows for the default."""
    text = [
        '`reduction="auto"` is 1, because no method of this study keeps within 1.1 times the cost of r = 1 on all data.'
    ]
    for name, what in itertools.product((MASKS, NESTED), ("seconds", "bytes")):
        found = {data: ratios(result, name, 1.01, what)[1] for data, result in results.items()}
        finite = [value for value in found.values() if math.isfinite(value)]
        missed = {data: at_stop(results[data], name, 1.01, what) for data in found if math.isinf(found[data])}
        parts = [f"{_range(finite)} times the {COSTS[what]} of r = 1 (medians of data sets)"] if finite else []
        parts += [f"not within {_range(missed.values())} times on {', '.join(missed)}"] if missed else []
        text.append(f"{name.partition(',')[0].capitalize()}, to 1 %: {'; '.join(parts)}.")
    return ["## What follows", "", *(f"- {line}" for line in [*text, *_rule(results)]), ""]


def _rule(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return whether the rows per atom that r = 1 needs separate where nested features save bytes."""
    costs: dict[str, list[float]] = {what: [ratios(result, NESTED, 1.01, what)[1] for result in results.values()]
                                     for what in ("bytes", "seconds")}  # fmt: skip
    needed = [rows_per_atom(result) for result in results.values()]
    saves = np.array(costs["bytes"]) < 1
    if not 0 < saves.sum() < len(saves):
        return []
    low, high = max(np.array(needed)[~saves]), min(np.array(needed)[saves])
    if low >= high:
        return ["No number of rows per atom separates the data sets on which nested features save bytes."]
    best = [_range(np.array(costs[what])[saves]) for what in ("bytes", "seconds")]
    return [
        f"Nested features save bytes where r = 1 needs at least {high:.0f} rows per atom to 1 %, and none where it "
        f"needs at most {low:.0f}. Where they save, they read {best[0]} of the bytes and take {best[1]} times the CPU "
        "time. That is not enough for a default, and the rows needed are not known before the fit."
    ]


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (found[0], found[-1])))


def _never_later(results: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return the methods that are nowhere much costlier than r = 1."""
    return [
        name
        for name in names
        if all(ratios(result, name, 1.01, what)[1] <= LATER for result in results.values()
               for what in ("seconds", "bytes"))
    ]  # fmt: skip


def costs(result: Mapping[str, Any]) -> list[str]:
    """Return the table of costs of r = 1 and of the ratios of the others."""
    columns, rows = list(itertools.product(LEVELS.values(), COSTS)), []
    for name, curves in result["curves"].items():
        low = np.median([min(curve["objective"]) for curve in curves]) / end_of(result) - 1
        if name == BASE:
            medians = [np.median([cost_of(*pair, what) for pair in references(result, BASE, factor)])
                       for factor, what in columns]  # fmt: skip
            cells = [_absolute(float(value), what) for value, (_, what) in zip(medians, columns, strict=True)]
        else:
            cells = [_cell(result, name, factor, what) for factor, what in columns]
        rows.append((name, *cells, f"{100 * low:+.2f} %"))
    headings = ["", *(f"{level}: {label}" for level in LEVELS for label in COSTS.values()), "lowest objective"]
    lines = table(headings, rows)
    if result["packed"]:
        clock = [(name, *(_cell(result, name, factor, "clock") for factor in LEVELS.values()))
                 for name in (MASKS, FULL)]  # fmt: skip
        lines += ["By the clock, from a cold cache, relative to r = 1:", "", *table(["", *LEVELS], clock)]
    return lines


def _cell(result: Mapping[str, Any], name: str, factor: float, what: str) -> str:
    low, _, high = ratios(result, name, factor, what)
    text = middle(result, name, factor, what)
    return f"{text} ({_ratio(low)} to {_ratio(high)})" if math.isfinite(low) else text


def _ratio(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _absolute(value: float, what: str) -> str:
    return f"{show(value / 1e6)} MB" if what == "bytes" else f"{show(value)} s"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the distance from the end of r = 1 against time and bytes; lines mark the levels."""
    end = end_of(result)
    with drawn(path, 2, width=5.4, height=4.2) as axes:
        for axis, (what, label, unit) in zip(axes, (("seconds", "CPU time, s", 1), ("bytes", "bytes used, MB", 1e6)),
                                             strict=True):  # fmt: skip
            for number, (name, curves) in enumerate(result["curves"].items()):
                plot_band(axis, number, curves, what, name, end, end, unit)
            for level, factor in LEVELS.items():
                axis.axhline(100 * (factor - 1), color="black", linewidth=0.8, linestyle=":")
                axis.annotate(level, (1, 100 * (factor - 1)), xycoords=("axes fraction", "data"), fontsize=8,
                              va="center")  # fmt: skip
            scale(axis, label, "held-out objective above the end of r = 1, %")
        axes[0].legend(frameon=False, fontsize=7, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))


def plot_band(
    axis: Any, number: int, curves: Sequence[Curve], what: str, label: str, zero: float, whole: float, unit: float = 1
) -> None:
    """Draw the median and quartiles over seeds of the distance from ``zero``, in per cent of ``whole``."""
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=1, linscale=0.7)
    low = max(max(curve[what][0] for curve in curves), 1e-4)
    x = np.geomspace(low, max(min(curve[what][-1] for curve in curves), low), 60)
    excess = [np.interp(x, curve[what], 100 * (np.array(curve["objective"]) - zero) / whole) for curve in curves]
    bounds = np.quantile(excess, (0.25, 0.5, 0.75), axis=0)
    plot(axis, number, x / unit, bounds[1], label, markersize=0)
    axis.fill_between(x / unit, bounds[0], bounds[2], alpha=0.15, linewidth=0, color=COLORS[number])


TICKS = [sign * value for sign in (-1, 1) for value in (0, 0.5, 1, 2, 5, 10, 20, 50, 100)]


def scale(axis: Any, x_label: str, y_label: str) -> None:
    """Set logarithmic scales with plain numbers; the y axis is linear between -1 and 1."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator

    low, high = axis.get_xlim()
    axis.set(xlabel=x_label, ylabel=y_label)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.yaxis.set_major_locator(FixedLocator(TICKS))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}"))


def small_components(record: Mapping[str, Any]) -> list[str]:
    """Return the section on small components among many features."""
    from benchmarks.reduction.components import FOUND

    result, size = record["result"], record["settings"]
    sizes, rows = result["sizes"], []
    for name, seeds in result["correlations"].items():
        is_found = np.array(seeds) >= FOUND
        smallest = [sizes[int(np.argmax(found))] if found.any() else None for found in is_found]
        counts = ", ".join(f"{count}" for count in is_found.sum(axis=1))
        rows.append((name, counts, ", ".join(map(show, smallest)), f"{np.median(seeds):.2f}"))
    return [
        "## Small components",
        "",
        f"{len(sizes)} disjoint components of {sizes[0]} to {sizes[-1]:,} voxels among {size['n_features']:,}, noise "
        f"of the same variance in every voxel, sparse maps, {size['n_rows']} rows, {size['n_passes']} passes. A "
        f"component is found if an atom correlates with it by at least {FOUND:g}. One number for each seed.",
        "",
        *table(["", "found", "smallest found, voxels", "median correlation"], rows),
    ]
