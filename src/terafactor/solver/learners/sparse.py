r"""Groups of steps on sparse rows, at a cost that hardly depends on the number of features.

With whole rows and the l2 ball, a step reads features only through inner products, and computes only linear
combinations: statistics become :math:`B \leftarrow (1 - w) B + \tfrac{w}{b} A' X`, an atom moves to
:math:`d_j \leftarrow (b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}`, and its projection is a division. So in a group of
steps that starts from :math:`D_0, B_0` and reads m rows X, atoms and statistics stay in the subspace spanned by the
2k + m vectors :math:`Z = [D_0; B_0; X]`, and only their coefficients change:

.. math:: [D_t; B_t] = W_t' Z

The inner products of the rows with atoms and statistics, :math:`R = X D', S = X B'`, and the Gram matrix of
:math:`[D; B]` are updated with them. For :math:`B \leftarrow u B + A' X_b` (A the codes of batch b, scaled by w / b),

.. math:: D B' \leftarrow u D B' + R_b' A, \quad B B' \leftarrow u^2 B B' + u (S_b' A + A' S_b) + A' (X_b X_b') A,
          \quad S \leftarrow u S + X X_b' A

and for the sweep :math:`D \leftarrow P D + Q B`, R becomes :math:`R P' + S Q'`, and the Gram matrix is multiplied on
both sides. D and B themselves are computed at the end of the group, by one product over the features and one pass over
the stored entries. The weights of the rows are found backwards: if the last atoms are :math:`E D_t + F B_t` in terms of
those after step t, then with :math:`G = E Q_t + F` they are
:math:`E P_t D_{t-1} + u_t G B_{t-1} + G A_t' X_t` in terms of those before it.

A step on p features costs :math:`O(p k (b + k))` multiplications; here p enters only in :math:`O(p k^2)` per *group*.
Matrices of size k are in float64, inner products of rows in the precision of the data. The result is that of plain
steps, up to rounding.

Rounding can end a group early, in two cases; its remaining steps are plain ones. If the terms of a candidate cancel, as
for rarely used atoms in data without noise, its norm is lost in rounding: this sweep is done on the features. If the
Gram matrix of the atoms becomes indefinite, codes have no minimum: this step is done on the features.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._threads import TILE, n_tiles
from terafactor._typing import Array
from terafactor.data import BatchStream, MatrixSource, SparseBatches
from terafactor.kernels.blas import FLOAT64, address
from terafactor.kernels.solve import is_definite
from terafactor.kernels.sparse import (
    combine,
    gram_of_tiles,
    multiply_earlier_rows,
    multiply_stored,
    sweep_in_subspace,
    update_gram,
    update_rows,
)
from terafactor.kernels.statistics import add_rounding
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.coding import code_rows
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.maintain import Evidence, find_worst_rows, has_unused_atoms
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import State
from terafactor.solver.step import blend_codes, step

MOST_ROWS = 2048
"""Bound on the rows of a group: their inner products take 32 MB, and their numbers fit in 16 bits."""

PRECISION = 1e-5
"""Relative error up to which squared norms may be computed from inner products."""

PAIR_COST = 10
"""Time to multiply two entries that share a column, in multiplications of a matrix product."""

FREQUENT = 1 / 8
"""Share of rows that store a column above which it is multiplied as a dense column, not by pairs of entries."""


class SparseLearner(BatchLearner):
    """Runs groups of steps, and computes on features only at the end of each group."""

    def __init__(self, problem: Problem, options: SolverOptions, backend: Backend) -> None:
        super().__init__(problem, options, backend)
        self.order = "F"

    @classmethod
    def applies(cls, source: MatrixSource, problem: Problem, options: SolverOptions) -> bool:
        """Return whether rows are sparse and whole, and the ball is l2 without positivity: projecting is a division."""
        l1_weight, l2_weight, _, positive = problem.constraint.as_scalars()
        if problem.constraint.updates_atoms or options.reduction > 1 or options.missing:
            return False
        l2_ball = l1_weight == 0 and l2_weight == 2 and not positive  # its limit bounds the squared norm
        return source.is_sparse and options.batch_size <= MOST_ROWS and l2_ball

    def read(self, stream: BatchStream, start: int, stop: int) -> Generator[SparseBatches, None, None]:
        source, options = stream.source, self.options
        length = group_length(source.shape[1], options.n_components, options.batch_size, source.stored_share)
        return stream.sparse_batches(start, stop, length)

    def advance(self, state: State, data: SparseBatches) -> Evidence:
        codes = np.empty((len(data.rows), len(state.dictionary)), state.dictionary.dtype)
        n_done = 0
        if np.ptp(state.feature_counts) == 0:  # otherwise each feature weights the rows differently
            n_done = self._advance_in_subspace(state, data, codes)
        for part in data.parts[n_done:]:
            codes[part] = step(state, data.batch(part), self.problem, self.options.schedule, self.backend)
        last = data.parts[-1]
        worst = None
        if has_unused_atoms(state, self.options):
            worst = find_worst_rows(state, data.batch(last), codes[last], self.options)
        return Evidence(len(data.parts), data.n_bytes, worst, data.rows, codes)

    def _advance_in_subspace(self, state: State, data: SparseBatches, codes: Array) -> int:
        """Run steps until one needs the features; write their codes to ``codes`` (m, k), return their number, >= 1."""
        subspace, dtype = Subspace(state, data.values, self.backend), state.dictionary.dtype
        count, n_done, moved = int(state.feature_counts[0]), 0, True
        while moved and n_done < len(data.parts):
            gram = subspace.gram_of_atoms()
            if n_done and not is_definite(gram):
                break
            part = data.parts[n_done]
            products = subspace.with_atoms[part].astype(np.float64)
            found = code_rows(gram, products, self.problem, self.backend, 1.0).astype(dtype)
            count += len(found)
            state.n_steps += 1
            state.n_samples += len(found)
            gain = self.options.schedule.gain(state.n_steps, count)
            blend_codes(state, found, len(found), gain, self.problem)
            weight = min(1.0, gain * len(found) / count)
            codes[part] = found
            moved = subspace.step(
                part, 1 - weight, (weight / len(found)) * found, self.problem.constraint.as_scalars()[2], state
            )
            n_done += 1
        state.n_batches += n_done
        state.feature_counts += part.stop  # rows of all batches up to the last that was done
        subspace.write(state)
        if not moved:
            self.sweep(state)
        return n_done


def group_length(n_features: int, n_components: int, batch_size: int, stored_share: float) -> int:
    """Return the number of steps T in a group that balances its fixed cost with the cost that grows with T^2.

    The products over the features take ``3 p k^2`` multiplications. With batches of b rows, inner products of rows with
    atoms and statistics take ``T^2 b k (b / 2 + k)``, and those of rows ``T^2 b^2 / 2`` times the columns that two rows
    share.
    """
    p, k, b = n_features, n_components, batch_size
    growth = b * k * (b / 2 + k) + PAIR_COST * b**2 / 2 * p * stored_share**2
    return max(1, min(round(math.sqrt(3 * p * k**2 / growth)), MOST_ROWS // b))


@dataclass(frozen=True)
class Step:
    """What a step did: ``B = keep * B + codes' X`` for the rows of a part, then ``D = coefficients [D; B]``."""

    part: slice
    keep: float
    codes: Array
    """(b, k), float64."""

    coefficients: Array
    """(k, 2k), float64."""


