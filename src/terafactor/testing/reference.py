r"""The paper's algorithm in its own notation, literal and slow: the reference for tests of the kernels.

"Dictionary Learning for Massive Matrix Factorization" (Mensch, Mairal, Thirion, Varoquaux, ICML 2016). Signals are
columns, as in the paper: x in R^p, D in R^{p x k}, M a diagonal 0/1 matrix given as its diagonal. All in float64.

Differences from the text of the paper: Algorithm 1 prints A_t for C_t and E_t + M_t for E_{t-1} + M_t; batches replace
single signals, each weighted by its share of the samples; the weight 1/t may be t^-beta; the cross term of the
surrogate is not halved, since only then it has the stated gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array


def omega(a: Array, rho: float) -> float:
    """Omega(a) = rho |a|_1 + (1 - rho) / 2 |a|_2^2."""
    return float(rho * np.abs(a).sum() + (1 - rho) / 2 * (a @ a))


def psi(d: Array, norm: str, rho: float = 0.5) -> float:
    """Return psi(d): |d|_2^2 for the l2 ball, |d|_1, or the elastic net."""
    if norm == "l2":
        return float(d @ d)
    if norm == "l1":
        return float(np.abs(d).sum())
    return omega(d, rho)


def code(x: Array, D: Array, M: Array, lam: float, rho: float, positive: bool = False) -> Array:
    """argmin_a 1/2 |M (x - D a)|^2 + lam * Tr M / p * Omega(a), by coordinate descent to full precision."""
    MD, s = M[:, np.newaxis] * D, M.sum()
    penalty = lam * s / len(x)
    if rho == 0 and not positive:
        system = MD.T @ MD + penalty * np.eye(D.shape[1])
        return np.linalg.lstsq(system, MD.T @ x, rcond=1e-12)[0]
    a, Mx, norms = np.zeros(D.shape[1]), M * x, [column @ column for column in MD.T]
    for _ in range(100_000):
        before = a.copy()
        for j in range(len(a)):
            curvature = norms[j] + penalty * (1 - rho)
            if curvature == 0:
                continue
            z = MD[:, j] @ (Mx - MD @ a) + norms[j] * a[j]
            a[j] = np.sign(z) * max(abs(z) - penalty * rho, 0) / curvature
            if positive:
                a[j] = max(z - penalty * rho, 0) / curvature
        if np.abs(a - before).max() <= 1e-15 * max(1, np.abs(a).max()):
            break
    return a


def project(v: Array, norm: str, budget: float, rho: float = 0.5, positive: bool = False) -> Array:
    """Return the projection of v on {d : psi(d) <= budget}; the budget is the squared radius for l2."""
    v = np.maximum(v, 0) if positive else v
    if psi(v, norm, rho) <= budget:
        return v.copy()
    if budget <= 0:
        return np.zeros_like(v)
    if norm == "l2":
        return v * np.sqrt(budget / (v @ v))
    if norm == "l1":  # Duchi et al. (2008): sort, find how many entries survive
        u = np.sort(np.abs(v))[::-1]
        thresholds = (np.cumsum(u) - budget) / np.arange(1, len(u) + 1)
        theta = thresholds[np.nonzero(u >= thresholds)[0][-1]]
        return np.sign(v) * np.maximum(np.abs(v) - theta, 0)
    low, high = 0.0, np.abs(v).max() / rho if rho > 0 else 2 * psi(v, norm, rho) / budget

    def shrunk(multiplier: float) -> Array:
        return np.sign(v) * np.maximum(np.abs(v) - multiplier * rho, 0) / (1 + multiplier * (1 - rho))

    for _ in range(200):  # psi(shrunk) decreases with the multiplier
        middle = (low + high) / 2
        if middle in (low, high):  # neighbors
            break
        low, high = (middle, high) if psi(shrunk(middle), norm, rho) > budget else (low, middle)
    return shrunk(high)


def dictionary_update(
    B: Array, C: Array, D: Array, M: Array, norm: str, limit: float, *, approximate: bool, rho: float, positive: bool
) -> Array:
    """Return the D after Procedure 2; ``limit`` is the bound of psi."""
    D = D.copy()
    seen = M > 0
    for j in range(D.shape[1]):
        if C[j, j] <= 1e-12 * np.trace(C):
            continue
        d = D[:, j] - M * (D @ C[:, j] - B[:, j]) / C[j, j]
        if approximate:  # the set T_j: entries outside the mask do not move
            budget = limit - psi(d[~seen], norm, rho)
            d[seen] = project(d[seen], norm, budget, rho, positive)
            D[:, j] = d
        else:
            D[:, j] = project(d, norm, limit, rho, positive)
    return D


def surrogate(D: Array, C: Array, B: Array, lam: float, mean_omega: float) -> float:
    """h_t(D) = 1/2 Tr(D'D C) - Tr(D'B) + lam * mean of Omega."""
    return float(0.5 * np.trace(D.T @ D @ C) - np.trace(D.T @ B) + lam * mean_omega)


@dataclass
class Memory:
    """State of Algorithm 1: D, C, B, E (its diagonal, in samples), steps t, samples n, and the mean of Omega."""

    D: Array
    C: Array
    B: Array
    E: Array
    t: int = 0
    n: int = 0
    mean_omega: float = 0.0

    @classmethod
    def start(cls, D: Array) -> Memory:
        """Return the memory before the first step."""
        p, k = D.shape
        return cls(D.copy(), np.zeros((k, k)), np.zeros((p, k)), np.zeros(p))


def learn(
    memory: Memory,
    batches: Iterable[tuple[Array, Array]],
    *,
    lam: float,
    rho: float,
    norm: str,
    limit: float = 1.0,
    ball_rho: float = 0.5,
    positive_code: bool = False,
    positive_dict: bool = False,
    approximate: bool = True,
    full: bool = False,
    weight: Callable[[int], float] = lambda t: 1 / t,
) -> Memory:
    """Run Algorithm 1 on batches (X, M): X (p, b) signals as columns, M (p, b) their masks, or (p,) a shared one.

    ``full`` updates B from the whole signals: the mask applies to codes and atoms only. Signals without observed
    entries are skipped, and so are batches of them.
    """
    for X, M in batches:
        M = np.broadcast_to(M.reshape(len(X), -1), X.shape)
        some = M.any(axis=0)
        X, M = X[:, some], M[:, some]
        b = X.shape[1]
        if b == 0:
            continue
        A = np.column_stack([code(x, memory.D, m, lam, rho, positive_code) for x, m in zip(X.T, M.T, strict=True)])
        counted = np.ones_like(M) if full else M
        memory.t += 1
        memory.n += b
        memory.E += counted.sum(axis=1)
        gain = weight(memory.t) * memory.t
        w = min(1.0, gain * b / memory.n)
        memory.C = (1 - w) * memory.C + w * A @ A.T / b
        for f in np.flatnonzero(counted.any(axis=1)):
            seen = counted[f] > 0
            w_f = min(1.0, gain * seen.sum() / memory.E[f])
            memory.B[f] = (1 - w_f) * memory.B[f] + w_f * X[f, seen] @ A[:, seen].T / seen.sum()
        memory.mean_omega = (1 - w) * memory.mean_omega + w * float(np.mean([omega(a, rho) for a in A.T]))
        memory.D = dictionary_update(
            memory.B, memory.C, memory.D, M.any(axis=1).astype(float), norm, limit,
            approximate=approximate, rho=ball_rho, positive=positive_dict,
        )  # fmt: skip
    return memory
