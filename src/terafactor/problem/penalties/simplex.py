"""Codes on the simplex: non-negative, with a given sum. Used to unmix spectra into shares of pure materials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.problem.penalties.proximal import ProximalPenalty
from terafactor.problem.registry import register


@register
@dataclass(frozen=True)
class Simplex(ProximalPenalty):
    """Constrain codes to ``a >= 0`` and ``sum(a) = total``: Omega is 0 there, and infinite elsewhere.

    alpha has no effect.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import Simplex
    >>> Simplex().prox(np.array([[0.9, 0.5, -1.0]]), np.ones((1, 1)))
    array([[0.7, 0.3, 0. ]])
    """

    total: float = 1.0
    """Sum of the codes of a row."""

    has_strength: ClassVar[bool] = False
    positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (is_number(self.total) and 0 < self.total < np.inf):
            raise ParameterError(f"total of the simplex must be a number > 0, got {self.total!r}")

    def value(self, codes: Array) -> Array:
        return np.zeros(len(codes))

    def prox(self, points: Array, strengths: Array) -> Array:
        """Project each row of ``points`` (b, k) on the simplex, whatever the ``strengths`` (b, 1).

        It subtracts the threshold that leaves the right sum, and cuts at zero.
        """
        decreasing = -np.sort(-points, axis=1)
        counts = np.arange(1, points.shape[1] + 1)
        thresholds = (np.cumsum(decreasing, axis=1) - self.total) / counts
        n_positive = (decreasing > thresholds).sum(axis=1, keepdims=True)  # the largest entries stay positive
        return np.maximum(points - np.take_along_axis(thresholds, n_positive - 1, axis=1), 0.0)
