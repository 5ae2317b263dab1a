"""Write docs/results/peers.md from the records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages import drawn, machines, origin, plot, show, table
from benchmarks.peers.contest import best, time_to
from benchmarks.results import load

INTRODUCTION = """# terafactor and other packages

Written by `make peers` from the records in `benchmarks/output/peers`; do not edit by hand. Every point is a fit from
scratch, timed and scored by the benchmark; imports, compilation and a first run are not timed. All use the same number
of threads; times with one thread are CPU seconds. The settings of peers are stated with each contest; few were tried,
and a search may improve them.
"""

MARGINS = (0.001, 0.01)
"""Targets, as distances from the best score of all contestants."""


def write_page(names: Iterable[str], folder: Path, page: Path, latest: str) -> None:
    """Write the page from the records in ``folder``; draw the ``latest`` contest, and those without a picture."""
    records = {name: record for name in names if (record := load(name, folder)) is not None}
    lines = [INTRODUCTION, "## Where we lose", ""]
    lost = [line for record in records.values() for line in losses(record["result"])]
    lines += [*(lost or ["Nowhere in these contests."]), ""]
    for name, record in records.items():
        result, picture = record["result"], page.parent / "figures" / f"peers_{name}.png"
        if name == latest or not picture.exists():
            draw(result, picture)
        lines += [
            f"## {result['title']}",
            "",
            result["explanation"],
            "",
            f"![{result['title']}](figures/{picture.name})",
            "",
        ]
        lines += [
            *scores(result),
            *[f"Not installed, left out: {', '.join(result['skipped'])}.", ""][: 2 * bool(result["skipped"])],
        ]
        lines += origin(record)
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def targets(result: dict[str, Any]) -> list[float]:
    """Return scores slightly worse than the best of all contestants."""
    lower = result["lower_is_better"]
    ends = [best(curve, lower) for curve in result["curves"].values()]
    top = min(ends) if lower else max(ends)
    return [top * (1 + margin if lower else 1 - margin) for margin in MARGINS]


def losses(result: dict[str, Any]) -> list[str]:
    """Return a line for each peer that ends better than terafactor or reaches a target sooner."""
    lower, curves = result["lower_is_better"], result["curves"]
    ours = {name: curve for name, curve in curves.items() if curve["ours"]}
    sign = 1 if lower else -1
    lines = []
    for name, curve in curves.items():
        if curve["ours"]:
            continue
        our_best = sign * min(sign * best(mine, lower) for mine in ours.values())
        behind = sign * (our_best / best(curve, lower) - 1)
        if behind > 1e-4:
            lines.append(
                f"- {result['title']}: ours ends {100 * behind:.2f} % worse than {name} ({result['measure']})."
            )
        for target, margin in zip(targets(result), MARGINS, strict=True):
            theirs = time_to(curve, target, lower)
            times = [seconds for mine in ours.values() if (seconds := time_to(mine, target, lower)) is not None]
            if theirs is not None and (not times or min(times) > theirs):
                when = f"ours takes {show(min(times))} s" if times else "ours does not reach it"
                lines.append(
                    f"- {result['title']}: {name} is within {100 * margin:g} % of the best in {show(theirs)} s, {when}."
                )
    return lines


def scores(result: dict[str, Any]) -> list[str]:
    """Return the table of best scores and times to targets, with speed-ups of the best of ours."""
    lower, rows = result["lower_is_better"], []
    reached = {name: [time_to(curve, t, lower) for t in targets(result)] for name, curve in result["curves"].items()}
    for name, curve in result["curves"].items():
        rows.append(
            (f"{name} ({curve['version']})", f"{best(curve, lower):.5g}", max(curve["seconds"]), *reached[name])
        )
    headings = [
        "contestant",
        f"best {result['measure']}",
        "longest fit, s",
        *(f"s to {100 * m:g} % of the best" for m in MARGINS),
    ]
    lines = table(headings, rows)
    ours = [name for name, curve in result["curves"].items() if curve["ours"]]
    for number, margin in enumerate(MARGINS):
        times = [reached[name][number] for name in ours if reached[name][number] is not None]
        for name, seconds in reached.items():
            if times and name not in ours and seconds[number] is not None:
                ratio = seconds[number] / min(times)
                lines.append(f"- To {100 * margin:g} % of the best, {name} takes {ratio:.1f} times as long as ours.")
    return [*lines, ""]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw score against time."""
    with drawn(path, 1, width=6.4, height=3.8) as (axis,):
        for number, (name, curve) in enumerate(result["curves"].items()):
            order = sorted(range(len(curve["seconds"])), key=lambda place: curve["amounts"][place])
            plot(axis, number, [curve["seconds"][i] for i in order], [curve["score"][i] for i in order], name,
                 linestyle="-" if curve["ours"] else "--")  # fmt: skip
        axis.set(xscale="log", xlabel=f"seconds, {result['n_threads']} thread(s)", ylabel=result["measure"])
        axis.legend(frameon=False, fontsize=8)
