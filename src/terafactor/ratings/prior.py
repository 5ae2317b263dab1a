"""What codes of users, or factors of items, look like before any of their ratings is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array

LEAST_VARIANCE = 1e-4
"""Of a direction in which rows hardly differ; keeps systems well conditioned in float32."""

FIRST_ROWS = 10
"""Rows of variance one that the prior believes to have seen before the first."""

PINNED_VARIANCE = 1e-3
"""Of a coordinate that has to stay at its mean."""


@dataclass
class Prior:
    """A normal distribution, followed from batch to batch."""

    mean: Array
    """(k,), float64."""

    precision: Array
    """Inverse of the covariance (k, k), float64."""

    pinned: int | None = None
    """Coordinate that stays at 1, for an explicit bias."""

    n_rows: float = 0.0
    """Decayed number of rows seen."""

    total: Array | None = None
    """Decayed sum of rows (k,)."""

    square: Array | None = None
    """Decayed sum of the products of rows and of their variances (k, k)."""
