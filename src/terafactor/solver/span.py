r"""Several steps at once on rows that are mostly zeros, at a cost that hardly depends on the number of features.

With whole rows and the l2 ball, a step needs values of features for nothing but inner products, and all it makes are
linear combinations: statistics become :math:`B \leftarrow (1 - w) B + \tfrac{w}{b} A' X`, the move of an atom is
:math:`d_j \leftarrow (b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}`, and its projection divides it by a number. So over a
stretch of steps that begins with :math:`D_0, B_0` and reads m rows X, atoms and statistics stay in the span of the
2k + m vectors :math:`Z = [D_0; B_0; X]`, and their coefficients are all that changes:

.. math:: [D_t; B_t] = W_t' Z

From the inner products ``X Z'``, known once the rows are, follow those of a batch with the atoms and statistics of its
time, ``X_b Z' W``, hence its codes. The Gram matrix of :math:`[D_t; B_t]` is carried along, since everything that is
added to it is known: for :math:`B \leftarrow u B + A' X_b` (A scaled by w / b), with :math:`R = X_b D'`,
:math:`S = X_b B'` before,

.. math:: D B' \leftarrow u D B' + R' A, \qquad B B' \leftarrow u^2 B B' + u (S' A + A' S) + A' (X_b X_b') A

and for the sweep :math:`D \leftarrow M [D; B]` it is multiplied by M on both sides. Only at the end of the stretch are
D and B computed, by one product over the features and one pass over the entries that are stored.

A step on p features costs :math:`O(p k (b + k))` multiplications; here p enters only in :math:`O(p k^2)` per *stretch*.
Matrices of size k are in float64, coefficients and inner products of rows in the precision of the data. The result is
that of plain steps, up to rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from terafactor._threads import TILE, Executor, n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import Batch, MatrixSource, Stretch
from terafactor.kernels._blas import address
from terafactor.kernels.atoms import least_curvature
from terafactor.kernels.span import (
    combine,
    inner_products_of_features,
    multiply_earlier_rows,
    multiply_stored,
    sweep_in_span,
)
from terafactor.problem import Problem
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import CodeSums, SurrogateState, absorb_codes
from terafactor.solver.step import reseed_unused

MOST_ROWS = 2048
"""Rows in a stretch, at the most: their inner products take 32 MB."""

FREQUENT = 1 / 8
"""Share of rows that store a column above which its products are a matrix product, rather than those of pairs."""


def is_spanned(source: MatrixSource, problem: Problem, options: SolverOptions, state: SurrogateState) -> bool:
    """Whether steps can be done in a span: few sparse whole rows, the l2 ball, all features seen equally often."""
    l1_weight, _, _, positive = problem.constraint.lower()
    whole = options.reduction == 1 and not options.missing
    sparse = whole and source.is_sparse and options.batch_size <= MOST_ROWS
    return sparse and l1_weight == 0 and not positive and np.ptp(state.feature_counts) == 0


def stretch_length(n_features: int, n_components: int, batch_size: int) -> int:
    """Return how many steps make a stretch: where its end costs as much as the products that grow with its rows.

    These are ``4 p k^2`` multiplications per stretch and, for T steps of b rows, ``T^2 b k (b + k)``.
    """
    balance = math.sqrt(4 * n_features * n_components / (batch_size * (batch_size + n_components)))
    return max(1, min(round(balance), MOST_ROWS // batch_size))


def learn_stretch(
    state: SurrogateState, stretch: Stretch, problem: Problem, options: SolverOptions, executor: Executor
) -> Array:
    """Do one step for each batch of a stretch. Changes ``state`` only; returns the codes of all rows (m, k)."""
    k, dtype = len(state.dictionary), state.dictionary.dtype
    span = Span(state, stretch.values, executor)
    codes, used = np.empty((len(stretch.rows), k), dtype), np.zeros(k, np.bool_)
    count = int(state.feature_counts[0])
    _, _, limit, _ = problem.constraint.lower()
    for part in stretch.parts:
        inner = span.inner_products(part)
        found = problem.encode_from(span.gram[:k, :k].copy(), inner[:, :k].copy(), 1.0, executor).astype(dtype)
        sums = CodeSums.of_codes(found, len(found), problem.penalty)
        gain = absorb_codes(state, sums, options.schedule.weight(state.n_steps + 1))
        count += len(found)
        weight = min(1.0, gain * len(found) / count)
        span.absorb(part, inner, 1 - weight, (weight / len(found)) * found.astype(np.float64))
        span.sweep(part.stop, state.code_gram, limit, state.sizes)
        codes[part], used = found, sums.used
    state.n_batches += len(stretch.parts)
    state.feature_counts += len(stretch.rows)
    span.write(state)
    if state.idle_rows.max() >= options.reseed_after and used.any():
        last = stretch.parts[-1]
        batch = Batch(stretch.rows[last], None, stretch.values[last].toarray())
        reseed_unused(state, batch, codes[last], state.dictionary, problem, options.reseed_after)
    return codes


class Span:
    """Atoms and statistics as combinations of what a stretch began with and of its rows: Z, W in the module's words."""

    def __init__(self, state: SurrogateState, rows: Any, executor: Executor) -> None:
        state.dictionary, state.data_code = np.asfortranarray(state.dictionary), np.asfortranarray(state.data_code)
        self.executor = executor
        self.k, self.n_rows = len(state.dictionary), rows.shape[0]
        self.columns = rows.tocsc()
        self.starts, self.rows = self.columns.indptr.astype(np.uint64), self.columns.indices.astype(np.uint32)
        self.gram = self._gram(state.dictionary.T, state.data_code.T)
        self.with_start, self.with_earlier = self._inner(state.dictionary.T, state.data_code.T)
        self.of_start = np.eye(2 * self.k, dtype=state.dictionary.dtype)
        self.of_rows = np.zeros((self.n_rows, 2 * self.k), state.dictionary.dtype)

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

    def _inner(self, dictionary: Array, data_code: Array) -> tuple[Array, Array]:
        """Return ``X [D; B]'`` (m, 2k) and ``X X'`` (m, m), of which half the diagonal and nothing above it."""
        with_start = np.zeros((self.n_rows, 2 * self.k), dictionary.dtype)
        longest = int(FREQUENT * self.n_rows)
        frequent = np.flatnonzero(np.diff(self.columns.indptr) > longest)
        with_earlier = self._inner_in_columns(frequent)
        stored = self.starts, self.rows, self.columns.data

        def fill(first: int, last: int) -> None:
            multiply_stored(*stored, dictionary, first, last, 0, with_start)
            multiply_stored(*stored, data_code, first, last, self.k, with_start)
            multiply_earlier_rows(*stored, longest, first, last, with_earlier)

        self.executor.split(fill, self.n_rows)
        return with_start, with_earlier

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

    def inner_products(self, part: slice) -> Array:
        """Return those of the rows ``part`` with the atoms and statistics of now (b, 2k), float64."""
        earlier = slice(0, part.start)
        inner = self.with_start[part] @ self.of_start + self.with_earlier[part, earlier] @ self.of_rows[earlier]
        return inner.astype(np.float64)

    def absorb(self, part: slice, inner: Array, keep: float, codes: Array) -> None:
        """``B = keep * B + codes' X`` for the rows ``part``. inner: :meth:`inner_products` of them; codes (b, k)."""
        k = self.k
        self.of_start[:, k:] *= keep
        self.of_rows[: part.start, k:] *= keep
        self.of_rows[part, k:] = codes
        added = inner.T @ codes  # [D; B] (codes' X)'
        half = keep * added[k:] + codes.T @ (self.with_earlier[part, part] @ codes)
        self.gram[:k, k:] = keep * self.gram[:k, k:] + added[:k]
        self.gram[k:, :k] = self.gram[:k, k:].T
        self.gram[k:, k:] = keep**2 * self.gram[k:, k:] + half + half.T

    def sweep(self, n_known: int, code_gram: Array, limit: float, sizes: Array) -> None:
        """Move every atom once and project it: new coefficients of the first rows, new Gram matrix.

        n_known: rows that were taken in; limit, sizes: of squared norms.
        """
        k, moves, products = self.k, *np.empty((2, self.k, 2 * self.k))
        sweep_in_span(self.gram, code_gram, least_curvature(code_gram), limit, moves, products, sizes)
        turned = moves.T.astype(self.of_start.dtype)
        for coefficients in (self.of_start, self.of_rows[:n_known]):
            coefficients[:, :k] = coefficients @ turned
        self.gram[:k, :k] = products @ moves.T
        self.gram[:k, k:] = products[:, k:]
        self.gram[k:, :k] = products[:, k:].T

    def write(self, state: SurrogateState) -> None:
        """Compute atoms and statistics from their coefficients."""
        k, gemm = self.k, address("gemm", state.dictionary.dtype)
        from_atoms, from_statistics = (
            np.ascontiguousarray(self.of_start[half, :k]) for half in (slice(k), slice(k, None))
        )
        keep = self.of_start[k, k]

        def part(first: int, last: int) -> None:
            combine(
                gemm, self.starts, self.rows, self.columns.data, from_atoms, from_statistics, self.of_rows, keep,
                first, last, state.dictionary.T, state.data_code.T,
            )  # fmt: skip

        self.executor.split(part, n_tiles(state.dictionary.shape[1]))
