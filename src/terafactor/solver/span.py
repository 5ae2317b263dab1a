r"""Several steps at once on rows that are mostly zeros, at a cost that hardly depends on the number of features.

With whole rows and the l2 ball, a step needs values of features for nothing but inner products, and all it makes are
linear combinations: statistics become :math:`B \leftarrow (1 - w) B + \tfrac{w}{b} A' X`, the move of an atom is
:math:`d_j \leftarrow (b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}`, and its projection divides it by a number. So over a
stretch of steps that begins with :math:`D_0, B_0` and reads m rows X, atoms and statistics stay in the span of the
2k + m vectors :math:`Z = [D_0; B_0; X]`, and their coefficients are all that changes:

.. math:: [D_t; B_t] = W_t' Z

The inner products of the rows with atoms and statistics, :math:`R = X D', S = X B'`, hence their codes, and the Gram
matrix of :math:`[D; B]` are carried along, since everything that changes them is known. For
:math:`B \leftarrow u B + A' X_b` (A the codes of the batch, scaled by w / b), of a batch b and of the rows after it,

.. math:: D B' \leftarrow u D B' + R_b' A, \quad B B' \leftarrow u^2 B B' + u (S_b' A + A' S_b) + A' (X_b X_b') A,
          \quad S \leftarrow u S + X X_b' A

and for the sweep :math:`D \leftarrow P D + Q B`, R becomes :math:`R P' + S Q'`, and the Gram matrix is multiplied on
both sides. Only at the end of the stretch are D and B computed, by one product over the features and one pass over the
entries that are stored. What the rows of a batch weigh in them follows backwards: if the last atoms are
:math:`E D_t + F B_t` in those after step t, then with :math:`G = E Q_t + F` they are :math:`G A_t' X_t` of its rows and
:math:`E P_t D_{t-1} + u_t G B_{t-1}` of what was before.

A step on p features costs :math:`O(p k (b + k))` multiplications; here p enters only in :math:`O(p k^2)` per *stretch*.
Matrices of size k are in float64, coefficients and inner products of rows in the precision of the data. The result is
that of plain steps, up to rounding. The Gram matrix at the end of a stretch is that with which the next one begins: it
is part of the state, and is computed from the features now and then, against drift.

Where the terms of a move cancel, as for atoms that are hardly ever used in data without noise, little is left of a norm
that is found from inner products: such a sweep is done on the features, and so are the steps after it, up to the end of
the stretch. So are those from where the Gram matrix, carried along, has become one that no atoms can have, since no
codes would be optimal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._threads import TILE, Executor, n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import Batch, MatrixSource, Stretch
from terafactor.kernels._blas import FLOAT64, address
from terafactor.kernels.atoms import sweep_atoms
from terafactor.kernels.coding import is_definite, least_ridge
from terafactor.kernels.span import (
    absorb_in_span,
    advance_rows,
    combine,
    inner_products_of_features,
    multiply_earlier_rows,
    multiply_stored,
    sweep_in_span,
)
from terafactor.problem import NormBall, Problem
from terafactor.problem.problem import rounding_of
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import CodeSums, SurrogateState, absorb_codes
from terafactor.solver.step import reseed_unused, step

MOST_ROWS = 2048
"""Rows in a stretch, at the most: their inner products take 32 MB, and their numbers two bytes."""

PRECISION = 1e-5
"""Relative error up to which squares of norms may be found from inner products."""

MOST_CARRIED = 16
"""Stretches after which inner products of atoms and statistics are computed from the features again."""

PAIR = 10
"""Multiplications in matrix products that take as long as one of two entries that share a column."""

FREQUENT = 1 / 8
"""Share of rows that store a column above which its products are a matrix product, rather than those of pairs."""


def is_spanned(source: MatrixSource, problem: Problem, options: SolverOptions, state: SurrogateState) -> bool:
    """Whether steps can be done in a span: few sparse whole rows, the l2 ball, all features seen equally often."""
    l1_weight, _, _, positive = problem.constraint.lower()
    whole = options.reduction == 1 and not options.missing
    sparse = whole and source.is_sparse and options.batch_size <= MOST_ROWS
    return sparse and l1_weight == 0 and not positive and np.ptp(state.feature_counts) == 0


def stretch_length(n_features: int, n_components: int, batch_size: int, stored_share: float) -> int:
    """Return how many steps make a stretch: where its end costs as much as what grows with the square of its rows.

    Its end takes ``2 p k^2`` multiplications. With T steps of b rows, inner products of rows with atoms and statistics
    take ``T^2 b k (b / 2 + k)``, and those with each other ``T^2 b^2 / 2`` times the columns that two rows share.
    """
    p, k, b = n_features, n_components, batch_size
    growth = b * k * (b / 2 + k) + PAIR * b**2 / 2 * p * stored_share**2
    return max(1, min(round(math.sqrt(2 * p * k**2 / growth)), MOST_ROWS // b))


def learn_stretch(
    state: SurrogateState, stretch: Stretch, problem: Problem, options: SolverOptions, executor: Executor
) -> Array:
    """Do one step for each batch of a stretch. Changes ``state`` only; returns the codes of all rows (m, k)."""
    codes = np.empty((len(stretch.rows), len(state.dictionary)), state.dictionary.dtype)
    n_done = _learn_in_span(state, stretch, problem, options, executor, codes)
    for part in stretch.parts[n_done:]:
        batch = Batch(stretch.rows[part], None, stretch.values[part].toarray())
        codes[part] = step(state, batch, problem, options, executor)
    return codes


def _learn_in_span(
    state: SurrogateState,
    stretch: Stretch,
    problem: Problem,
    options: SolverOptions,
    executor: Executor,
    codes: Array,
) -> int:
    """Do the steps up to one whose sweep, or whose codes, need the features; put their codes in ``codes`` (m, k).

    Returns how many there are, at least one.
    """
    k, dtype = len(state.dictionary), state.dictionary.dtype
    precision = rounding_of(dtype)
    if not _knows_inner_products(state, precision):
        state.inner, state.n_carried = None, 0
    span = Span(state, stretch.values, executor)
    count = int(state.feature_counts[0])
    n_done, moved = 0, True
    while moved and n_done < len(stretch.parts):
        gram = span.gram[:k, :k].copy()
        if n_done and not is_definite(gram, least_ridge(gram, precision)):
            break
        part = stretch.parts[n_done]
        found = problem.encode_from(gram, span.with_atoms[part].astype(np.float64), 1.0, precision, executor)
        found = found.astype(dtype)
        sums = CodeSums.of_codes(found, len(found), problem.penalty)
        count += len(found)
        gain = absorb_codes(state, sums, options.schedule, count)
        weight = min(1.0, gain * len(found) / count)
        codes[part] = found
        moved = span.step(part, 1 - weight, (weight / len(found)) * found, problem.constraint, state)
        n_done += 1
    state.n_batches += n_done
    state.feature_counts += part.stop
    span.write(state)
    if not moved:
        state.inner = None
        state.dictionary, state.data_code = map(np.ascontiguousarray, (state.dictionary, state.data_code))
        sweep_atoms(
            state.dictionary, state.data_code, state.code_gram, problem.constraint.lower(), state.sizes,
            state.multipliers, whole=True, executor=executor,
        )  # fmt: skip
    if state.idle_rows.max() >= options.reseed_after and sums.used.any():
        batch = Batch(stretch.rows[part], None, stretch.values[part].toarray())
        reseed_unused(state, batch, found, state.dictionary, problem, options.reseed_after)
    return n_done


def _knows_inner_products(state: SurrogateState, precision: float) -> bool:
    """Whether the state has inner products of atoms and statistics that are not too old, and that atoms can have."""
    if state.inner is None or state.n_carried >= MOST_CARRIED:
        return False
    gram = state.inner[: len(state.dictionary), : len(state.dictionary)].copy()
    return is_definite(gram, least_ridge(gram, precision))


@dataclass(frozen=True)
class Step:
    """What a step does: ``B = keep * B + codes' X`` for the rows of a part, then ``D = moves [D; B]``."""

    part: slice
    keep: float
    codes: Array
    """(b, k), float64."""

    moves: Array
    """(k, 2k), float64."""


