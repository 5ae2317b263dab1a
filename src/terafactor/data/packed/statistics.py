"""Statistics of the values of a record, accumulated over blocks of its rows."""

from __future__ import annotations

import math

import numpy as np

from terafactor._typing import Array


class FeatureMoments:
    """Mean, variance and range of each feature, accumulated over blocks of rows in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array = np.zeros(1)
        self.squares: Array = np.zeros(1)
        self.minimum: Array = np.full(1, np.inf)
        self.maximum: Array = np.full(1, -np.inf)

    def add(self, block: Array) -> None:
        """Add rows (b, p): merge the sums of squared deviations from two means, as Chan et al. do."""
        share = len(block) / (self.count + len(block))
        mean = block.mean(axis=0, dtype=np.float64)
        change = mean - self.mean
        self.squares = self.squares + change**2 * self.count * share
        for row in block:
            self.squares += (row - mean) ** 2
        self.mean = self.mean + change * share
        self.count += len(block)
        self.minimum = np.minimum(self.minimum, block.min(axis=0))
        self.maximum = np.maximum(self.maximum, block.max(axis=0))

    def inverse_deviation(self) -> Array:
        """Return 1 / standard deviation of each feature (p,), 0 for constant ones."""
        deviation = np.sqrt(self.squares / self.count)
        varies = (self.maximum > self.minimum) & (deviation > 0)
        return np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


class RecordStatistics:
    """Statistics of all values of a record as they are read, for its metadata."""

    def __init__(self) -> None:
        self.count, self.total, self.squares, self.minimum, self.maximum = 0, 0.0, 0.0, math.inf, -math.inf
        self.error_squares, self.largest_error = 0.0, 0.0

    def add(self, values: Array) -> None:
        """Add rows (b, p)."""
        self.count += values.size
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.einsum("ij,ij->", values, values, dtype=np.float64))
        self.minimum, self.maximum = min(self.minimum, float(values.min())), max(self.maximum, float(values.max()))

    def add_errors(self, errors: Array) -> None:
        """Add the quantization errors (b, p) of the same rows."""
        self.error_squares += float(np.einsum("ij,ij->", errors, errors, dtype=np.float64))
        self.largest_error = max(self.largest_error, float(errors.max()), -float(errors.min()))

    def summary(self, *, with_errors: bool) -> dict[str, float]:
        mean = self.total / self.count
        deviation = math.sqrt(max(self.squares / self.count - mean**2, 0.0))
        found = {"count": self.count, "mean": mean, "std": deviation, "min": self.minimum, "max": self.maximum}
        errors = {"rms_error": math.sqrt(self.error_squares / self.count), "max_error": self.largest_error}
        return found | (errors if with_errors else {})
