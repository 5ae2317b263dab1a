"""Figure 5: exponents of the learning weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import drawn, plot, table
from benchmarks.paper import completion
from benchmarks.paper.completion import converged, with_paper_method
from benchmarks.paper.sizes import RATING_FIELDS, Size

TITLE = "Figure 5: learning weights"
EXPONENTS = (0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
ALPHA = 1.0
FIELDS = RATING_FIELDS
PUBLISHED = "The paper: convergence is fastest for exponents between 0.85 and 0.95; theory covers 0.75 to 1."


def measure(size: Size) -> list[dict[str, Any]]:
    """Return a curve per exponent, on the smallest synthetic table and on the real one where there is one."""
    completion.warm_up(size)
    tables = completion.tables(size)
    real = [ratings for ratings in tables if not ratings.name.startswith("synthetic")]
    found = []
    for ratings in [tables[0], *(real[:1] or tables[1:2])]:
        train, test = next(ratings.splits())
        curves = {str(beta): with_paper_method(train, test, ALPHA, size, forgetting=beta) for beta in EXPONENTS}
        found.append({"name": ratings.name, "curves": curves})
    return found


def draw(result: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel per set."""
    with drawn(path, len(result)) as axes:
        for axis, found in zip(axes, result, strict=True):
            for number, (beta, curve) in enumerate(found["curves"].items()):
                plot(axis, number, curve["epochs"], curve["rmse"], beta)
            best = min(curve["rmse"][-1] for curve in found["curves"].values())
            axis.set(xscale="log", xlabel="epochs", ylabel="test RMSE", ylim=(0.998 * best, 1.06 * best))
            axis.set_title(found["name"], fontsize=9)
            axis.legend(frameon=False, fontsize=7, title="exponent", title_fontsize=8)


def describe(result: list[dict[str, Any]]) -> list[str]:
    """Return errors after one pass and at the end, and the best exponents."""
    lines = []
    for found in result:
        rows = [(beta, *(f"{value:.4f}" for value in (at_one(curve), curve["rmse"][-1])), converged(curve))
                for beta, curve in found["curves"].items()]  # fmt: skip
        lines += [f"{found['name']}:", ""]
        lines += table(("exponent", "RMSE after one pass", "at the end", "s to 0.1 % of its end"), rows)
        best = min(found["curves"], key=lambda beta: found["curves"][beta]["rmse"][-1])
        inside = "within" if 0.85 <= float(best) <= 0.95 else "outside"
        lines += [f"- {found['name']}: the lowest error at the end is that of {best}, {inside} the paper's range.", ""]
    return lines


def at_one(curve: completion.Curve) -> float:
    """Return the error after the first pass."""
    return next(error for epochs, error in zip(curve["epochs"], curve["rmse"], strict=True) if epochs > 0.99)
