"""The prior distribution of the codes of users, or of the factors of items."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from terafactor._typing import Array
from terafactor.solver.state_dict import array_of

MIN_VARIANCE = 1e-4
"""Added to all variances: keeps systems well conditioned in float32 along directions in which rows hardly differ."""

N_INITIAL_ROWS = 10.0
"""Pseudo-rows of variance one in the estimate of the covariance."""

FIXED_VARIANCE = 1e-3
"""Variance of a coordinate that must stay at its mean."""


@dataclass
class Prior:
    """A normal distribution of rows of factors, estimated online from the rows of each batch."""

    mean: Array = field(metadata=array_of("k", np.float64))
    """(k,)."""

    precision: Array = field(metadata=array_of("k k", np.float64))
    """Inverse covariance (k, k); zero for a flat prior."""

    n_rows: Array = field(metadata=array_of("1", np.float64))
    """Decayed number of rows seen (1,)."""

    total: Array = field(metadata=array_of("k", np.float64))
    """Decayed sum of rows (k,)."""

    square: Array = field(metadata=array_of("k k", np.float64))
    """Decayed sum of outer products of rows, plus their variances (k, k)."""

    @classmethod
    def initial(cls, mean: Array, *, learned: bool, fixed: int | None) -> Prior:
        """Return the prior before any row: unit variance around ``mean`` if ``learned``, else flat."""
        k = len(mean)
        prior = cls(mean, np.eye(k) if learned else np.zeros((k, k)), np.zeros(1), np.zeros(k), np.zeros((k, k)))
        prior._fix(fixed)
        return prior

    def update(self, rows: Array, variances: Array, decay: float, *, learned: bool, fixed: int | None) -> None:
        """Update the mean and, if ``learned``, the covariance with rows (m, k) and their variances (m, k)."""
        rows = rows.astype(np.float64)
        self.n_rows = decay * self.n_rows + len(rows)
        self.total = decay * self.total + rows.sum(axis=0)
        self.square = decay * self.square + rows.T @ rows + np.diag(variances.sum(axis=0, dtype=np.float64))
        if self.n_rows[0] == 0:
            return
        self.mean = self.total / self.n_rows
        if learned:
            scatter = self.square - np.outer(self.total, self.mean)
            covariance = (scatter + N_INITIAL_ROWS * np.eye(len(self.mean))) / (self.n_rows + N_INITIAL_ROWS)
            self.precision = np.linalg.inv(covariance + MIN_VARIANCE * np.eye(len(self.mean)))
        self._fix(fixed)

    def _fix(self, coordinate: int | None) -> None:
        """Fix a coordinate at one: it multiplies an explicit bias of the other side."""
        if coordinate is not None:
            self.mean[coordinate] = 1.0
            self.precision[coordinate, :] = self.precision[:, coordinate] = 0.0
            self.precision[coordinate, coordinate] = 1 / FIXED_VARIANCE
