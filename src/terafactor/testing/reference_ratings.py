r"""Literal float64 twins of the kernels for ratings. Only tests import this module.

x is a standardized rating, a the code of a user, d the factors of an item, v variances. nu is the noise variance, m and
P are the mean and the precision of the prior, alpha is the ridge per rating.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array


@dataclass
class Posterior:
    """Mean of a code or of factors, and the diagonal of its covariance."""

    mean: Array
    variance: Array


def solve(rows: Array, variances: Array, x: Array, alpha: float, nu: float, m: Array, P: Array) -> Posterior:
    """argmin_a sum (x - a . d)^2 + sum a' diag(v) a + n alpha |a - m|^2 + nu (a - m)' P (a - m)."""
    n, k = rows.shape
    A = rows.T @ rows + np.diag(variances.sum(axis=0)) + n * alpha * np.eye(k) + nu * P
    mean = np.linalg.solve(A, rows.T @ x + (n * alpha * np.eye(k) + nu * P) @ m)
    return Posterior(mean, nu * np.diag(np.linalg.inv(A)))


def expected_error(rows: Array, x: Array, a: Array, nu: float, m: Array, P: Array) -> float:
    """|x|^2 - a . D'x - nu (a - m)' P m.

    At the solution this is the squared error plus nu (a - m)' P (a - m). If the prior fits the users, the mean of the
    second term over users is what the uncertainty of their codes adds to their errors.
    """
    return float(x @ x - a @ (rows.T @ x) - nu * (a - m) @ P @ m)


@dataclass
class ItemStatistics:
    """Decayed sums over the users of one item, their decayed weight, and the number of ratings seen."""

    gram: Array
    cross: Array
    weight: float = 0.0
    count: int = 0


def update_item(
    before: ItemStatistics, codes: Array, variances: Array, x: Array, memory: float, total: int
) -> ItemStatistics:
    """Return the statistics of an item after a batch with the codes of n more of its users."""
    n = len(x)
    decay = np.exp(-n / (memory * total))
    return ItemStatistics(
        decay * before.gram + codes.T @ codes + np.diag(variances.sum(axis=0)),
        decay * before.cross + codes.T @ x,
        decay * before.weight + n,
        min(before.count + n, total),
    )


def solve_item(statistics: ItemStatistics, alpha: float, nu: float, m: Array, P: Array) -> Posterior:
    """Solve for an item, with its statistics scaled to the number of ratings seen."""
    k, scale, n = len(m), statistics.count / statistics.weight, statistics.count
    A = scale * statistics.gram + n * alpha * np.eye(k) + nu * P
    right = scale * statistics.cross + (n * alpha * np.eye(k) + nu * P) @ m
    return Posterior(np.linalg.solve(A, right), nu * np.diag(np.linalg.inv(A)))


def best(scores: Array, excluded: Array, allowed: Array, n: int) -> list[int]:
    """Return the n allowed items of highest score that are not excluded; ties go to the lower number."""
    candidates = [item for item in allowed if item not in set(excluded.tolist())]
    return sorted(candidates, key=lambda item: (-scores[item], item))[:n]
