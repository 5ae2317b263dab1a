"""Bars of the core: speed relative to peers and to bare matrix products, scaling, memory."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import Bar, Result, Skipped, best_times
from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall, RandomMasks
from terafactor.data import ArraySource, MatrixSource
from terafactor.datasets import make_brain_like, make_planted, matched_correlation
from terafactor.problem import Problem
from terafactor.solver import SolverOptions, State, fit, objective

ALPHA = 20.0
"""Strength of the lasso: above the smooth noise of the data; one code in six is nonzero."""


@cache
def brain_like(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 3 600 training rows and 400 held-out ones."""
    X, _ = make_brain_like(4000, n_features)
    return X[:3600], X[3600:]


def learn(source: MatrixSource, problem: Problem, init: np.ndarray, **options: object) -> State:
    """Fit from given atoms with the solver alone, on data already checked, for comparison with bare products."""
    choices = SolverOptions(n_components=len(init), **options)
    state = State.start(init.copy(), problem)
    return fit(source, problem, choices, state)


def start(X: np.ndarray, n_components: int, ball: NormBall) -> np.ndarray:
    """Return rows of X as atoms, the same for every contestant."""
    return ball.fill(X[np.random.default_rng(0).permutation(len(X))[:n_components]])


def learn_scikit_learn(X: np.ndarray, init: np.ndarray, batch_size: int) -> np.ndarray:
    from sklearn.decomposition import MiniBatchDictionaryLearning

    estimator = MiniBatchDictionaryLearning(
        len(init), alpha=ALPHA, batch_size=batch_size, max_iter=1, fit_algorithm="cd", dict_init=init,
        random_state=0, tol=0, max_no_improvement=None,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # thousands of warnings that a lasso stopped early
        return estimator.fit(X).components_


def learn_spams(X_by_column: np.ndarray, init_by_column: np.ndarray, batch_size: int) -> np.ndarray:
    import spams

    return spams.trainDL(
        X_by_column, D=init_by_column, lambda1=ALPHA, mode=2, modeParam=0, batchsize=batch_size,
        iter=X_by_column.shape[1] // batch_size, numThreads=1, verbose=False,
    )  # fmt: skip


def against_peers(quick: bool) -> Iterator[Result]:
    """1 and 2: one epoch of lasso codes and the l2 ball, 3 600 x 20 000, k = 40, b = 50, one thread, same start."""
    X, held_out = brain_like(20_000)
    problem = Problem(ALPHA, ElasticNet(1.0), NormBall("l2"))
    init = start(X, 40, problem.constraint)
    learned: dict[str, np.ndarray] = {}

    def ours(name: str, **options: object) -> None:
        estimator = MaskedDictionaryLearning(
            40, alpha=ALPHA, batch_size=50, n_epochs=1, init=init, n_threads=1, random_state=0, **options
        )
        learned[name] = estimator.fit(X).components_

    def scikit_learn() -> None:
        learned["scikit-learn"] = learn_scikit_learn(X, init, 50)

    contestants = {
        "terafactor": lambda: ours("terafactor"),
        "terafactor r=10": lambda: ours("terafactor r=10", reduction=10),
        "scikit-learn": scikit_learn,
    }
    try:
        import spams  # noqa: F401
    except ImportError:
        yield Skipped("1 SPAMS", "spams-bin is not installed")
    else:
        by_column = {dtype: (np.asfortranarray(X.T, dtype), np.asfortranarray(init.T, dtype)) for dtype in "fd"}

        def spams_in(dtype: str, name: str) -> None:
            learned[name] = learn_spams(*by_column[dtype], 50).T

        contestants["SPAMS"] = lambda: spams_in("f", "SPAMS")
        contestants["SPAMS float64"] = lambda: spams_in("d", "SPAMS float64")
    with threadpool_limits(1):
        times = best_times(contestants, repeats=2 if quick else 5)
        objectives = {
            name: objective(ArraySource(held_out), np.ascontiguousarray(atoms, np.float32), problem)
            for name, atoms in learned.items()
        }
    details = {f"{name} s": time for name, time in times.items()}
    details |= {f"{name} objective": value for name, value in objectives.items()}
    if "SPAMS" in times:
        details["speed-up over SPAMS"] = times["SPAMS"] / times["terafactor"]
    yield Bar("1 speed-up over scikit-learn", times["scikit-learn"] / times["terafactor"], 5, False, details=details)
    best = min(value for name, value in objectives.items() if not name.startswith("terafactor"))
    excess = 100 * (objectives["terafactor"] / best - 1)
    yield Bar("1 held-out objective above the better peer", excess, 0.1, unit="%")
    yield Bar("2 speed-up of r=10 over scikit-learn", times["scikit-learn"] / times["terafactor r=10"], 10, False)
    apart = 100 * (objectives["terafactor r=10"] / objectives["scikit-learn"] - 1)
    yield Bar("2 held-out objective of r=10 above scikit-learn's", apart, 1, unit="%")


def products(n_rows: int, n_observed: int, n_components: int, n_threads: int, steps: int) -> object:
    """Return a function that runs the four matrix products of a step, ``steps`` times."""
    random = np.random.default_rng(0)
    X, D = (random.standard_normal((n, n_observed), np.float32) for n in (n_rows, n_components))
    by_feature = np.ascontiguousarray(D.T)
    codes = random.standard_normal((n_components, n_rows), np.float32)
    gram = random.standard_normal((n_components, n_components), np.float32)
    outs = [
        np.empty(shape, np.float32)
        for shape in ((n_rows, n_components), gram.shape, (n_components, n_observed), (n_components, n_observed))
    ]

    def run() -> None:
        with threadpool_limits(n_threads):
            for _ in range(steps):
                np.matmul(X, by_feature, out=outs[0])
                np.matmul(D, by_feature, out=outs[1])
                np.matmul(codes, X, out=outs[2])
                np.matmul(gram, D, out=outs[3])

    return run


def against_floor(quick: bool) -> Iterator[Result]:
    """3: one epoch of ridge codes and the l1 ball, 3 600 x 44 664, k = 60, b = 40, over the bare products."""
    X, _ = brain_like(44_664)
    problem = Problem(1e-3, ElasticNet(0.0), NormBall("l1"))
    init, source = start(X, 60, problem.constraint), ArraySource(X)
    for reduction, bound in ((1, 2), (12, 3)):
        times = best_times(
            {
                "floor s": products(40, 44_664 // reduction, 60, 1, 90),
                "terafactor s": lambda r=reduction: learn(
                    source, problem, init, batch_size=40, reduction=r, statistics="masked"
                ),
            },
            repeats=2 if quick else 5,
        )
        yield Bar(
            f"3 time over the floor, r={reduction}", times["terafactor s"] / times["floor s"], bound, details=times
        )


def growth_with_features(quick: bool) -> Iterator[Result]:
    """4: masks of 5 000 features, k = 40, b = 40, from p = 50 000 to 800 000, mean step over two cycles."""
    random = np.random.default_rng(0)
    n_features = (50_000, 800_000)
    rows = [random.standard_normal((120, p), np.float32) for p in n_features]
    for norm in ("l2", "l1"):
        problem, runs = Problem(1e-3, ElasticNet(0.0), NormBall(norm)), {}
        for X, p in zip(rows, n_features, strict=True):
            runs[f"p={p} ms"] = partial(
                learn, ArraySource(X), problem, start(X, 40, problem.constraint), batch_size=40, reduction=p // 5000,
                statistics="masked", n_epochs=2 * (p // 5000) / 3,
            )  # fmt: skip
        times = best_times(runs, repeats=1 if quick else 5)
        step_times = {name: 1e3 * times[name] / (2 * (p // 5000)) for name, p in zip(runs, n_features, strict=True)}
        small, large = step_times.values()
        yield Bar(
            f"4 growth of the step from 50 000 to 800 000 features, {norm}", large / small, 1.5, details=step_times
        )


def two_threads(quick: bool) -> Iterator[Result]:
    """5: benchmark 1 on two threads against one: the same bits, and the scaling of the bare products."""
    X, _ = brain_like(20_000)
    problem = Problem(ALPHA, ElasticNet(1.0), NormBall("l2"))
    init, source = start(X, 40, problem.constraint), ArraySource(X)
    learned = {}

    def run(n_threads: int) -> None:
        learned[n_threads] = learn(source, problem, init, batch_size=50, n_threads=n_threads).dictionary

    contestants = {f"terafactor {n} s": (lambda n=n: run(n)) for n in (1, 2)}
    contestants |= {f"products {n} s": products(50, 20_000, 40, n, 72) for n in (1, 2)}
    times = best_times(contestants, repeats=3 if quick else 7)
    same = float(np.array_equal(learned[1], learned[2]))
    yield Bar("5 same bits on two threads", same, 1, False, unit="")
    ours, bare = (times[f"{name} 1 s"] / times[f"{name} 2 s"] for name in ("terafactor", "products"))
    yield Bar("5 scaling on two threads over that of the products", 100 * ours / bare, 80, False, "%", times)


MEMORY_PROBE = """
import sys, numpy as np
from terafactor import MaskedDictionaryLearning, RandomMasks

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

n_rows, n_features, n_components, reduction = map(int, sys.argv[1:5])
setting = dict(reduction=RandomMasks(reduction, sys.argv[5]), random_state=0, penalty="l2", constraint="l1", alpha=1e-3,
               batch_size=40, n_epochs=1)
few = np.random.default_rng(0).standard_normal((200, 2000), np.float32)
MaskedDictionaryLearning(n_components, **setting).fit(few)
X = np.random.default_rng(0).standard_normal((n_rows, n_features), np.float32)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
MaskedDictionaryLearning(n_components, **setting).fit(X)
print(status("VmHWM") - before)
"""


def memory_growth(
    n_rows: int, n_features: int, n_components: int, reduction: int, statistics: str = "auto"
) -> int | None:
    """Return the bytes that a fit allocates at its peak, in a separate process; None where /proc is missing."""
    if not sys.platform.startswith("linux"):
        return None
    arguments = map(str, (n_rows, n_features, n_components, reduction, statistics))
    command = [sys.executable, "-c", MEMORY_PROBE, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory(quick: bool) -> Iterator[Result]:
    """6: peak memory of a fit at p = 500 000, k = 70, float32, over that just before it."""
    for reduction in (1, 10):
        growth = memory_growth(400, 500_000, 70, reduction)
        if growth is None:
            yield Skipped("6 memory", "read from /proc, which this system lacks")
            return
        allowed = 3 * 500_000 * 70 * 4 + 200e6
        yield Bar(f"6 memory of a fit, r={reduction}", growth / 1e6, allowed / 1e6, unit="MB")


def recovery(quick: bool) -> Iterator[Result]:
    """The planted dictionary: 3 000 x 6 000, 15 atoms, noise 0.3; ridge codes, l1 ball, k = 20, b = 50, three seeds."""
    for reduction, n_epochs, bound in ((1, 3, 0.95), (4, 6, 0.95), (12, 6, 0.93)):
        for statistics in ("full", "masked"):
            found = []
            for seed in range(3):
                X, atoms = make_planted(seed=seed)
                estimator = MaskedDictionaryLearning(
                    20, alpha=1e-3, penalty="l2", constraint="l1", batch_size=50, n_epochs=n_epochs,
                    reduction=RandomMasks(reduction, statistics), random_state=seed,
                )  # fmt: skip
                found.append(matched_correlation(estimator.fit(X).components_, atoms))
            details = {f"seed {seed}": value for seed, value in enumerate(found)}
            name = f"planted atoms recovered, r={reduction}, {statistics} statistics"
            yield Bar(name, float(np.mean(found)), bound, False, "", details)


BENCHMARKS = {
    "recovery": recovery,
    "peers": against_peers,
    "floor": against_floor,
    "growth": growth_with_features,
    "threads": two_threads,
    "memory": memory,
}
