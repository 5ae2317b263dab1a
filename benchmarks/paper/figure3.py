"""Figure 3: objective against epochs, for three reductions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.pages import drawn, plot, show, table
from benchmarks.paper.brain import ALPHAS, curve, studies, warm_up
from benchmarks.paper.sizes import BRAIN_FIELDS, Size

TITLE = "Figure 3: objective against epochs"
REDUCTIONS = (1, 4, 12)
FIELDS = BRAIN_FIELDS
PUBLISHED = (
    "The paper: for r up to 12, a larger reduction little reduces the speed of convergence per epoch (given as a "
    "curve, without numbers)."
)

CLAIM = (
    "[When progress per row does not fall with the reduction](reduction.md#progress-per-row-the-claim-of-the-paper) is "
    "the subject of a simulation, all of whose settings visit more rows per atom and reduction than here."
)


def measure(size: Size) -> list[dict[str, Any]]:
    """Return a curve per reduction and study."""
    found = []
    for study in studies(size):
        warm_up(study)
        curves = {str(reduction): curve(study, reduction, ALPHAS["low"]) for reduction in REDUCTIONS}
        found.append({"study": study.description, "curves": curves})
    return found


def draw(result: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel per study."""
    with drawn(path, len(result)) as axes:
        for axis, panel in zip(axes, result, strict=True):
            for number, (reduction, found) in enumerate(panel["curves"].items()):
                plot(axis, number, found["epochs"], found["objective"], f"r = {reduction}")
            axis.set(xscale="log", xlabel="epochs", ylabel="test objective")
            axis.set_title(panel["study"].split(",")[0], fontsize=9)
            axis.legend(frameon=False, fontsize=8)


def at_epochs(found: dict[str, list[float]], epochs: float) -> float:
    """Return the objective at the first evaluation after a number of epochs."""
    places = [place for place, passed in enumerate(found["epochs"]) if passed >= epochs - 1e-9]
    return found["objective"][places[0] if places else -1]


def describe(result: list[dict[str, Any]]) -> list[str]:
    """Return the excess over reduction 1 after the same number of epochs."""
    lines = []
    for panel in result:
        full = panel["curves"]["1"]
        end = full["epochs"][-1]
        marks = [share * end for share in (0.1, 0.25, 0.5, 1)]
        rows = []
        for reduction, found in panel["curves"].items():
            excess = [100 * (at_epochs(found, mark) / at_epochs(full, mark) - 1) for mark in marks]
            rows.append((f"r = {reduction}", *(f"{value:+.1f} %" for value in excess)))
        lines += [f"{panel['study']}: test objective above that of r = 1 after the same number of epochs.", ""]
        lines += table(["", *(f"{show(mark)} epochs" for mark in marks)], rows)
        end = f"- At the end r = {rows[-1][0][4:]} is {rows[-1][-1]} from r = 1 (paper: little difference). "
        lines += [
            f"{end}There, R / (k r), rows visited over atoms and reduction, is {show(_visits(panel['study']))}.",
            "",
        ]
    return [*lines, CLAIM, ""]


def _visits(description: str) -> float:
    """Return R / (k r) at the end of the largest reduction."""
    volumes, k, epochs = (
        re.search(pattern, description) for pattern in (r"([\d,]+) volumes", r"k = (\d+)", r"(\S+) ep")
    )
    n_rows, n_components, n_epochs = (float(found[1].replace(",", "")) for found in (volumes, k, epochs) if found)
    return n_rows * n_epochs / (n_components * REDUCTIONS[-1])
