"""Write docs/results/reduction.md from the records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import COLORS, drawn, machines, origin, plot, show, table
from benchmarks.results import load

BASE, CONTROL = "r = 1", "r = 1, later rows first"
BANDWIDTH = 200e6
"""Bytes per second of the disk in the times on paper."""

LEVELS = {"end": 1.0, "1 %": 1.01}
"""Names and factors of the levels, relative to the median end of r = 1."""

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
size, and visit the same rows in the same order, except on the packed study.

Levels are the median end of r = 1 after 10 passes, and 1 % above it, on held-out rows with all features. Other
methods stop after the CPU time of r = 1, or ten times the time after which it was first as low as at its end. Seeds
are paired: each ratio compares fits with the same seed. Tables show the median and the quartiles of ratios to r = 1;
"-" means that the level is not reached in that time. If r = 1 ends above a level with some seed, that seed is
compared at the end of its r = 1. Evaluations, compilation and imports are not timed; reading, gathering and copies
are. Fits have one thread. "Time at 200 MB/s" is on paper: the larger of CPU time and bytes / 200 MB/s, for data that
do not fit in memory. Two experiments run at a time, one on each core.

The objective is lower at the end of a pass than between passes, by 0.1 to 0.7 %, so all methods are also evaluated at
ends of passes. With less than 10 rows per atom, as in hyperspectral_16_256, the held-out objective soon rises again.
Before the other features join, nested features are evaluated with zero atoms there.
"""

REASONS = """## Why

- **Masks lose rows.** A feature is visited once in r steps, so its statistics average over r times fewer rows than the
  code Gram matrix. With x = a D + noise, the regression of feature f on the codes gives D_f C_f C^-1 instead of D_f,
  where C_f is the Gram matrix of the rows in which f was seen, and C that of all rows. This error is relative to the
  signal and of size sqrt(k r / R) after R rows ([theory](../theory.md)). It is small only for R much larger than k r:
  more rows than r = 1 needs on any of these data sets.
- **A Gram matrix per group removes that error**, and still does not catch up with r = 1: it is not the only cause. A
  likely second one, not tested here: while an eighth of the features moves, the others hold the codes where they are.
- **Full statistics and SOMF read whole rows**, so they cannot save bytes, and codes from few features are noisier.
- **Smaller batches do not help masks.** In trials with three seeds, batches of k / 2 and k instead of 2 k ended as far
  above r = 1, or further (subjects, hyperspectral_16).
- **Nested features** find the k-dimensional structure in steps that cost an eighth, and pay for it with a regression on
  10 rows per atom with all features. This can pay only if r = 1 needs many more rows per atom (table above), and if an
  eighth of the features is still much larger than k. Where r = 1 is within 1 % after few rows per atom, the regression
  alone takes longer, and nested features can only gain later, on the way to the end.
"""

Curve = Mapping[str, Any]


def write_page(names: Iterable[str], folder: Path, page: Path) -> None:
    """Draw every data set that has a record in ``folder``, and write the page."""
    records = {name: record for name in names if (record := load(name, folder)) is not None}
    results = {name: record["result"] for name, record in records.items()}
    lines = [INTRODUCTION, *summary(results), *regimes(results), REASONS, *conclusions(results)]
    for name, record in records.items():
        result, picture = record["result"], page.parent / "figures" / f"reduction_{name}.png"
        draw(result, picture)
        n, p = result["shape"]
        n_seeds = len(result["curves"][BASE])
        sizes = f"{n:,} x {p:,}, k = {result['n_components']}, p / k = {show(p / result['n_components'])}, "
        lines += [f"## {result['title']}", "", f"{sizes}alpha = {result['alpha']:g}, {n_seeds} seeds.", "",
                  *(_packed_note() if result["packed"] else []),
                  f"![{result['title']}](figures/{picture.name})", "", *costs(result), *origin(record)]  # fmt: skip
        if (stages := load(f"{name}_stages", folder)) is not None:
            n_seeds = len(stages["result"]["curves"][BASE])
            lines += [f"Nested features with other stages, {n_seeds} seeds:", "", *costs(stages["result"]),
                      *origin(stages)]  # fmt: skip
    if (record := load("components", folder)) is not None:
        lines += [*small_components(record["result"]), *origin(record)]
        records["components"] = record
    if (record := load("claim", folder)) is not None:
        lines += [*claim(record["result"], page), *origin(record)]
        records["claim"] = record
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def _packed_note() -> list[str]:
    return [
        "The package reads a packed store, dropped from the page cache before each step, in the order of its shards. "
        "Methods outside the package read the same matrix from memory, in another order, which takes about half of the "
        "CPU time per row (compare the control): for them, compare the bytes, which are those of the values used.",
        "",
    ]


