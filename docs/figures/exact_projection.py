"""Draw the change of the surrogate in each sweep, for masked and exact projections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from terafactor._threads import Executor
from terafactor.data import ArraySource, BatchStream
from terafactor.data.masks import Masks
from terafactor.datasets import make_planted
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, SurrogateState, step

COLOURS = {"masked": "#0072b2", "exact": "#d55e00"}


def changes(projection: str, n_steps: int = 300, reduction: int = 12) -> np.ndarray:
    """Return the relative change of the surrogate in each sweep: after it, over before it, statistics the same."""
    X, _ = make_planted(1500, 2400, 10)
    problem = Problem(1e-3, ElasticNet(0.0), NormBall("l1"))
    options = SolverOptions(12, batch_size=20, reduction=reduction, statistics="masked", projection=projection)
    stream = BatchStream(ArraySource(X), 20, Masks(X.shape[1], reduction, 0), 0, whole_rows=False)
    state = SurrogateState.start(problem.constraint.fill(X[:12]), problem, masked=True)
    found = []
    with Executor() as executor:
        for number in range(n_steps):
            before = current(state, executor)
            step(state, stream.batch(number), problem, options, executor)
            values = [
                problem.surrogate_value(atoms, state.code_gram, state.data_code, 0.0, executor)
                for atoms in (before, current(state, executor))
            ]
            found.append((values[1] - values[0]) / abs(values[0]))
    return np.array(found)


def current(state: SurrogateState, executor: Executor) -> np.ndarray:
    """Return a copy of the dictionary as it is now."""
    atoms = state.dictionary if state.lazy is None else state.lazy.current(state.dictionary, executor)
    return atoms.copy()


def main() -> None:
    """Write the figure beside this file."""
    figure = Figure(figsize=(8, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (projection, colour) in zip(figure.subplots(1, 2, sharey=True), COLOURS.items(), strict=True):
        values = changes(projection)[24:]
        axes.axhline(0, color="0.4", linewidth=0.8)
        axes.plot(np.arange(25, 25 + len(values)), 100 * values, ".", markersize=3, color=colour)
        axes.set_title(f"{projection} projection: rose in {np.sum(values > 1e-7)} of {len(values)} sweeps", fontsize=10)
        axes.set_xlabel("step")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("change of the surrogate (%)")
    figure.savefig(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