class Span:
    """Atoms and statistics as combinations of what a stretch began with and of its rows: what a step needs of them."""

    gram: Array
    """Inner products of atoms and statistics (2k, 2k), float64."""

    with_atoms: Array
    """Inner products of rows that are to come with the atoms (m, k)."""

    def __init__(self, state: SurrogateState, rows: Any, executor: Executor) -> None:
        state.dictionary, state.data_code = np.asfortranarray(state.dictionary), np.asfortranarray(state.data_code)
        self.executor = executor
        self.k, self.n_rows = len(state.dictionary), rows.shape[0]
        self.columns = rows.tocsc()
        self.starts, self.rows = self.columns.indptr.astype(np.uint64), self.columns.indices.astype(np.uint16)
        if state.inner is None:
            state.inner = self._gram(state.dictionary.T, state.data_code.T)
        self.gram = state.inner
        self.with_atoms, self._with_statistics, self._with_earlier = self._inner(state.dictionary.T, state.data_code.T)
        self._with_moved = np.empty_like(self.with_atoms)
        self._steps: list[Step] = []

    def _gram(self, dictionary: Array, data_code: Array) -> Array:
        """Return the inner products of atoms and statistics (2k, 2k), tiles added in float64."""
        k, dtype, n_parts = self.k, dictionary.dtype, n_tiles(len(dictionary))
        gemm, syrk = address("gemm", dtype), address("syrk", dtype)
        grams = np.zeros((n_parts, 2 * k, 2 * k), dtype)

        def fill(first: int, last: int) -> None:
            inner_products_of_features(gemm, syrk, dictionary, data_code, first, last, grams)

        self.executor.split(fill, n_parts)
        upper = grams.sum(axis=0, dtype=np.float64)
        return upper + np.triu(upper, 1).T

    def _inner(self, dictionary: Array, data_code: Array) -> tuple[Array, Array, Array]:
        """Return ``X D'``, ``X B'`` (m, k) and ``X X'`` (m, m), of which half the diagonal and nothing above it."""
        with_atoms, with_statistics = np.zeros((2, self.n_rows, self.k), dictionary.dtype)
        longest = int(FREQUENT * self.n_rows)
        frequent = np.flatnonzero(np.diff(self.columns.indptr) > longest)
        with_earlier = self._inner_in_columns(frequent)
        stored = self.starts, self.rows, self.columns.data

        def fill(first: int, last: int) -> None:
            multiply_stored(*stored, dictionary, first, last, with_atoms)
            multiply_stored(*stored, data_code, first, last, with_statistics)
            multiply_earlier_rows(*stored, longest, first, last, with_earlier)

        self.executor.split(fill, self.n_rows)
        return with_atoms, with_statistics, with_earlier

    def _inner_in_columns(self, chosen: Indices) -> Array:
        """Return the part of ``X X'`` that some columns make, as :meth:`_inner` has it."""
        inner = np.zeros((self.n_rows, self.n_rows), self.columns.dtype)
        if not len(chosen):
            return inner
        for start in range(0, len(chosen), TILE):
            part = self.columns[:, chosen[start : start + TILE]].toarray()
            inner += part @ part.T
        inner.flat[:: self.n_rows + 1] /= 2
        return np.tril(inner)

    def step(self, part: slice, keep: float, codes: Array, ball: NormBall, state: SurrogateState) -> bool:
        """``B = keep * B + codes' X`` for the rows ``part``, codes (b, k); then move every atom once, and project it.

        Of ``state``, ``code_gram`` is used, and ``sizes`` changes. Returns whether atoms were moved: they are not where
        their norms would be lost in rounding, and then this is the last step.
        """
        _, _, limit, _ = ball.lower()
        dtype, done = self.with_atoms.dtype, Step(part, keep, codes.astype(np.float64), np.empty((self.k, 2 * self.k)))
        gemm, precise, rows = address("gemm", dtype), address("gemm", FLOAT64), (part.start, part.stop)
        absorb_in_span(
            precise, *rows, keep, done.codes, self.with_atoms, self._with_statistics, self._with_earlier, self.gram
        )
        least = rounding_of(dtype) / PRECISION
        moved = bool(sweep_in_span(precise, self.gram, state.code_gram, limit, least, done.moves, state.sizes))
        if not moved:
            done.moves[:] = np.eye(self.k, 2 * self.k)
        elif part.stop < self.n_rows:
            advance_rows(
                gemm, *rows, keep, codes, done.moves.astype(dtype), self._with_earlier, self._with_statistics,
                self.with_atoms, self._with_moved,
            )  # fmt: skip
            self.with_atoms, self._with_moved = self._with_moved, self.with_atoms
        self._steps.append(done)
        return moved

    def write(self, state: SurrogateState) -> None:
        """Compute atoms and statistics."""
        k, dtype = self.k, state.dictionary.dtype
        from_atoms, from_statistics, of_rows, keep = np.eye(k), np.zeros((k, k)), np.zeros((self.n_rows, 2 * k)), 1.0
        for done in reversed(self._steps):
            before = from_atoms @ done.moves
            from_statistics += before[:, k:]
            of_rows[done.part, :k] = done.codes @ from_statistics.T
            of_rows[done.part, k:] = keep * done.codes
            from_atoms, from_statistics, keep = before[:, :k], done.keep * from_statistics, keep * done.keep
        gemm, weights = address("gemm", dtype), of_rows.astype(dtype)
        of_atoms, of_statistics = (np.ascontiguousarray(part.T, dtype) for part in (from_atoms, from_statistics))

        def part(first: int, last: int) -> None:
            combine(
                gemm, self.starts, self.rows, self.columns.data, of_atoms, of_statistics, weights, dtype.type(keep),
                first, last, state.dictionary.T, state.data_code.T,
            )  # fmt: skip

        self.executor.split(part, n_tiles(state.dictionary.shape[1]))
        state.n_carried += 1
