"""The problem as a whole, and the codes and objective that it defines for given rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from terafactor._threads import TILE, Executor, Part, features_of, n_tiles, nothing
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels._blas import address
from terafactor.kernels.accumulation import add_parts, correlate_tiles
from terafactor.kernels.coding import elastic_net_codes, elastic_net_start, least_ridge, ridge_codes
from terafactor.kernels.missing import code_rows, exceptions
from terafactor.problem.constraint import NormBall
from terafactor.problem.penalty import ElasticNet

logger = logging.getLogger(__name__)

MANY_PRODUCTS = 2**18
"""Rows times squared number of atoms above which coordinate descent is spread over threads."""


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

    def encode(
        self,
        values: Array,
        atoms: Array,
        n_features: int,
        executor: Executor,
        observed: Array | None = None,
        before: Part = nothing,
        meanwhile: Callable[[], object] | None = None,
    ) -> Array:
        """Return the codes (b, k) of the rows ``values`` (b, s) on ``atoms`` (k, s), in the dtype of the atoms.

        n_features: p, of which the s given are a part. observed (b, s): where there is a value, zero standing for the
        others; None when everywhere. before: fills the atoms, by the thread that uses them next; meanwhile: called when
        one thread is enough for the rest. The paper scales the data term by p / s; here the penalty is scaled by s / p,
        which has the same minimiser, and only here.
        """
        gram, correlations = correlate(values, atoms, executor, before=before)
        if meanwhile is not None:
            meanwhile()
        if observed is None:
            codes = self.encode_from(
                gram, correlations, values.shape[1] / n_features, rounding_of(atoms.dtype), executor
            )
        else:
            codes = self.encode_observed(gram, correlations, atoms, observed, n_features, executor)
        return codes.astype(atoms.dtype, copy=False)

    def encode_observed(
        self, gram: Array, correlations: Array, atoms: Array, observed: Array, n_features: int, executor: Executor
    ) -> Array:
        """Return the codes (b, k), float64, of rows that observe some of the features each.

        gram (k, k), correlations (b, k): over all features, float64, missing values counted as zero; observed (b, s).
        """
        codes, unfinished = np.zeros(correlations.shape), np.zeros(len(correlations), np.bool_)
        penalty = self.penalty
        few_missing, places, starts = exceptions(observed)

        def code(start: int, stop: int) -> None:
            code_rows(
                atoms, few_missing, places, starts, gram, correlations, float(self.alpha),
                float(penalty.l1_ratio), n_features, penalty.positive, self.code_tolerance, self.max_passes,
                start, stop, codes, unfinished,
            )  # fmt: skip

        executor.split(code, len(codes))
        self._report(unfinished)
        return codes

    def encode_from(
        self, gram: Array, correlations: Array, observed_share: float, precision: float, executor: Executor
    ) -> Array:
        """Return the codes (b, k) from the Gram matrix (k, k) and the correlations (b, k), all float64.

        precision: relative error of the two.
        """
        strength = float(self.alpha) * observed_share
        l1, l2 = strength * self.penalty.l1_ratio, strength * (1 - self.penalty.l1_ratio)
        l2 = max(l2, least_ridge(gram, precision))
        if l1 == 0 and not self.penalty.positive:
            return ridge_codes(gram, correlations, l2)
        codes, gradients = elastic_net_start(gram, correlations, l1, l2, dense=not self.penalty.positive)
        unfinished = np.zeros(len(codes), np.bool_)

        def code(start: int, stop: int) -> None:
            elastic_net_codes(
                gram, correlations, l1, l2, self.penalty.positive, self.code_tolerance, self.max_passes,
                start, stop, codes, gradients, unfinished,
            )  # fmt: skip

        # Handing a few short rows to another thread takes longer than coding them.
        executor.split(code, len(codes)) if codes.size * len(gram) > MANY_PRODUCTS else code(0, len(codes))
        self._report(unfinished)
        return codes

    def _report(self, unfinished: Array) -> None:
        if unfinished.any():
            logger.info("%d of %d codes stopped after %d passes", unfinished.sum(), len(unfinished), self.max_passes)

    def losses(
        self,
        values: Array,
        atoms: Array,
        codes: Array,
        n_features: int,
        executor: Executor,
        observed: Array | None = None,
    ) -> Array:
        """Return l(x) of each row, float64 (b,), for given codes; zero for a row without any value.

        Arguments as in :meth:`encode`.
        """
        squares = np.zeros((n_tiles(values.shape[1]), len(values)))

        def add(first: int, last: int) -> None:
            for tile in range(first, last):
                part = slice(tile * TILE, (tile + 1) * TILE)
                residual = values[:, part] - codes @ atoms[:, part]
                if observed is not None:
                    residual *= observed[:, part]
                squares[tile] = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)

        executor.split(add, len(squares))
        counts = np.full(len(values), values.shape[1]) if observed is None else observed.sum(axis=1)
        errors = 0.5 * n_features / np.maximum(counts, 1) * squares.sum(axis=0)
        return errors + float(self.alpha) * self.penalty.value(codes)

    def surrogate_value(
        self, dictionary: Array, code_gram: Array, data_code: Array, mean_penalty: float, executor: Executor
    ) -> float:
        """Return ``1/2 Tr(D'D C) - Tr(D'B) + alpha * mean of Omega``, the surrogate h_t up to the mean of |x|^2 / 2.

        The form printed in the paper halves the cross term too, which does not have the gradient it states.
        """

        quadratic, cross = np.zeros((2, n_tiles(dictionary.shape[1])))

        def add(first: int, last: int) -> None:
            for tile in range(first, last):
                part = slice(tile * TILE, (tile + 1) * TILE)
                atoms = np.ascontiguousarray(dictionary[:, part])
                quadratic[tile] = np.vdot(atoms @ atoms.T, code_gram)
                cross[tile] = np.vdot(atoms, np.ascontiguousarray(data_code[:, part]))

        executor.split(add, len(cross))
        return float(0.5 * quadratic.sum() - cross.sum() + float(self.alpha) * mean_penalty)


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return the relative error of one operation."""
    return float(np.finfo(dtype).eps)


def correlate(
    values: Array, atoms: Array, executor: Executor, *, gram: bool = True, before: Part = nothing
) -> tuple[Array, Array]:
    """Return ``atoms @ atoms.T`` (k, k) and ``values @ atoms.T`` (b, k), tiles of features added in float64.

    Without ``gram`` the first is empty. before: fills the atoms.
    """
    n_components, n_observed = atoms.shape
    n_parts = n_tiles(n_observed)
    grams = np.empty((n_parts if gram else 0, n_components, n_components), atoms.dtype)
    correlations = np.empty((n_parts, len(values), n_components), atoms.dtype)
    gemm, syrk = address("gemm", atoms.dtype), address("syrk", atoms.dtype)

    def work(first: int, last: int) -> None:
        correlate_tiles(gemm, syrk, values, atoms, first, last, grams, correlations)

    def fill_and_work(first: int, last: int) -> None:
        for tile in range(first, last):  # one after the other, while its atoms are still at hand
            before(*features_of(tile, tile + 1, n_observed))
            work(tile, tile + 1)

    executor.split(work if before is nothing else fill_and_work, n_parts)
    return add_parts(grams), add_parts(correlations)
