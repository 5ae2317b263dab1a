"""The prior distribution of the codes of users, or of the factors of items."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from terafactor._typing import Array
from terafactor.errors import DataError
from terafactor.solver.state_dict import array_of

MIN_VARIANCE = 1e-4
"""Added to all variances, so that systems are well conditioned in float32 even if rows hardly differ in a direction."""

N_INITIAL_ROWS = 10.0
"""Pseudo-rows of variance one in the estimate of the covariance."""

FIXED_VARIANCE = 1e-3
"""Variance of a coordinate that is fixed at its mean."""

TOLERANCE = 1e-6
"""Largest rounding error of a matrix in a file, relative to its largest entry."""

MAX_ENTRY = 1e100
"""Entries of the priors in a file are smaller, so that their squares do not overflow."""


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
        """Return the prior before any row: unit variance around ``mean`` if ``learned``, otherwise flat."""
        k = len(mean)
        prior = cls(mean, np.eye(k) if learned else np.zeros((k, k)), np.zeros(1), np.zeros(k), np.zeros((k, k)))
        prior._fix(fixed)
        return prior

    def check(self, name: str) -> None:
        """Raise DataError unless this is a normal distribution and its sums are those of rows; for those in files."""
        square, n_rows = self.square, float(self.n_rows[0])
        if n_rows < 0 or any(
            np.abs(part).max() > MAX_ENTRY for part in (self.mean, self.total, self.precision, square)
        ):
            raise _damaged(name, f"sums, or a number of rows of {n_rows}, that no ratings give")
        scatter = square - np.outer(self.total, self.total) / n_rows if n_rows else square
        for part, matrix, scale in (
            ("precision", self.precision, np.abs(self.precision).max()),
            ("covariance", scatter, np.abs(square).max()),
        ):
            if np.abs(matrix - matrix.T).max() > TOLERANCE * scale:
                raise _damaged(name, f"a {part} that is not symmetric")
            if np.linalg.eigvalsh(matrix).min() < -TOLERANCE * len(matrix) * scale:
                raise _damaged(name, f"a {part} that is not positive semidefinite")

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
            try:
                self.precision = np.linalg.inv(covariance + MIN_VARIANCE * np.eye(len(self.mean)))
            except np.linalg.LinAlgError as error:
                raise _damaged("a prior", "sums that no ratings give") from error
        self._fix(fixed)

    def _fix(self, coordinate: int | None) -> None:
        """Fix a coordinate at one: it multiplies an explicit bias of the other side."""
        if coordinate is not None:
            self.mean[coordinate] = 1.0
            self.precision[coordinate, :] = self.precision[:, coordinate] = 0.0
            self.precision[coordinate, coordinate] = 1 / FIXED_VARIANCE


def _damaged(name: str, fault: str) -> DataError:
    return DataError(f"{name} in the file has {fault}: it was not written by terafactor, or was changed; fit again")
