"""Penalties that are defined by their proximal operator."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.problem.penalties.penalty import Penalty

logger = logging.getLogger(__name__)

MAX_STEPS = 10_000
"""Most proximal gradient steps."""


class ProximalPenalty(Penalty):
    """A penalty with a proximal operator. Codes are found by accelerated proximal gradient descent (FISTA).

    Subclasses define ``value`` and :meth:`prox`.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import ProximalPenalty
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Ridge(ProximalPenalty):
    ...     def value(self, codes):
    ...         return (codes**2).sum(axis=1) / 2
    ...
    ...     def prox(self, points, strengths):
    ...         return points / (1 + strengths)
    >>> Ridge().codes(np.eye(2), np.array([[1.0, 2.0]]), 1.0, 1e-4).round(3)
    array([[0.5, 1. ]])
    """

    def prox(self, points: Array, strengths: Array) -> Array:
        """Return ``argmin over a of 1/2 |a - point|^2 + strength * Omega(a)`` for each row.

        points (b, k), strengths (b, 1).
        """
        raise NotImplementedError

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        steps = _step_sizes(gram, products)
        strengths = np.reshape(strength, (-1, 1)) * steps
        codes = self.prox(np.zeros(products.shape), strengths)
        gradient = np.einsum("...i,...ij->...j", codes, gram)
        scale = np.maximum(np.abs(products).max(axis=1), np.abs(gradient).max(axis=1))
        allowed = 0.5 * tolerance * scale  # half, because the point and its successor differ
        active, rows, points, momentum = np.arange(len(codes)), codes, codes, np.ones((len(codes), 1))
        for _ in range(MAX_STEPS):
            grams = gram if gram.ndim == 2 else gram[active]
            gradient = np.einsum("...i,...ij->...j", points, grams) - products[active]
            new = self.prox(points - steps[active] * gradient, strengths[active])
            residual = np.abs(new - points).max(axis=1) / steps[active, 0]
            # Restart the momentum of rows that would go uphill (O'Donoghue and Candes, 2015).
            uphill = ((points - new) * (new - rows)).sum(axis=1, keepdims=True) > 0
            momentum = np.where(uphill, 1.0, momentum)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            points, rows, momentum = new + (momentum - 1) / following * (new - rows), new, following
            codes[active] = rows
            left = residual > allowed[active]
            if not left.any():
                return codes
            active, points, rows, momentum = active[left], points[left], rows[left], momentum[left]
        logger.info("%d of %d codes stopped after %d steps", len(active), len(codes), MAX_STEPS)
        return codes

    def violation(self, gram: Array, products: Array, strength: Any, codes: Array) -> Array:
        steps = _step_sizes(gram, products)
        gradient = np.einsum("...i,...ij->...j", codes, gram) - products
        moved = self.prox(codes - steps * gradient, np.reshape(strength, (-1, 1)) * steps)
        return np.abs(moved - codes).max(axis=1) / steps[:, 0]


def _step_sizes(gram: Array, products: Array) -> Array:
    """Return the inverse of the largest eigenvalue of each row's Gram matrix (b, 1)."""
    largest = np.maximum(np.linalg.eigvalsh(gram)[..., -1], np.finfo(np.float64).tiny)
    return np.broadcast_to(np.reshape(1 / largest, (-1, 1)), (len(products), 1))
