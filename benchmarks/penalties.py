"""Bars of the structured penalties: codes and their cost against SPAMS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from benchmarks.harness import Bar, Result, Skipped, best_times
from terafactor.problem import OMP, GroupLasso, Penalty, Simplex

K, N_ROWS, GROUP = 100, 1000, 5
CODE_TOLERANCE = 1e-4
"""Tolerance of codes in a fit."""

ENOUGH = 1e-5
"""Excess of the objective, relative, that SPAMS has to reach: less accurate than our codes."""


def planted(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return nearly orthogonal atoms (k, 144), and rows (n, 144) that use 15 % of the groups."""
    random = np.random.default_rng(seed)
    atoms = random.standard_normal((K, 144)) + 0.3 * random.standard_normal(144)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    used = np.repeat(random.random((N_ROWS, K // GROUP)) < 0.15, GROUP, axis=1)
    codes = random.standard_normal((N_ROWS, K)) * used
    return atoms, codes @ atoms + 0.1 * random.standard_normal((N_ROWS, 144))


def patches(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return smooth patches of 12 x 12 as atoms (k, 144) and rows (n, 144): the atoms are strongly correlated."""
    noise = np.random.default_rng(seed).standard_normal((K + N_ROWS, 12, 12))
    images = gaussian_filter(noise, (0, 1, 1)).reshape(len(noise), -1)
    images -= images.mean(axis=1, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    return images[:K], images[K:]


def our_codes(penalty: Penalty, atoms: np.ndarray, rows: np.ndarray, alpha: float, tolerance: float) -> np.ndarray:
    return penalty.codes(atoms @ atoms.T, rows @ atoms.T, alpha, tolerance)


def spams_group_codes(
    penalty: Any, atoms: np.ndarray, rows: np.ndarray, alpha: float, tolerance: float
) -> Callable[[], np.ndarray]:
    """Return a function that codes rows by ``fistaFlat``; its groups have no weights, ours the root of their size."""
    import spams

    X, D, start = np.asfortranarray(rows.T), np.asfortranarray(atoms.T), np.zeros((K, len(rows)), order="F")
    kind = "sparse-group-lasso-l2" if penalty.l1_ratio else "group-lasso-l2"
    group, l1 = alpha * (1 - penalty.l1_ratio) * np.sqrt(penalty.groups), alpha * penalty.l1_ratio
    return lambda: spams.fistaFlat(
        X, D, start, loss="square", regul=kind, size_group=penalty.groups, lambda1=group, lambda2=l1, tol=tolerance,
        max_it=20_000, it0=10, compute_gram=True, numThreads=1,
    ).T  # fmt: skip


def alpha_of(penalty: GroupLasso, atoms: np.ndarray, rows: np.ndarray) -> float:
    """Return a fifth of the strength for which the median row has a zero code; ``alpha="auto"`` is twice that."""
    return 0.2 * float(np.median(penalty.zero_strength(rows @ atoms.T)))


def codes(quick: bool) -> Iterator[Result]:
    """1: the largest difference between our codes and those of SPAMS, both computed to high accuracy, in float64."""
    try:
        import spams
    except ImportError:
        yield Skipped("1 codes of SPAMS", "spams-bin is not installed")
        return
    atoms, rows = planted()
    for name, penalty in (("group lasso", GroupLasso(GROUP)), ("sparse group lasso", GroupLasso(GROUP, l1_ratio=0.5))):
        alpha = alpha_of(penalty, atoms, rows)
        theirs = spams_group_codes(penalty, atoms, rows, alpha, 1e-14)()
        difference = np.abs(our_codes(penalty, atoms, rows, alpha, 1e-10) - theirs).max()
        yield Bar(f"1 codes, {name}: difference from fistaFlat", float(difference), 1e-6, unit="")
    X, D = np.asfortranarray(rows.T), np.asfortranarray(atoms.T)
    theirs = spams.decompSimplex(X, D, numThreads=1).toarray().T
    difference = np.abs(our_codes(Simplex(), atoms, rows, 0.0, 1e-10) - theirs).max()
    yield Bar("1 codes, simplex: difference from decompSimplex", float(difference), 1e-6, unit="")


def speed(quick: bool) -> Iterator[Result]:
    """2: processor time per row, k = 100, one thread, from rows and atoms, against fistaFlat and omp of SPAMS."""
    try:
        import spams
    except ImportError:
        yield Skipped("2 speed of SPAMS", "spams-bin is not installed")
        return
    repeats = 3 if quick else 9
    for data in (planted, patches):
        atoms, rows = data()
        for penalty in (GroupLasso(GROUP), GroupLasso(2 * GROUP), GroupLasso(GROUP, l1_ratio=0.5)):
            name = f"2 {penalty.groups} atoms per group, l1_ratio {penalty.l1_ratio}, {data.__name__}"
            yield group_speed(name, penalty, atoms, rows, repeats)
        X, D = np.asfortranarray(rows.T), np.asfortranarray(atoms.T)
        for n_nonzero in (5, 10, 20):
            contestants = {
                "terafactor us": lambda n=n_nonzero, a=atoms, r=rows: our_codes(OMP(n), a, r, 0.0, CODE_TOLERANCE),
                "SPAMS us": lambda n=n_nonzero, X=X, D=D: spams.omp(X, D, L=n, numThreads=1),
            }
            yield ratio(f"2 omp, {n_nonzero} nonzero codes, {data.__name__}", contestants, repeats, {})


def group_speed(name: str, penalty: GroupLasso, atoms: np.ndarray, rows: np.ndarray, repeats: int) -> Bar:
    """Compare with ``fistaFlat`` at its largest tolerance that reaches the objective."""
    alpha = alpha_of(penalty, atoms, rows)

    def objective(codes: np.ndarray) -> float:
        return float(0.5 * np.square(rows - codes @ atoms).sum() + alpha * penalty.value(codes).sum())

    optimum = objective(our_codes(penalty, atoms, rows, alpha, 1e-9))
    excess = {"excess": objective(our_codes(penalty, atoms, rows, alpha, CODE_TOLERANCE)) / optimum - 1}
    for tolerance in 10.0 ** np.arange(-1, -9, -1):
        theirs = spams_group_codes(penalty, atoms, rows, alpha, tolerance)
        excess["SPAMS excess"] = objective(theirs()) / optimum - 1
        if excess["SPAMS excess"] <= ENOUGH:
            break
    contestants = {
        "terafactor us": lambda: our_codes(penalty, atoms, rows, alpha, CODE_TOLERANCE),
        "SPAMS us": theirs,
    }
    return ratio(name, contestants, repeats, excess)


def ratio(name: str, contestants: dict[str, Callable[[], Any]], repeats: int, details: dict[str, float]) -> Bar:
    times = best_times(contestants, repeats, clock=time.process_time)
    per_row = {each: 1e6 * taken / N_ROWS for each, taken in times.items()}
    return Bar(name, times["terafactor us"] / times["SPAMS us"], 1.5, details=per_row | details)


BENCHMARKS = {"codes": codes, "speed": speed}