def level_of(result: Mapping[str, Any], factor: float) -> float:
    """Return a level: the median end of r = 1, times a factor."""
    return factor * float(np.median([curve["objective"][-1] for curve in result["curves"][BASE]]))


def cost_of(curve: Curve, level: float, what: str) -> float:
    """Return the cost at which a curve first reaches a level, infinite if it does not."""
    place = next((place for place, value in enumerate(curve["objective"]) if value <= level), None)
    if place is None:
        return math.inf
    if what == "paper":
        return max(curve["seconds"][place], curve["bytes"][place] / BANDWIDTH)
    return float(curve[what][place])


def ratios(result: Mapping[str, Any], name: str, factor: float, what: str) -> list[float]:
    """Return quartiles over seeds of a cost relative to that of r = 1 with the same seed.

    A seed with which r = 1 ends above the level is compared at the end of r = 1 with that seed.
    """
    level, found = level_of(result, factor), []
    for base, curve in zip(result["curves"][BASE], result["curves"][name], strict=True):
        reference = max(level, base["objective"][-1])
        found.append(cost_of(curve, reference, what) / cost_of(base, reference, what))
    return [float(value) for value in np.quantile(found, (0.25, 0.5, 0.75), method="nearest")]


def summary(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of median ratios, and whether a method meets the conditions of a default."""
    names = list(dict.fromkeys(name for result in results.values() for name in result["curves"]))
    names = [name for name in names if name not in (BASE, CONTROL)]
    lines = ["## In short", ""]
    good: list[str] = []
    for level, factor in LEVELS.items():
        rows: list[Sequence[Any]] = []
        for name in names:
            cells = []
            for data, result in results.items():
                time, size = (ratios(result, name, factor, what)[1] for what in ("seconds", "bytes"))
                cells.append(f"{_ratio(time)} / {_ratio(size)}")
                if time <= SOONER or size <= FEWER_BYTES:
                    low, _, high = map(_ratio, ratios(result, name, factor, "seconds"))
                    on_paper = _ratio(ratios(result, name, factor, "paper")[1])
                    good.append(
                        f"- {name}, {data}, {level}: {_ratio(time)} of the CPU time (quartiles {low} and {high}), "
                        f"{_ratio(size)} of the bytes, {on_paper} of the time at 200 MB/s."
                    )
            rows.append((name, *cells))
        title = "to the end of r = 1" if factor == 1 else f"to {level} above the end of r = 1"
        lines += [f"CPU time / bytes {title}, relative to r = 1, medians:", "", *table(["", *results], rows)]
    lines += ["Where a method takes at most two thirds of the time, or reads at most half the bytes:", ""]
    lines += good or ["- Nowhere."]
    lines += ["", "Methods that take at most 1.1 times the CPU time and the bytes of r = 1 on every data set, at both "
              "levels: " + (", ".join(_never_later(results, names)) or "none") + ".", ""]  # fmt: skip
    return lines


def regimes(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of sizes, of the rows that r = 1 needs, and of what masks and nested features cost there."""
    rows = []
    for data, result in results.items():
        (n, p), k, level = result["shape"], result["n_components"], level_of(result, 1.01)
        needed = [cost_of(c, max(level, c["objective"][-1]), "rows") for c in result["curves"][BASE]]
        cells = [" / ".join(_ratio(ratios(result, name, 1.01, what)[1]) for what in ("seconds", "bytes", "paper"))
                 for name in ("masks, r = 8", "nested, r = 8")]  # fmt: skip
        rows.append((data, p / k, n / k, float(np.median(needed)) / k, *cells))
    headings = ["", "p / k", "rows per atom, one pass", "rows per atom to 1 %, r = 1", "masks", "nested"]
    return [
        "Sizes, and CPU time / bytes / time at 200 MB/s to 1 % above the end of r = 1, relative to r = 1:",
        "",
        *table(headings, rows),
    ]


def conclusions(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the section on what follows for the default."""
    text = ['`reduction="auto"` is 1, because no method of this study keeps within 1.1 times the cost of r = 1.']
    for name in ("masks, r = 8", "nested, r = 8"):
        for factor in LEVELS.values():
            found = {data: ratios(result, name, factor, "seconds")[1] for data, result in results.items()}
            reached = sorted(value for value in found.values() if math.isfinite(value))
            never = [data for data, value in found.items() if not math.isfinite(value)]
            title = f"{name.partition(',')[0].capitalize()}, {'to the end' if factor == 1 else 'to 1 %'}: "
            if reached:
                times = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (reached[0], reached[-1])))
                title += f"{times} times the CPU time of r = 1 (medians of data sets)"
            text.append(f"{title}{'; ' if reached and never else ''}{'never on ' + ', '.join(never) if never else ''}.")
    both = [
        data
        for data, result in results.items()
        if all(ratios(result, "nested, r = 8", factor, "seconds")[1] <= SOONER for factor in LEVELS.values())
    ]
    text.append(
        "Nested features take at most two thirds of the time at both levels on "
        f"{', '.join(both) or 'no data set'}. No rule by sizes is known that selects the data sets on which they gain, "
        "and none of those on which they lose."
    )
    return ["## What follows", "", *(f"- {line}" for line in text), ""]


def _never_later(results: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return the methods that are nowhere much costlier than r = 1."""
    return [
        name
        for name in names
        if all(
            ratios(result, name, factor, what)[1] <= LATER
            for result in results.values()
            for factor in LEVELS.values()
            for what in ("seconds", "bytes")
        )
    ]


def costs(result: Mapping[str, Any]) -> list[str]:
    """Return the table of costs of r = 1 and of the ratios of the others."""
    columns = [(level, factor, what) for level, factor in LEVELS.items() for what in COSTS]
    level, rows = level_of(result, 1.0), []
    for name, curves in result["curves"].items():
        end = f"{100 * (np.median([curve['objective'][-1] for curve in curves]) / level - 1):+.2f} %"
        cells = []
        for _, factor, what in columns:
            if name == BASE:
                costs = [
                    cost_of(curve, max(level_of(result, factor), curve["objective"][-1]), what) for curve in curves
                ]
                cells.append(_absolute(float(np.median(costs)), what))
            else:
                low, middle, high = map(_ratio, ratios(result, name, factor, what))
                cells.append(middle if middle == "-" else f"{middle} ({low} to {high})")
        rows.append((name, *cells, end))
    headings = ["", *(f"{level}: {COSTS[what]}" for level, _, what in columns), "where it ends"]
    lines = table(headings, rows)
    if result["packed"]:
        names = [BASE, "masks, r = 8", "masks, r = 8, full statistics"]
        clock = [
            (name, *(_ratio(ratios(result, name, factor, "clock")[1]) for factor in LEVELS.values())) for name in names
        ]
        lines += ["By the clock, from a cold cache, relative to r = 1:", "", *table(["", *LEVELS], clock)]
    return lines


def _ratio(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _absolute(value: float, what: str) -> str:
    return f"{show(value / 1e6)} MB" if what == "bytes" else f"{show(value)} s"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the distance from the lowest objective against time and bytes; lines mark the levels."""
    best = min(min(curve["objective"]) for curves in result["curves"].values() for curve in curves)
    with drawn(path, 2, width=5.4, height=3.8) as axes:
        for axis, what, label in zip(axes, ("seconds", "bytes"), ("CPU seconds", "MB used"), strict=True):
            for number, (name, curves) in enumerate(result["curves"].items()):
                x, quartiles = band(curves, what, best)
                plot(axis, number, x / (1e6 if what == "bytes" else 1), quartiles[1], name, markersize=0)
                axis.fill_between(x / (1e6 if what == "bytes" else 1), quartiles[0], quartiles[2], alpha=0.15,
                                  linewidth=0, color=COLORS[number])  # fmt: skip
            for factor in LEVELS.values():
                axis.axhline(100 * (level_of(result, factor) / best - 1), color="gray", linewidth=0.8, linestyle=":")
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel="above the lowest, %")
        axes[0].legend(frameon=False, fontsize=7, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))


def band(curves: Sequence[Curve], what: str, best: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points on an axis and quartiles over seeds of the excess in per cent there."""
    low = max(max(min(curve[what]) for curve in curves), 1e-4)
    x = np.geomspace(low, max(min(max(curve[what]) for curve in curves), low), 60)
    excess = [np.interp(x, curve[what], 100 * (np.array(curve["objective"]) / best - 1)) for curve in curves]
    return x, np.maximum(np.quantile(excess, (0.25, 0.5, 0.75), axis=0), 2e-2)


def small_components(result: Mapping[str, Any]) -> list[str]:
    """Return the section on small components among many features."""
    from benchmarks.reduction.components import FOUND

    sizes, rows = result["sizes"], []
    for name, seeds in result["correlations"].items():
        is_found = np.array(seeds) >= FOUND
        smallest = [sizes[int(np.argmax(found))] if found.any() else None for found in is_found]
        counts = ", ".join(f"{count}" for count in is_found.sum(axis=1))
        rows.append((name, counts, ", ".join(map(show, smallest)), f"{np.median(seeds):.2f}"))
    return [
        "## Small components",
        "",
        f"{len(sizes)} disjoint components of {sizes[0]} to {sizes[-1]:,} voxels among 200,000, noise of the same "
        "variance in every voxel, sparse maps, 600 rows, 5 passes. A component is found if an atom correlates with it "
        f"by at least {FOUND:g}. One number for each seed.",
        "",
        *table(["", "found", "smallest found, voxels", "median correlation"], rows),
    ]


CLAIM = """## Progress per row: the claim of the paper

The paper reports that on 2 TB of fMRI (2.4 million rows, k = 70), progress per row hardly falls with the reduction for
r up to 12, which makes r = 12 about ten times as fast. The simulation below finds that

- **the claim holds with the paper's schedule if there are many rows**: R / (k r) of a thousand and more after R rows.
  For the paper's data it is 2,900. There, r = 12 is where r = 1 is after the same number of rows, or ahead of it, and
  reads a twelfth of the bytes. With R / (k r) of 100, r = 12 is 1 to 8 % of the gain behind, and more if the noise is
  strong; with 10, it has hardly begun.
- **The reasons.** The error of masked statistics, sqrt(k r / R), has become small. And r = 1 is slow by then, not for
  want of rows: weights `t ** -0.9` hardly forget the codes of the first, poor atoms, so that it advances by a small
  power of the rows, and r = 12 catches up.
- **Which property of the data matters.** Redundant features (copies of each other) and little noise let r = 12 catch up
  sooner; strong noise and few features per atom delay it. Sparse codes and subjects with their own maps matter less.
- **It is not the statistics**: with full statistics, r = 12 ends further above r = 1.
- **It is no gain over today's r = 1.** With the default schedule, r = 1 needs about a hundredth of these rows, and a
  seventh to a twelfth of the bytes of r = 12, to be where the paper's r = 1 ends (last two lines of both tables).

The simulation varies one property of the rows at a time, with the settings of the paper: batches of 40,
weights `t ** -0.9`, ridge codes, atoms in the l1 ball. There are two versions of r = 12: with masked statistics, as in
the paper, and with statistics of whole rows, as in the package that its authors released later.

Columns are median rows to a level: r = 1 with the default schedule / r = 1 with the paper's / r = 12 masked / r = 12
with full statistics. "Gain" is the difference between no atoms and the lowest median end of r = 1: 1 % of it does not
depend on how much of the energy is noise. "Where the paper's r = 1 ends" is after all R rows of the simulation. "-"
means not within these rows. The next columns are the excess of r = 12 over r = 1 after the same number of rows, both
with the paper's schedule, as a share of the gain; a negative one means that r = 12 is ahead.
"""


def claim(result: Mapping[str, Any], page: Path) -> list[str]:
    """Return the section on progress per row."""
    from benchmarks.reduction.claim import ALL, DEFAULT, FULL, MASKS, REDUCTION

    rows, sizes = [], []
    for name, found in result.items():
        curves, unit = found["curves"], REDUCTION * found["rows"]["n_components"]
        end = min(float(np.median([curve["objective"][-1] for curve in curves[which]])) for which in (ALL, DEFAULT))
        gain = found["without_atoms"] - end
        cells: list[str] = []
        slow_end = float(np.median([curve["objective"][-1] for curve in curves[ALL]]))
        for level in (end + 0.01 * gain, slow_end):
            needed = [_median_cost(curves[which], level, "rows") for which in (DEFAULT, ALL, MASKS, FULL)]
            cells.append(" / ".join(f"{value:,.0f}" if math.isfinite(value) else "-" for value in needed))
        for which, at in ((MASKS, 10 * unit), (MASKS, 100 * unit), (MASKS, math.inf), (FULL, math.inf)):
            excess = [_at(other, at) - _at(whole, at) for whole, other in zip(curves[ALL], curves[which], strict=True)]
            reached = at == math.inf or at <= curves[which][0]["rows"][-1]
            cells.append(f"{100 * float(np.median(excess)) / gain:+.2f} %" if reached else "-")
        explained, visits = f"{100 * gain / found['without_atoms']:.0f} %", curves[MASKS][0]["rows"][-1] / unit
        rows.append((name, explained, show(round(visits)), *cells))
        needed = [_median_cost(curves[which], slow_end, "bytes") for which in (DEFAULT, ALL, MASKS, FULL)]
        sizes.append((name, *(_absolute(value, "bytes") if math.isfinite(value) else "-" for value in needed)))
    _draw_claim(result, page.parent / "figures" / "reduction_claim.png")
    excess = [f"masked, after {multiple} k r rows" for multiple in (10, 100)]
    levels = ["rows to 1 % of the gain", "rows to where the paper's r = 1 ends"]
    titles = ["rows", "explained", "R / (k r)", *levels, *excess]
    return [
        CLAIM,
        *table([*titles, "masked, at the end", "full, at the end"], rows),
        "Bytes used until where r = 1 ends with the paper's schedule:",
        "",
        *table(["rows", DEFAULT, ALL, MASKS, FULL], sizes),
        "![Excess against rows](figures/reduction_claim.png)",
        "",
    ]


def _median_cost(curves: Sequence[Curve], level: float, what: str) -> float:
    return float(np.median([cost_of(curve, level, what) for curve in curves]))


def _at(curve: Curve, rows: float) -> float:
    """Return the objective after a number of rows."""
    return float(np.interp(rows, curve["rows"], curve["objective"]))


def _draw_claim(result: Mapping[str, Any], path: Path) -> None:
    with drawn(path, len(result), width=3.6, height=2.8) as axes:
        for axis, (name, found) in zip(axes, result.items(), strict=True):
            best = min(min(curve["objective"]) for curves in found["curves"].values() for curve in curves)
            for number, (method, curves) in enumerate(found["curves"].items()):
                x, quartiles = band(curves, "rows", best)
                plot(axis, number, x, quartiles[1], method, markersize=0)
            axis.set(xscale="log", yscale="log", xlabel="rows", ylabel="above the lowest, %")
            axis.set_title(name, fontsize=8)
        axes[0].legend(frameon=False, fontsize=7)
