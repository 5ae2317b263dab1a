"""The bars of the exact projection: a step costs the mask, whatever the number of features."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.core import learn, start
from benchmarks.harness import Bar, Result, best_times
from terafactor import ElasticNet, NormBall
from terafactor.data import ArraySource
from terafactor.problem import Problem

MASK = 5000
"""Features per step."""


def step_time(ball: NormBall, n_features: int, projection: str, repeats: int) -> float:
    """Return the mean time of a step in ms over two cycles of masks, k = 40, b = 40."""
    X = np.random.default_rng(0).standard_normal((120, n_features), np.float32)
    problem = Problem(1e-3, ElasticNet(0.0), ball)
    n_steps = 2 * n_features // MASK
    run = partial(
        learn,
        ArraySource(X),
        problem,
        start(X, 40, ball),
        batch_size=40,
        reduction=n_features // MASK,
        statistics="masked",
        projection=projection,
        n_epochs=n_steps / 3,
    )
    return 1e3 * best_times({"run": run}, repeats=repeats)["run"] / n_steps


def growth_with_features(quick: bool) -> Iterator[Result]:
    """Masks of 5 000 features, from p = 50 000 to 800 000, the first cycle, when most entries die, included."""
    for norm, bound in (("l2", 1.5), ("l1", 3.0), ("elastic-net", 3.0)):
        times = {
            f"{projection} p={n_features} ms": step_time(NormBall(norm), n_features, projection, 1 if quick else 3)
            for projection in ("exact", "masked")
            for n_features in (50_000, 800_000)
        }
        small, large, *_ = times.values()
        yield Bar(
            f"growth of the exact step from 50 000 to 800 000 features, {norm}", large / small, bound, details=times
        )


BENCHMARKS = {"growth": growth_with_features}
