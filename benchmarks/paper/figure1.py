"""Figure 1: test objective against time for several reductions, and final values relative to reduction 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import drawn, plot, show, table
from benchmarks.paper.brain import ALPHAS, curve, studies, time_to, warm_up
from benchmarks.paper.sizes import BRAIN_FIELDS, Size

TITLE = "Figure 1: acceleration by masks"
REDUCTIONS = (1, 4, 8, 12)
NEAR = 1.01
"""An objective is reached within one percent of the final one of reduction 1."""

FIELDS = BRAIN_FIELDS
PUBLISHED = (
    "The paper, on 2 TB of HCP images: at r = 12 convergence in 3 h and 10 h (high and low regularization) where "
    "r = 1 takes about 30 h and 100 h, that is 10 times faster; objective and l1/l2 comparable up to r = 8, l1/l2 5 % "
    "lower at r = 12 with high regularization."
)


def measure(size: Size) -> list[dict[str, Any]]:
    """Return the curves of every study at both strengths of the penalty."""
    found = []
    for study in studies(size):
        warm_up(study)
        for strength, alpha in ALPHAS.items():
            curves = {str(reduction): curve(study, reduction, alpha) for reduction in REDUCTIONS}
            found.append(
                {"study": study.description, "strength": strength, "alpha": alpha,
                 "steps_per_epoch": study.train.shape[0] / study.batch_size, "curves": curves}
            )  # fmt: skip
    return found


def summary(panel: dict[str, Any]) -> list[dict[str, Any]]:
    """Return final values and speed of each reduction, relative to reduction 1."""
    curves, full = panel["curves"], panel["curves"]["1"]
    target = NEAR * full["objective"][-1]
    base = time_to(full, target)
    lines = []
    for reduction, found in curves.items():
        reached = time_to(found, target)
        lines.append(
            {
                "reduction": int(reduction),
                "objective": found["objective"][-1] / full["objective"][-1],
                "sparsity": found["sparsity"][-1] / full["sparsity"][-1],
                "epoch": full["seconds"][-1] / found["seconds"][-1],
                "bytes": full["bytes"][-1] / found["bytes"][-1],
                "target": None if reached is None else base / reached,
                "own": base / (time_to(found, NEAR * found["objective"][-1]) or float("inf")),
            }
        )
    return lines


def draw(result: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves of each panel, and all final values."""
    with drawn(path, len(result) + 2, width=3.8) as axes:
        for axis, panel in zip(axes, result, strict=False):
            for number, (reduction, found) in enumerate(panel["curves"].items()):
                plot(axis, number, found["seconds"], found["objective"], f"r = {reduction}")
            axis.set(xscale="log", xlabel="seconds of CPU", ylabel="test objective")
            axis.set_title(f"{panel['study'].split(',')[0]}, {panel['strength']} regularization", fontsize=9)
            axis.legend(frameon=False, fontsize=8)
        for axis, what, label in zip(axes[-2:], ("objective", "sparsity"), ("test objective", "l1/l2"), strict=True):
            for number, panel in enumerate(result):
                lines = summary(panel)
                name = f"{panel['study'].split(',')[0]}, {panel['strength']}"
                plot(axis, number, [line["reduction"] for line in lines], [line[what] for line in lines], name)
            axis.axhline(1, color="black", linewidth=0.8)
            axis.set(xticks=REDUCTIONS, xlabel="reduction r", ylabel=f"{label}, relative to r = 1")
            axis.legend(frameon=False, fontsize=7)


HEADINGS = (
    "r", "objective / r=1", "l1/l2 / r=1", "faster per epoch", "fewer bytes", "sooner at 1 % from the end of r=1",
    "sooner at 1 % from its own end",
)  # fmt: skip


def describe(result: list[dict[str, Any]]) -> list[str]:
    """Return the tables of the section and the comparison with the paper."""
    lines = []
    for panel in result:
        lines += [f"{panel['study']}; {panel['strength']} regularization, alpha = {panel['alpha']:g}:", ""]
        lines += table(HEADINGS, [list(line.values()) for line in summary(panel)])
    return [*lines, *(_sentence(panel) for panel in result), ""]


def _sentence(panel: dict[str, Any]) -> str:
    last = summary(panel)[-1]
    where = f"{panel['study'].split(',')[0]}, {panel['strength']} regularization"
    reached = "is not reached" if last["target"] is None else f"is reached {show(last['target'])} times as fast"
    full = panel["curves"]["1"]
    epochs = dict(zip(full["seconds"], full["epochs"], strict=True))[time_to(full, NEAR * full["objective"][-1])]
    steps = epochs * panel["steps_per_epoch"]
    return (
        f"- {where}: at r = {last['reduction']} an epoch is {show(last['epoch'])} times faster; the level 1 % above "
        f"the end of r = 1 {reached}, and the level 1 % above its own end {show(last['own'])} times as fast "
        f"(paper: 10); the objective ends {100 * (last['objective'] - 1):+.1f} % and l1/l2 "
        f"{100 * (last['sparsity'] - 1):+.1f} % from those of r = 1 (paper: comparable, and down to -5 %). "
        f"r = 1 is there after {show(round(steps))} steps, in which r = {last['reduction']} uses each feature "
        f"{show(steps / last['reduction'])} times."
    )
