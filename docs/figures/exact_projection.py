"""Draw docs/figures/exact_projection.png: what a sweep does to the surrogate under masked and exact projection.

Run as ``python docs/figures/exact_projection.py``; it takes some seconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from terafactor.data import ArraySource, BatchStream
from terafactor.data.masks import Masks
from terafactor.datasets import make_brain_like
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, State, objective
from terafactor.solver.backends import make_backend
from terafactor.solver.learners import choose_learner
from terafactor.solver.step import surrogate

REDUCTION, N_STEPS, N_COMPONENTS = 12, 360, 10
BLUE, ORANGE = "#0072B2", "#D55E00"  # of the palette of Okabe and Ito
STYLES = {"masked": (BLUE, "-"), "exact": (ORANGE, "--")}


def learn(X: np.ndarray, held_out: np.ndarray, problem: Problem, projection: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative change of the surrogate made by each sweep, and the objective on held-out rows."""
    options = SolverOptions(
        N_COMPONENTS, batch_size=20, reduction=REDUCTION, statistics="full", projection=projection, reseed_after=10**9
    )
    masks = Masks(X.shape[1], REDUCTION, options.seed)
    stream = BatchStream(ArraySource(X), options.batch_size, masks, options.seed, whole_rows=True)
    state = State.start(problem.constraint.fill(X[:N_COMPONENTS]), problem)
    changes, objectives = [], []
    with make_backend() as backend:
        learner = choose_learner(stream.source, problem, options, state, backend)
        for batch in stream.batches(0, N_STEPS):
            before = state.dictionary.copy()
            learner.advance(state, batch)
            old = surrogate(replace(state, dictionary=before), problem, backend)  # with the statistics of the sweep
            changes.append((surrogate(state, problem, backend) - old) / abs(old))
            objectives.append(objective(ArraySource(held_out), state.dictionary, problem))
    return np.array(changes), np.array(objectives)


def draw(results: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Return the figure: one column per ball, changes above, objectives below."""
    figure = Figure(figsize=(9, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(results), sharex=True, squeeze=False)
    steps = np.arange(1, N_STEPS + 1)
    for column, (ball, by_projection) in enumerate(results.items()):
        above, below = axes[:, column]
        for projection, (changes, objectives) in by_projection.items():
            shade, line = STYLES[projection]
            rises = int((changes > 1e-9).sum())
            above.plot(
                steps, changes, ".", ms=4, color=shade, alpha=0.7,
                label=f"{projection}: rises in {rises} of {len(changes)} sweeps",
            )  # fmt: skip
            below.plot(steps, objectives, line, color=shade, lw=1.6, label=projection)
        above.axhline(0, color="0.3", lw=0.8)
        above.set_yscale("symlog", linthresh=1e-5)
        above.set_yticks([-1, -1e-2, -1e-4, 0, 1e-4, 1e-2])
        above.set_title(f"{ball} ball", fontsize=11, pad=38)
        above.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1, fontsize=9, frameon=False, markerscale=2)
        below.legend(loc="upper right", fontsize=9, frameon=False)
        below.set_xlabel("step")
        for axis in (above, below):
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("relative change of the surrogate\nin one sweep (below 0: descent)")
    axes[1, 0].set_ylabel("objective on held-out rows")
    figure.suptitle(f"Masked and exact projection, reduction = {REDUCTION}", fontsize=12)
    return figure


def main() -> None:
    """Compute and save."""
    X, _ = make_brain_like(2000, 2000)
    X, held_out = X[:1800], X[1800:]
    problems = {
        "l2": Problem(2.0, ElasticNet(1.0), NormBall("l2")),
        "l1": Problem(1e-2, ElasticNet(0.0), NormBall("l1")),
    }
    results = {
        ball: {projection: learn(X, held_out, problem, projection) for projection in STYLES}
        for ball, problem in problems.items()
    }
    draw(results).savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
