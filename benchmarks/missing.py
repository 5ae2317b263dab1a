"""Bars of missing values and sparse input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy import sparse

from benchmarks.core import brain_like, start
from benchmarks.harness import Bar, Result, Skipped, best_times
from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall
from terafactor.data import ArraySource, SparseSource
from terafactor.datasets import make_planted, matched_correlation
from terafactor.problem import Problem
from terafactor.solver import SolverOptions, State, fit

ALPHA = 20.0
"""Strength of the lasso, as in the benchmarks of the core."""


def recovery(quick: bool) -> Iterator[Result]:
    """1: the planted problem with 30 % of the entries missing, two epochs, three seeds."""
    found = []
    for seed in range(3):
        X, atoms = make_planted(seed=seed)
        X[np.random.default_rng(seed).random(X.shape) < 0.3] = np.nan
        estimator = MaskedDictionaryLearning(
            20, alpha=1e-3, penalty="l2", constraint="l1", batch_size=50, n_epochs=2, missing="nan", random_state=seed
        )
        found.append(matched_correlation(estimator.fit(X).components_, atoms))
    details = {f"seed {seed}": value for seed, value in enumerate(found)}
    yield Bar("1 planted atoms recovered, 30 % missing", float(np.mean(found)), 0.95, False, "", details)


def learn(source: ArraySource | SparseSource, problem: Problem, init: np.ndarray, **options: object) -> State:
    choices = SolverOptions(n_components=len(init), batch_size=50, **options)
    return fit(source, problem, choices, State.start(init.copy(), problem))


def cost_of_missing(quick: bool) -> Iterator[Result]:
    """2: an epoch of 3 600 x 20 000, k = 40, lasso, with 1 % and 30 % missing, over the complete one; one thread."""
    X, _ = brain_like(20_000)
    problem = Problem(ALPHA, ElasticNet(1.0), NormBall("l2"))
    init = start(X, 40, problem.constraint)
    contestants = {"complete s": partial(learn, ArraySource(X), problem, init)}
    for share in (0.01, 0.3):
        holes = np.random.default_rng(0).random(X.shape, np.float32) < share
        source = ArraySource(np.where(holes, np.float32(np.nan), X), allow_nan=True)
        contestants[f"{share:.0%} missing s"] = partial(learn, source, problem, init, missing=True)
    times = best_times(contestants, repeats=2 if quick else 4)
    for share, bound in ((0.01, 1.5), (0.3, 12)):
        ratio = times[f"{share:.0%} missing s"] / times["complete s"]
        yield Bar(f"2 epoch with {share:.0%} missing over the complete one", ratio, bound, details=times)


MEMORY_PROBE = """
import numpy as np
from scipy import sparse
from terafactor import MaskedDictionaryLearning

X = sparse.random_array((50_000, 20_000), density=0.01, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
MaskedDictionaryLearning(40, alpha=1e-3, batch_size=50, n_epochs=0.05, random_state=0).fit(X)
with open("/proc/self/status") as lines:
    print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
"""


def sparse_input(quick: bool) -> Iterator[Result]:
    """3: compressed rows of 50 000 x 20 000 with 1 % stored, k = 40, b = 50, against the same as dense."""
    if not sys.platform.startswith("linux"):
        yield Skipped("3 memory", "read from /proc, which this system lacks")
        return
    n_rows = 5_000 if quick else 50_000
    matrix = sparse.random_array(
        (n_rows, 20_000), density=0.01, format="csr", dtype=np.float32, rng=np.random.default_rng(0)
    )
    problem = Problem(1e-3, ElasticNet(1.0), NormBall("l2"))
    dense = matrix.toarray()
    init = start(dense, 40, problem.constraint)
    epochs = (2_500 if quick else 10_000) / n_rows
    times = best_times(
        {
            "dense s": partial(learn, ArraySource(dense), problem, init, n_epochs=epochs),
            "sparse s": partial(learn, SparseSource(matrix), problem, init, n_epochs=epochs),
        },
        repeats=2 if quick else 4,
    )
    peak = subprocess.run([sys.executable, "-c", MEMORY_PROBE], check=True, capture_output=True, text=True).stdout
    details = times | {"speed-up over dense": times["dense s"] / times["sparse s"]}
    yield Bar("3 peak memory of a fit from compressed rows", int(peak) / 1e6, 1000, unit="MB", details=details)


BENCHMARKS = {"recovery": recovery, "cost": cost_of_missing, "sparse": sparse_input}
