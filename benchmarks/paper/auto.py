"""``reduction="auto"``, which follows the paper's advice on r."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.pages import drawn, plot, show, table
from benchmarks.paper.brain import ALPHAS, Study, setting, studies, warm_up
from benchmarks.paper.sizes import BRAIN_FIELDS, Size
from terafactor import MaskedDictionaryLearning

TITLE = "The reduction chosen automatically"
LONGER = 2
"""Factor on the passes of the other figures: trials pay off in long fits."""

FIELDS = BRAIN_FIELDS
PUBLISHED = (
    "The paper advises to start with an unreasonably high r and to lower it geometrically until the score ceases to "
    "improve (no numbers)."
)


def measure(size: Size) -> list[dict[str, Any]]:
    """Return the trials of every study, the fit that follows them, and one without masks."""
    found = []
    for study in studies(size):
        warm_up(study)
        n_epochs = LONGER * study.n_epochs
        parameters = setting(study, ALPHAS["low"]) | {"n_epochs": n_epochs, "reduction": "auto"}
        full, _ = _fit(study, parameters | {"reduction": 1})
        chosen, estimator = _fit(study, parameters)
        path = [{"reduction": t.reduction, "objective": t.objective} for t in estimator.reduction_path_]
        found.append(
            {"study": study.description, "n_epochs": n_epochs, "chosen": estimator.reduction_, "path": path,
             "full": full, **chosen}
        )  # fmt: skip
    return found


def _fit(study: Study, parameters: dict[str, Any]) -> tuple[dict[str, float], MaskedDictionaryLearning]:
    started = time.process_time()
    estimator = MaskedDictionaryLearning(**parameters).fit(study.train)
    seconds, last = time.process_time() - started, estimator.history_[-1]
    return {"seconds": seconds, "bytes": last.bytes_read, "objective": estimator.objective(study.test)}, estimator


def draw(result: list[dict[str, Any]], path: Path) -> None:
    """Draw the objective of the trials against the reduction."""
    with drawn(path, len(result)) as axes:
        for axis, found in zip(axes, result, strict=True):
            tried = found["path"]
            plot(axis, 0, [t["reduction"] for t in tried], [t["objective"] for t in tried], "trials")
            axis.axvline(found["chosen"], color="black", linestyle="--", linewidth=1, label="chosen")
            axis.set_xscale("log", base=2)
            axis.set(xlabel="reduction r", ylabel="objective on held-out rows")
            axis.set_title(found["study"].split(",")[0], fontsize=9)
            axis.legend(frameon=False, fontsize=8)


def describe(result: list[dict[str, Any]]) -> list[str]:
    """Return the chosen reductions and the cost of their fits, trials included."""
    rows = [
        (found["study"].split(",")[0], found["n_epochs"], found["chosen"], found["full"]["seconds"] / found["seconds"],
         found["full"]["bytes"] / found["bytes"],
         f"{100 * (found['objective'] / found['full']['objective'] - 1):+.1f} %")
        for found in result
    ]  # fmt: skip
    headings = ("study", "epochs", "r chosen", "faster than r = 1, trials included", "fewer bytes", "test objective")
    tried = [f"- {found['study'].split(',')[0]}: tried " + ", ".join(
        f"r = {show(trial['reduction'])} ({show(trial['objective'])})" for trial in found["path"]) + "."
        for found in result]  # fmt: skip
    return [*table(headings, rows), *tried, ""]
