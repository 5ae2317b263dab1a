"""Predict ratings and plot the test error per pass: the default, a fixed ridge, and the algorithm of the paper.

python examples/predict_ratings.py --ratings ratings.csv --out plot.png   # your ratings, or those of MovieLens
python examples/predict_ratings.py --fast                                 # synthetic ratings, a few seconds

A quarter of the ratings is held out for testing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from terafactor import MatrixCompletion, RatingTable
from terafactor.datasets import make_ratings
from terafactor.ratings import read_ratings, split_randomly
from terafactor.ratings.evaluation.metrics import rmse

COLORS = ("#0072B2", "#D55E00", "#009E73")
METHODS: dict[str, dict[str, Any]] = {
    "terafactor": {},
    "terafactor, alpha=0.065": {"alpha": 0.065},
    "algorithm of the paper": {"statistics": "masked"},
}


@dataclass(frozen=True)
class Curve:
    """Test error of one method after each pass."""

    name: str
    passes: list[float]
    errors: list[float]


def learn(name: str, train: RatingTable, test: RatingTable, n_components: int) -> Curve:
    """Fit one method; return its test error after each pass."""
    model = MatrixCompletion(n_components, random_state=0, **METHODS[name])
    model.fit(train, validation=test)
    n_users = len(np.unique(train.users))
    ends = [line for line in model.history_ if line.n_samples % n_users == 0]
    return Curve(name, [line.n_samples / n_users for line in ends], [float(line.objective or 0) for line in ends])


def error_of_means(train: RatingTable, test: RatingTable) -> float:
    """Return the test error of predicting the mean rating of each item."""
    overall = float(train.values.mean())
    counts = np.bincount(train.items, minlength=train.shape[1])
    totals = np.bincount(train.items, train.values, train.shape[1])
    means = np.where(counts > 0, totals / np.maximum(counts, 1), overall)
    return rmse(means[test.items], test.values)


def draw(curves: Sequence[Curve], baseline: float, path: Path) -> None:
    """Plot the errors against the passes over the ratings."""
    figure = Figure(figsize=(7.2, 4.4), dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(baseline, color="#555555", linestyle=":", label=f"mean of each item: {baseline:.3f}")
    for curve, color in zip(curves, COLORS, strict=True):
        label = f"{curve.name}: {curve.errors[-1]:.3f}"
        axes.plot(curve.passes, curve.errors, color=color, marker="o", markersize=4, label=label)
    axes.set_xlabel("passes over the ratings")
    axes.set_ylabel("RMSE on test ratings")
    axes.set_title("Test error; lower is better", loc="left", size=12, weight="bold")
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Run the comparison; return the final test error of each method and of the item means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratings", type=Path, help="file or folder of ratings (default: synthetic)")
    parser.add_argument("--fast", action="store_true", help="use few ratings")
    parser.add_argument("--out", type=Path, default=Path("ratings.png"), help="output image")
    options = parser.parse_args(arguments)
    size = (400, 100, 12_000) if options.fast else (6_000, 3_700, 1_000_000)
    table = (
        RatingTable.of(*make_ratings(*size, noise=0.8)) if options.ratings is None else read_ratings(options.ratings)
    )
    train, test = split_randomly(table, 0.25)
    curves = [learn(name, train, test, n_components=5 if options.fast else 30) for name in METHODS]
    errors = {"mean": error_of_means(train, test)} | {curve.name: curve.errors[-1] for curve in curves}
    report = Table("method", "RMSE on test ratings")
    for name, error in errors.items():
        report.add_row(name, f"{error:.4f}")
    Console().print(report)
    draw(curves, errors["mean"], options.out)
    return errors


if __name__ == "__main__":
    main()
