"""What the algorithm remembers between steps, and what one batch adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from terafactor._threads import Executor, Part, in_turn, nothing
from terafactor._typing import Array, Indices
from terafactor.data import Batch, Rows
from terafactor.errors import DataError
from terafactor.kernels._blas import FLOAT64, address
from terafactor.kernels.accumulation import (
    absorb_code_sums,
    batch_weights,
    blend,
    blend_features,
    blend_product,
    blend_product_at,
    blend_sparse_product,
    code_sums,
    gather_features,
    gather_values,
    scatter_columns,
    scatter_features,
)
from terafactor.kernels.atoms import atom_sizes
from terafactor.problem import ElasticNet, Problem, Schedule
from terafactor.solver.lazy import LazyAtoms
from terafactor.solver.position import Position

SPARSE = 0.3
"""Share of nonzero codes below which skipping the zeros beats the dense matrix product."""

ARRAYS = ("dictionary", "data_code", "code_gram", "feature_counts", "sizes", "multipliers", "idle_rows")
NUMBERS = ("mean_penalty", "n_steps", "n_batches", "n_samples", "n_reseeded", "checks")


@dataclass
class SurrogateState:
    """All the arrays and counters of a fit. Matrices over features have the logical shape (k, p)."""

    dictionary: Array
    """Atoms (k, p), D in the paper."""

    data_code: Array
    """Weighted mean of code times value, per atom and feature (k, p), B in the paper."""

    code_gram: Array
    """Weighted mean of the products of codes (k, k), float64, C in the paper."""

    feature_counts: Indices
    """Samples in which each feature was observed (p,), E in the paper."""

    sizes: Array
    """What the ball bounds, for each atom over all features (k,), float64."""

    multipliers: Array
    """Where the search for each atom's projection starts (k,), float64."""

    idle_rows: Indices
    """Rows since each atom last had a nonzero code (k,)."""

    mean_penalty: float = 0.0
    """Weighted mean of the penalty of the codes."""

    n_steps: int = 0
    """Steps done; t in the paper."""

    n_batches: int = 0
    """Batches drawn, which numbers the masks."""

    n_samples: int = 0
    """Rows seen."""

    n_reseeded: int = 0
    """Atoms started anew because nothing used them."""

    checks: list[tuple[int, float]] = field(default_factory=list)
    """Rows seen and objective on a sample of rows at the last evaluations, when the fit may stop by them."""

    lazy: LazyAtoms | None = None
    """With exact projections: what rows of the dictionary wait for. See :meth:`current_dictionary`."""

    inner: Array | None = None
    """Inner products of atoms and statistics (2k, 2k), float64, where steps on sparse rows have carried them along."""

    n_carried: int = 0
    """Stretches of steps since they were computed from the features."""

    @classmethod
    def start(cls, dictionary: Array, problem: Problem, *, masked: bool) -> SurrogateState:
        """Return the state before the first step. dictionary (k, p), inside the constraint, becomes part of it.

        masked: the statistics will see some of the features at a time.
        """
        n_components, n_features = dictionary.shape
        order = "F" if masked else "C"  # see kernels/accumulation.py
        l1_weight, l2_weight, _, _ = problem.constraint.lower()
        atoms = dictionary
        if masked:
            atoms = np.empty((n_features, n_components), dictionary.dtype).T
            scatter_features(np.ascontiguousarray(dictionary), np.arange(n_features), 0, n_features, atoms.T)
        return cls(
            dictionary=atoms,
            data_code=np.zeros((n_components, n_features), atoms.dtype, order=order),  # type: ignore[call-overload]
            code_gram=np.zeros((n_components, n_components)),
            feature_counts=np.zeros(n_features, np.int64),
            sizes=atom_sizes(atoms, l1_weight, l2_weight),
            multipliers=np.zeros(n_components),
            idle_rows=np.zeros(n_components, np.int64),
        )

    def current_dictionary(self, executor: Executor | None = None) -> Array:
        """Return the dictionary (k, p) up to date: itself, or a copy while exact projections let rows wait."""
        return self.dictionary if self.lazy is None else self.lazy.current(self.dictionary, executor or Executor())

    def pause(self) -> Array:
        """Return the dictionary up to date, for use until the fit goes on from this state."""
        return self.dictionary if self.lazy is None else self.lazy.pause(self.dictionary, Executor())

    def position(self) -> Position:
        """Return all of it by name; the arrays are shared, not copied."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        arrays = {name: getattr(self, name) for name in ARRAYS}
        if self.lazy is not None:
            lazy = self.lazy.position()
            numbers |= {f"lazy.{name}": value for name, value in lazy.numbers.items()}
            arrays |= {f"lazy.{name}": value for name, value in lazy.arrays.items()}
        if self.inner is not None:
            numbers["n_carried"], arrays["inner"] = self.n_carried, self.inner
        return Position(numbers, arrays)

    @classmethod
    def at(cls, position: Position) -> SurrogateState:
        """Return the state of a position, refusing one whose parts do not belong together."""
        dictionary = position.array("dictionary", (None, None), np.float32, np.float64)
        k, p = dictionary.shape
        lazy, carried = position.part("lazy"), "inner" in position.arrays
        return cls(
            dictionary=dictionary,
            data_code=position.array("data_code", (k, p), dictionary.dtype),
            code_gram=position.array("code_gram", (k, k), np.float64),
            feature_counts=position.array("feature_counts", (p,), np.int64),
            sizes=position.array("sizes", (k,), np.float64),
            multipliers=position.array("multipliers", (k,), np.float64),
            idle_rows=position.array("idle_rows", (k,), np.int64),
            mean_penalty=position.number("mean_penalty", float),
            n_steps=position.number("n_steps"),
            n_batches=position.number("n_batches"),
            n_samples=position.number("n_samples"),
            n_reseeded=position.number("n_reseeded"),
            checks=[(int(rows), float(value)) for rows, value in position.numbers.get("checks", ())],
            lazy=LazyAtoms.at(lazy, (k, p)) if lazy.arrays else None,
            inner=position.array("inner", (2 * k, 2 * k), np.float64) if carried else None,
            n_carried=position.number("n_carried") if carried else 0,
        )

    def refresh_sizes(self, problem: Problem) -> None:
        """Compute ``sizes`` from scratch, against the drift of adding and subtracting parts of atoms."""
        self.inner = None
        l1_weight, l2_weight, _, _ = problem.constraint.lower()
        self.sizes = atom_sizes(self.dictionary, l1_weight, l2_weight)


@dataclass(frozen=True)
class CodeSums:
    """Sums over the rows of a batch of what their codes alone tell."""

    n_rows: int
    """Rows that have a code."""

    code_gram: Array
    """Sum of the products of codes (k, k), float64."""

    penalty: float
    """Sum of the penalties of the codes."""

    used: Array
    """Whether each atom has a nonzero code (k,)."""

    @classmethod
    def of_codes(cls, codes: Array, n_rows: int, penalty: ElasticNet, **others: Any) -> Self:
        """Return the sums over ``codes`` (b, k), of which ``n_rows`` are those of rows that have one."""
        n_components = codes.shape[1]
        gram, used = np.empty((n_components, n_components)), np.empty(n_components, np.bool_)
        absolute, squares = code_sums(address("syrk", FLOAT64), codes, np.empty(codes.shape), gram, used)
        total = float(penalty.of_sums(absolute, squares))
        return cls(n_rows=n_rows, code_gram=gram, penalty=total, used=used, **others)


@dataclass(frozen=True)
class Product:
    """``codes.T @ values`` (k, s), made some features at a time by the thread that needs them."""

    codes: Array
    """(b, k)."""

    rows: Rows
    """The values (b, s)."""

    out: Array
    """Where it goes (k, s), each atom contiguous."""

    @classmethod
    def of(cls, codes: Array, rows: Rows) -> Product:
        """Return a product that is not made yet."""
        return cls(codes, rows, np.empty((codes.shape[1], rows.matrix.shape[1]), rows.matrix.dtype))

    def fill(self) -> Part:
        """Return what makes it."""
        codes, values, out, dtype = self.codes, self.rows.together(), self.out, self.out.dtype
        gemm, zero = address("gemm", dtype), dtype.type(0)
        return lambda start, stop: blend_product(gemm, codes, values, zero, start, stop, out)

    def blend_into(self, matrix: Array, keep: Array, take: Array) -> Part:
        """Return what does ``matrix = keep * matrix + take * product``, without making the product if that can be.

        matrix (k, s), each atom contiguous; keep, take (s,).
        """
        codes, rows = self.codes, self.rows
        if np.count_nonzero(codes) < SPARSE * codes.size:
            numbers = np.arange(len(codes)) if rows.numbers is None else rows.numbers
            return lambda start, stop: blend_sparse_product(
                codes, rows.matrix, numbers, keep, take, start, stop, matrix
            )
        if np.ptp(keep) or np.ptp(take):
            return in_turn(self.fill(), partial(blend, matrix, self.out, keep, take))
        gemm, scaled, values = address("gemm", matrix.dtype), codes * take[0], rows.together()
        return lambda start, stop: blend_product(gemm, scaled, values, keep[0], start, stop, matrix)

    def blend_at(self, matrix: Array, columns: Indices, keep: Array, take: Array, out: Array) -> Part:
        """Return what does the same at some ``columns`` (s,), and puts them in ``out`` (k, s), each atom contiguous.

        matrix (k, p), each feature contiguous. The product is not made.
        """
        codes, values, gemm = self.codes, self.rows.together(), address("gemm", matrix.dtype)
        return lambda start, stop: blend_product_at(
            gemm, codes, values, matrix.T, columns, keep, take, start, stop, out
        )


@dataclass(frozen=True)
class BatchSums(CodeSums):
    """Sums over the rows of a batch, not normalised, so that those of several batches can be merged."""

    columns: Indices | None
    """Features of ``data_code``; None when all."""

    feature_rows: Indices
    """Rows in which each of these features is observed (s,)."""

    data_code: Array
    """Sum of code times value (k, s)."""

    @classmethod
    def of(cls, batch: Batch, codes: Array, penalty: ElasticNet) -> tuple[BatchSums, Product]:
        """Return the sums of one batch, over whole rows where the batch has them, and what ``data_code`` will be.

        codes (b, k).
        """
        columns, rows, feature_rows = batch.columns, Rows(batch.values), batch.feature_rows
        if batch.whole is not None:
            columns, rows, observed = None, batch.whole, batch.whole_observed
            feature_rows = None if observed is None else observed.sum(axis=0)
        n_rows = len(codes) if batch.observed is None else int(batch.observed.any(axis=1).sum())
        if feature_rows is None:
            feature_rows = np.full(rows.matrix.shape[1], n_rows)
        product = Product.of(codes, rows)
        others = {"columns": columns, "feature_rows": feature_rows, "data_code": product.out}
        return cls.of_codes(codes, n_rows, penalty, **others), product

    def merge(self, other: BatchSums) -> BatchSums:
        """Return the sums over the rows of both."""
        if self.columns is None and other.columns is None:
            columns, places = None, (slice(None), slice(None))
            width = len(self.feature_rows)
        elif self.columns is None or other.columns is None:
            raise DataError("sums over all features cannot be merged with sums over some of them")
        else:
            columns = np.union1d(self.columns, other.columns)
            places = (np.searchsorted(columns, self.columns), np.searchsorted(columns, other.columns))  # type: ignore[assignment]
            width = len(columns)
        feature_rows = np.zeros(width, np.int64)
        data_code = np.zeros((len(self.code_gram), width), self.data_code.dtype)
        for sums, place in zip((self, other), places, strict=True):
            feature_rows[place] += sums.feature_rows
            data_code[:, place] += sums.data_code
        return BatchSums(
            n_rows=self.n_rows + other.n_rows,
            columns=columns,
            feature_rows=feature_rows,
            code_gram=self.code_gram + other.code_gram,
            data_code=data_code,
            penalty=self.penalty + other.penalty,
            used=self.used | other.used,
        )


def observed(matrix: Array, columns: Indices | None) -> tuple[Array, Part]:
    """Return ``matrix[:, columns]`` with each row contiguous, and what fills it: the matrix when it is that already."""
    by_atom = matrix.flags.c_contiguous
    if columns is None and by_atom:
        return matrix, nothing
    chosen = np.arange(matrix.shape[1]) if columns is None else columns
    out = np.empty((len(matrix), len(chosen)), matrix.dtype)
    if by_atom:
        atoms = np.arange(len(matrix))
        return out, lambda start, stop: gather_values(matrix, atoms, chosen, start, stop, out)
    return out, lambda start, stop: gather_features(matrix.T, chosen, start, stop, out)


def put_back(values: Array, columns: Indices | None, matrix: Array) -> Part:
    """Return what does ``matrix[:, columns] = values``, nothing when ``values`` is the matrix itself."""
    if values is matrix:
        return nothing
    chosen = np.arange(matrix.shape[1]) if columns is None else columns
    if matrix.flags.c_contiguous:
        return lambda start, stop: scatter_columns(values, chosen, start, stop, matrix)
    return lambda start, stop: scatter_features(values, chosen, start, stop, matrix.T)


def absorb_codes(state: SurrogateState, sums: CodeSums, schedule: Schedule, n_visits: float) -> float:
    """Take in what codes alone tell; return the gain, what multiplies the share of the batch in the samples.

    n_visits: mean over features of the rows in which they were seen, this batch included. The weight of the batch's
    mean follows its share of the samples seen, ``min(1, gain * n_rows / n_samples)``, for the codes as for each
    feature: with batches of unequal size, anything else lets one of the two statistics forget faster than the other,
    and atoms shrink.
    """
    state.n_steps += 1
    state.n_samples += sums.n_rows
    gain = schedule.gain(state.n_steps, n_visits)
    share = min(1.0, gain * sums.n_rows / state.n_samples)
    absorb_code_sums(sums.code_gram, sums.used, sums.n_rows, share, state.code_gram, state.idle_rows)
    state.mean_penalty += share * (sums.penalty / sums.n_rows - state.mean_penalty)
    return gain


def absorb(
    state: SurrogateState,
    sums: BatchSums,
    schedule: Schedule,
    columns: Indices | None,
    executor: Executor,
    product: Product,
) -> tuple[Array, Part]:
    """Take the sums of a step into the statistics; return ``data_code`` at ``columns`` (k, s), each row contiguous.

    What fills it comes with it, and must be called before the statistics are used again. product: what
    ``sums.data_code`` will be.
    """
    n_visits = (int(state.feature_counts.sum()) + int(sums.feature_rows.sum())) / len(state.feature_counts)
    gain = absorb_codes(state, sums, schedule, n_visits)
    keep, take = np.empty((2, len(sums.feature_rows)), state.data_code.dtype)
    batch_weights(sums.feature_rows, sums.columns, state.feature_counts, gain, keep, take)
    by_atom = state.data_code.flags.c_contiguous
    if sums.columns is None and by_atom:
        whole = product.blend_into(state.data_code, keep, take)
        if columns is None:
            return state.data_code, whole
        executor.over_features(whole, len(keep))
        return observed(state.data_code, columns)
    chosen = np.arange(len(keep)) if sums.columns is None else sums.columns
    if sums.columns is columns and not by_atom:
        out = np.empty((len(state.data_code), len(chosen)), state.data_code.dtype)
        return out, product.blend_at(state.data_code, chosen, keep, take, out)
    executor.over_features(product.fill(), len(chosen))
    matrix, totals = state.data_code.T, np.ascontiguousarray(sums.data_code.T)
    executor.over_features(partial(blend_features, matrix, chosen, totals, keep, take), len(chosen))
    return observed(state.data_code, columns)
