"""The problem as a whole, and the codes and objective that it defines for given rows."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

import numpy as np

from terafactor._threads import Executor, tiles
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.coding import elastic_net_codes, ridge_codes
from terafactor.problem.constraint import NormBall
from terafactor.problem.penalty import ElasticNet

logger = logging.getLogger(__name__)

ROWS_PER_TASK = 8
"""Rows coded by coordinate descent in one piece of work."""


@dataclass(frozen=True)
class Problem:
    r"""Minimise over dictionaries in the constraint the mean over rows x of l(x).

    ``l(x) = min over a of p / (2 s) |x_S - a D_S|^2 + alpha * Omega(a)``, with S the s observed features among p.
    """

    alpha: float = 1.0
    """Strength of the penalty."""

    penalty: ElasticNet = field(default_factory=ElasticNet)
    """Omega, the penalty on codes."""

    constraint: NormBall = field(default_factory=NormBall)
    """The ball that holds every atom."""

    code_tolerance: float = 1e-4
    """Violation of the optimality conditions allowed in codes by coordinate descent, relative to the correlations."""

    max_passes: int = 1000
    """Bound on the passes of coordinate descent."""

    def __post_init__(self) -> None:
        if not (is_number(self.alpha) and 0 <= self.alpha < math.inf):
            raise ParameterError(f"alpha must be a number >= 0, got {self.alpha!r} (0 means no penalty)")

    def encode(self, values: Array, atoms: Array, observed_share: float, executor: Executor) -> Array:
        """Return the codes (b, k) of the rows ``values`` (b, s) on ``atoms`` (k, s), in the dtype of the atoms.

        observed_share: s / p. The paper scales the data term by p / s; here the penalty is scaled by s / p, which has
        the same minimiser, and only here.
        """
        gram, correlations = gram_matrix(atoms, executor), correlate(values, atoms, executor)
        return self.encode_from(gram, correlations, observed_share, executor).astype(atoms.dtype, copy=False)

    def encode_from(self, gram: Array, correlations: Array, observed_share: float, executor: Executor) -> Array:
        """Return the codes (b, k) from the Gram matrix (k, k) and the correlations (b, k), all float64."""
        strength = float(self.alpha) * observed_share
        l1, l2 = strength * self.penalty.l1_ratio, strength * (1 - self.penalty.l1_ratio)
        if l1 == 0 and not self.penalty.positive:
            return ridge_codes(gram, correlations, l2)
        codes = np.zeros(correlations.shape)

        def code(rows: slice) -> int:
            return int(
                elastic_net_codes(
                    gram, correlations[rows], l1, l2, self.penalty.positive,
                    self.code_tolerance, self.max_passes, codes[rows],
                )
            )  # fmt: skip

        unfinished = sum(executor.map(code, tiles(len(codes), ROWS_PER_TASK)))
        if unfinished:
            logger.info("%d of %d codes stopped after %d passes", unfinished, len(codes), self.max_passes)
        return codes

    def losses(self, values: Array, atoms: Array, codes: Array, observed_share: float, executor: Executor) -> Array:
        """Return l(x) of each row, float64 (b,), for given codes."""

        def squares(tile: slice) -> Array:
            residual = values[:, tile] - codes @ atoms[:, tile]
            return np.einsum("ij,ij->i", residual, residual, dtype=np.float64)

        errors = sum(executor.map(squares, tiles(values.shape[1])), np.zeros(len(values)))
        return np.asarray(0.5 / observed_share * errors + float(self.alpha) * self.penalty.value(codes))

    def surrogate_value(
        self, dictionary: Array, code_gram: Array, data_code: Array, mean_penalty: float, executor: Executor
    ) -> float:
        """Return ``1/2 Tr(D'D C) - Tr(D'B) + alpha * mean of Omega``, the surrogate h_t up to the mean of |x|^2 / 2.

        The form printed in the paper halves the cross term too, which does not have the gradient it states.
        """

        def parts(tile: slice) -> tuple[Array, float]:
            atoms = np.ascontiguousarray(dictionary[:, tile])
            return atoms @ atoms.T, float(np.vdot(atoms, np.ascontiguousarray(data_code[:, tile])))

        grams, crosses = zip(*executor.map(parts, tiles(dictionary.shape[1])), strict=True)
        quadratic = sum(float(np.vdot(gram, code_gram)) for gram in grams)
        return 0.5 * quadratic - sum(crosses) + float(self.alpha) * mean_penalty


def gram_matrix(atoms: Array, executor: Executor) -> Array:
    """Return ``atoms @ atoms.T`` (k, k), summed over tiles of features in float64."""
    parts = executor.map(lambda tile: atoms[:, tile] @ atoms[:, tile].T, tiles(atoms.shape[1]))
    return sum(parts, np.zeros((len(atoms), len(atoms))))


def correlate(values: Array, atoms: Array, executor: Executor) -> Array:
    """Return ``values @ atoms.T`` (b, k), summed over tiles of features in float64."""
    parts = executor.map(lambda tile: values[:, tile] @ atoms[:, tile].T, tiles(atoms.shape[1]))
    return sum(parts, np.zeros((len(values), len(atoms))))
