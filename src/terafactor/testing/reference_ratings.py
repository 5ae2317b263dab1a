r"""Ratings, slowly and literally, in float64. The oracle of the kernels for ratings; only tests import it.

x is a rating of variance one, a the code of a user, d the factors of an item, v variances. nu is the variance of the
noise, m and P are mean and precision of the prior, alpha the ridge per rating.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array


@dataclass
class Belief:
    """Mean of a code or of factors, and the diagonal of its covariance."""

    mean: Array
    variance: Array


def solve(rows: Array, variances: Array, x: Array, alpha: float, nu: float, m: Array, P: Array) -> Belief:
    """argmin_a sum (x - a . d)^2 + sum a' diag(v) a + n alpha |a - m|^2 + nu (a - m)' P (a - m)."""
    n, k = rows.shape
    A = rows.T @ rows + np.diag(variances.sum(axis=0)) + n * alpha * np.eye(k) + nu * P
    return Belief(np.linalg.solve(A, rows.T @ x + (n * alpha * np.eye(k) + nu * P) @ m), nu * np.diag(np.linalg.inv(A)))


def expected_error(rows: Array, x: Array, a: Array, nu: float, m: Array, P: Array) -> float:
    """|x|^2 - a . D'x - nu (a - m)' P m.

    At the solution this is the squared error plus nu (a - m)' P (a - m), and the mean of the latter over users is what
    uncertainty adds to their errors when the prior fits them.
    """
    return float(x @ x - a @ (rows.T @ x) - nu * (a - m) @ P @ m)


@dataclass
class ItemStatistics:
    """Decayed sums over the users of one item, and how many ratings are in them."""

    gram: Array
    cross: Array
    weight: float = 0.0
    count: int = 0


def absorb(
    before: ItemStatistics, codes: Array, variances: Array, x: Array, memory: float, total: int
) -> ItemStatistics:
    """The statistics of an item after a batch with codes of n more of its users."""
    n = len(x)
    decay = np.exp(-n / (memory * total))
    return ItemStatistics(
        decay * before.gram + codes.T @ codes + np.diag(variances.sum(axis=0)),
        decay * before.cross + codes.T @ x,
        decay * before.weight + n,
        min(before.count + n, total),
    )


def solve_item(statistics: ItemStatistics, alpha: float, nu: float, m: Array, P: Array) -> Belief:
    """The item whose ratings look like its statistics, scaled to as many ratings as it has."""
    k, scale, n = len(m), statistics.count / statistics.weight, statistics.count
    A = scale * statistics.gram + n * alpha * np.eye(k) + nu * P
    right = scale * statistics.cross + (n * alpha * np.eye(k) + nu * P) @ m
    return Belief(np.linalg.solve(A, right), nu * np.diag(np.linalg.inv(A)))


def best(scores: Array, excluded: Array, allowed: Array, n: int) -> list[int]:
    """The n items of highest score, of those allowed and not excluded; the lower number first among equals."""
    candidates = [item for item in allowed if item not in set(excluded.tolist())]
    return sorted(candidates, key=lambda item: (-scores[item], item))[:n]
