"""Sums over the numbers of a record, from blocks of its rows."""

from __future__ import annotations

import math

import numpy as np

from terafactor._typing import Array


class Moments:
    """Mean, variance and range of each feature, from blocks of rows, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array = np.zeros(1)
        self.squares: Array = np.zeros(1)
        self.least: Array = np.full(1, np.inf)
        self.most: Array = np.full(1, -np.inf)

    def add(self, block: Array) -> None:
        """Take in rows (b, p): the sums of squares about two means, moved to the common one."""
        share = len(block) / (self.count + len(block))
        mean = block.mean(axis=0, dtype=np.float64)
        change = mean - self.mean
        self.squares = self.squares + change**2 * self.count * share
        for row in block:
            self.squares += (row - mean) ** 2
        self.mean = self.mean + change * share
        self.count += len(block)
        self.least, self.most = np.minimum(self.least, block.min(axis=0)), np.maximum(self.most, block.max(axis=0))

    def gain(self) -> Array:
        """Return one over the standard deviation; zero for a feature that is constant."""
        deviation = np.sqrt(self.squares / self.count)
        varies = (self.most > self.least) & (deviation > 0)
        return np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


class Totals:
    """What the metadata of a record say of its numbers, as they are read."""

    def __init__(self) -> None:
        self.count, self.total, self.squares, self.least, self.most = 0, 0.0, 0.0, math.inf, -math.inf
        self.error_squares, self.largest_error = 0.0, 0.0

    def add(self, values: Array) -> None:
        """Take in rows (b, p)."""
        self.count += values.size
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.einsum("ij,ij->", values, values, dtype=np.float64))
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))

    def add_errors(self, errors: Array) -> None:
        """Take in by how much the same rows differ from what was packed (b, p)."""
        self.error_squares += float(np.einsum("ij,ij->", errors, errors, dtype=np.float64))
        self.largest_error = max(self.largest_error, float(errors.max()), -float(errors.min()))

    def statistics(self, *, with_errors: bool) -> dict[str, float]:
        mean = self.total / self.count
        deviation = math.sqrt(max(self.squares / self.count - mean**2, 0.0))
        found = {"count": self.count, "mean": mean, "std": deviation, "min": self.least, "max": self.most}
        errors = {"rms_error": math.sqrt(self.error_squares / self.count), "max_error": self.largest_error}
        return found | (errors if with_errors else {})
