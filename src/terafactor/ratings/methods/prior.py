"""What codes of users, or factors of items, look like before any of their ratings is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from terafactor._typing import Array
from terafactor.solver.state_dict import array_of

LEAST_VARIANCE = 1e-4
"""Of a direction in which rows hardly differ; keeps systems well conditioned in float32."""

FIRST_ROWS = 10.0
"""Rows of variance one that the prior believes to have seen before the first."""

PINNED_VARIANCE = 1e-3
"""Of a coordinate that has to stay at its mean."""


@dataclass
class Prior:
    """A normal distribution of rows of factors, followed from batch to batch by what was learned of them."""

    mean: Array = field(metadata=array_of("k", np.float64))
    """(k,)."""

    precision: Array = field(metadata=array_of("k k", np.float64))
    """Inverse of the covariance (k, k); zero while nothing pulls towards the mean."""

    n_rows: Array = field(metadata=array_of("1", np.float64))
    """Decayed number of rows seen (1,)."""

    total: Array = field(metadata=array_of("k", np.float64))
    """Decayed sum of rows (k,)."""

    square: Array = field(metadata=array_of("k k", np.float64))
    """Decayed sum of products of rows, their variances included (k, k)."""

    @classmethod
    def start(cls, mean: Array, *, learned: bool, pinned: int | None) -> Prior:
        """Return the prior before any row: variance one around ``mean``, or no pull at all unless ``learned``."""
        k = len(mean)
        prior = cls(mean, np.eye(k) if learned else np.zeros((k, k)), np.zeros(1), np.zeros(k), np.zeros((k, k)))
        prior._pin(pinned)
        return prior

    def follow(self, rows: Array, variances: Array, decay: float, *, learned: bool, pinned: int | None) -> None:
        """Take in rows (m, k) and their variances: mean and, if ``learned``, covariance move towards theirs."""
        rows = rows.astype(np.float64)
        self.n_rows = decay * self.n_rows + len(rows)
        self.total = decay * self.total + rows.sum(axis=0)
        self.square = decay * self.square + rows.T @ rows + np.diag(variances.sum(axis=0, dtype=np.float64))
        if self.n_rows[0] == 0:
            return
        self.mean = self.total / self.n_rows
        if learned:
            about_mean = self.square - np.outer(self.total, self.mean)
            covariance = (about_mean + FIRST_ROWS * np.eye(len(self.mean))) / (self.n_rows + FIRST_ROWS)
            self.precision = np.linalg.inv(covariance + LEAST_VARIANCE * np.eye(len(self.mean)))
        self._pin(pinned)

    def _pin(self, coordinate: int | None) -> None:
        """Hold a coordinate at one, whatever was seen: the other side's part of an explicit bias."""
        if coordinate is not None:
            self.mean[coordinate] = 1.0
            self.precision[coordinate, :] = self.precision[:, coordinate] = 0.0
            self.precision[coordinate, coordinate] = 1 / PINNED_VARIANCE