class Subspace:
    """Atoms and statistics as combinations of those before a group of steps, and of its rows.

    Parameters
    ----------
    state : State
        Before the group, in order F; :meth:`write` changes it.
    rows : csr_array (m, p)
        The rows of the group.
    backend : Backend
    """

    gram: Array
    """Inner products of atoms and statistics (2k, 2k), float64."""

    with_atoms: Array
    """Inner products of rows with the atoms (m, k), up to date for rows not yet learned from."""

    def __init__(self, state: State, rows: Any, backend: Backend) -> None:
        self.backend = backend
        self.k, self.n_rows = len(state.dictionary), rows.shape[0]
        self.columns = rows.tocsc()
        self.starts, self.rows = self.columns.indptr.astype(np.uint64), self.columns.indices.astype(np.uint16)
        dictionary, data_code = state.dictionary.T, state.data_code.T
        self.gram = self._gram(dictionary, data_code)
        self.with_atoms, self._with_statistics, self._with_moved = np.zeros((3, self.n_rows, self.k), dictionary.dtype)
        self._with_earlier = np.zeros((self.n_rows, self.n_rows), dictionary.dtype)
        self._fill_inner_products(dictionary, data_code)
        self._steps: list[Step] = []

    def gram_of_atoms(self) -> Array:
        """Return the inner products of the atoms (k, k), regularized."""
        gram = self.gram[: self.k, : self.k].copy()
        add_rounding(gram, float(np.finfo(self.with_atoms.dtype).eps))
        return gram

    def _gram(self, dictionary: Array, data_code: Array) -> Array:
        """Return the inner products of atoms and statistics (2k, 2k), tiles added in float64."""
        dtype, n_parts = dictionary.dtype, n_tiles(len(dictionary))
        gemm, syrk = address("gemm", dtype), address("syrk", dtype)
        grams = np.zeros((n_parts, 2 * self.k, 2 * self.k), dtype)

        def work(first: int, last: int) -> None:
            gram_of_tiles(gemm, syrk, dictionary, data_code, first, last, grams)

        self.backend.split(work, n_parts)
        upper = np.triu(grams.sum(axis=0, dtype=np.float64))
        return upper + np.triu(upper, 1).T

    def _fill_inner_products(self, dictionary: Array, data_code: Array) -> None:
        """Compute inner products of rows with atoms, with statistics, and with earlier rows of the group.

        Columns that many rows store are multiplied as a dense matrix, the others by pairs of stored entries.
        """
        longest = int(FREQUENT * self.n_rows)
        frequent = np.flatnonzero(np.diff(self.columns.indptr) > longest)
        for start in range(0, len(frequent), TILE):
            part = self.columns[:, frequent[start : start + TILE]].toarray()
            self._with_earlier += np.tril(part @ part.T)
        self._with_earlier.flat[:: self.n_rows + 1] /= 2
        stored = self.starts, self.rows, self.columns.data

        def work(first: int, last: int) -> None:
            multiply_stored(*stored, dictionary, first, last, self.with_atoms)
            multiply_stored(*stored, data_code, first, last, self._with_statistics)
            multiply_earlier_rows(*stored, longest, first, last, self._with_earlier)

        self.backend.split(work, self.n_rows)

    def step(self, part: slice, keep: float, codes: Array, limit: float, state: State) -> bool:
        """``B = keep * B + codes' X`` for the rows ``part``, codes (b, k); then move every atom once, and project it.

        Of ``state``, ``code_gram`` is used, and ``sizes`` changes. Returns whether atoms were moved: they are not where
        their norms would be lost in rounding, and then this is the last step.
        """
        dtype, rows = codes.dtype, (part.start, part.stop)
        done = Step(part, keep, codes.astype(np.float64), np.empty((self.k, 2 * self.k)))
        precise = address("gemm", FLOAT64)
        update_gram(
            precise, keep, done.codes, *rows, self.with_atoms, self._with_statistics, self._with_earlier, self.gram
        )
        least = float(np.finfo(dtype).eps) / PRECISION
        moved = sweep_in_subspace(precise, self.gram, state.code_gram, limit, least, done.coefficients, state.sizes)
        if not moved:
            done.coefficients[:] = np.eye(self.k, 2 * self.k)
        elif part.stop < self.n_rows:
            update_rows(
                address("gemm", dtype), keep, codes, done.coefficients.astype(dtype), *rows, self._with_earlier,
                self._with_statistics, self.with_atoms, self._with_moved,
            )  # fmt: skip
            self.with_atoms, self._with_moved = self._with_moved, self.with_atoms
        self._steps.append(done)
        return bool(moved)

    def write(self, state: State) -> None:
        """Compute atoms and statistics on the features."""
        k, dtype = self.k, state.dictionary.dtype
        from_atoms, from_statistics, of_rows, keep = np.eye(k), np.zeros((k, k)), np.zeros((self.n_rows, 2 * k)), 1.0
        for done in reversed(self._steps):
            before = from_atoms @ done.coefficients
            from_statistics += before[:, k:]
            of_rows[done.part, :k] = done.codes @ from_statistics.T
            of_rows[done.part, k:] = keep * done.codes
            from_atoms, from_statistics, keep = before[:, :k], done.keep * from_statistics, keep * done.keep
        gemm, weights = address("gemm", dtype), of_rows.astype(dtype)
        of_atoms, of_statistics = (np.ascontiguousarray(part.T, dtype) for part in (from_atoms, from_statistics))

        def work(first: int, last: int) -> None:
            combine(
                gemm, self.starts, self.rows, self.columns.data, of_atoms, of_statistics, weights, dtype.type(keep),
                first, last, state.dictionary.T, state.data_code.T,
            )  # fmt: skip

        self.backend.split(work, n_tiles(state.dictionary.shape[1]))
