"""The parts in which the rows of a source are encoded: of bounded size, the same for any number of processes."""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self, TypeAlias

import numpy as np

from terafactor._threads import TILE, n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.batch import observe
from terafactor.data.prefetch import DEPTH, prefetch
from terafactor.data.source import read_finite, read_stored_finite
from terafactor.kernels.jit import announcing_compilation
from terafactor.problem import Problem
from terafactor.solver.backends import Backend, make_backend
from terafactor.solver.coding import code_rows, encode_rows

VALUES_PER_PART = 2**22
"""Values read at once, or a few times as many if rows come in blocks."""

FINAL_TOLERANCE = 1e-6
"""Tolerance of codes that users see; those of a step only update the atoms and may be less accurate."""

Progress = Callable[[int], None]
"""Called with the number of rows of each finished part."""


@dataclass(frozen=True)
class Atoms:
    """A dictionary with its Gram matrix."""

    dictionary: Array
    """(k, p), in C order."""

    gram: Array
    """Inner products of the atoms (k, k), float64."""

    backend: Backend

    @cached_property
    def by_feature(self) -> Array:
        """The transposed dictionary (p, k), in C order."""
        return np.ascontiguousarray(self.dictionary.T)


@dataclass(frozen=True)
class WholeRows:
    """Consecutive rows as a dense array."""

    numbers: Indices
    """(b,)."""

    values: Array
    """Values (b, p), zero where missing."""

    observed: Array | None
    """True where there is a value (b, p); None if everywhere."""

    @classmethod
    def read(cls, source: MatrixSource, rows: range, missing: bool) -> Self:
        numbers = np.arange(rows.start, rows.stop)
        values = read_finite(source, numbers, allow_nan=missing)
        return cls(numbers, values, observe(values)[0] if missing else None)

    def products(self, atoms: Atoms) -> Array:
        """Return the inner products of rows and atoms (b, k), float64."""
        return atoms.backend.products(self.values, atoms.dictionary)

    def encode(self, problem: Problem, atoms: Atoms) -> Array:
        """Return the codes (b, k)."""
        p = self.values.shape[1]
        return encode_rows(self.values, atoms.dictionary, problem, atoms.backend, p, self.observed, atoms.gram)

    def losses(self, problem: Problem, atoms: Atoms, codes: Array) -> Array:
        """Return l(x) of the rows that have a value, float64."""
        squares = np.zeros((n_tiles(self.values.shape[1]), len(self.values)))

        def add(first: int, last: int) -> None:
            for tile in range(first, last):
                part = slice(tile * TILE, (tile + 1) * TILE)
                residual = self.values[:, part] - codes @ atoms.dictionary[:, part]
                if self.observed is not None:
                    residual *= self.observed[:, part]
                squares[tile] = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)

        atoms.backend.split(add, len(squares))
        if self.observed is None:
            return problem.losses(squares.sum(axis=0), codes, 1.0)
        counts = self.observed.sum(axis=1)
        losses = problem.losses(squares.sum(axis=0), codes, np.maximum(counts, 1) / self.values.shape[1])
        return losses[counts > 0]


@dataclass(frozen=True)
class StoredRows:
    """Consecutive rows of a sparse matrix."""

    numbers: Indices
    """(b,)."""

    values: Any
    """A ``csr_array`` (b, p)."""

    observed: None = None
    """Every row has a value at each feature."""

    @classmethod
    def read(cls, source: MatrixSource, rows: range) -> Self:
        numbers = np.arange(rows.start, rows.stop)
        return cls(numbers, read_stored_finite(source, numbers))

    def products(self, atoms: Atoms) -> Array:
        """Return the inner products of rows and atoms (b, k), float64."""
        products = np.empty((len(self.numbers), len(atoms.gram)))

        def multiply(first: int, last: int) -> None:
            products[first:last] = self.values[first:last] @ atoms.by_feature

        atoms.backend.split(multiply, len(products))
        return products

    def encode(self, problem: Problem, atoms: Atoms) -> Array:
        """Return the codes (b, k)."""
        codes = code_rows(atoms.gram, self.products(atoms), problem, atoms.backend, 1.0)
        return codes.astype(atoms.dictionary.dtype, copy=False)

    def losses(self, problem: Problem, atoms: Atoms, codes: Array) -> Array:
        """Return l(x) of the rows by ``|x - a D|^2 = |x|^2 - 2 a (x D')' + a D D' a'``: rows stay sparse.

        In float32, a loss below a millionth of the sum of these terms is rounding error.
        """
        precise = codes.astype(np.float64)
        squares = self.values.power(2).sum(axis=1, dtype=np.float64)
        squares += np.einsum("ij,ij->i", precise @ atoms.gram - 2 * self.products(atoms), precise)
        return problem.losses(np.maximum(squares, 0.0), precise, 1.0)


Rows: TypeAlias = WholeRows | StoredRows


@contextlib.contextmanager
def reading(
    source: MatrixSource, dictionary: Array, n_threads: int, missing: bool, chosen: Iterable[range] | None = None
) -> Generator[tuple[Atoms, Iterator[Rows]], None, None]:
    """Yield the atoms in the precision of a source, and its rows in order, a bounded number at a time.

    chosen: some of the parts of :func:`row_tasks`; None for all rows.
    """
    stored = source.is_sparse and not missing
    tasks: Iterator[Callable[[], Rows]] = (
        partial(StoredRows.read, source, rows) if stored else partial(WholeRows.read, source, rows, missing)
        for rows in (all_parts(source, len(dictionary), missing) if chosen is None else chosen)
    )
    given = dictionary.astype(source.dtype, copy=False)
    in_order = given.flags.c_contiguous or given.flags.f_contiguous
    with (
        announcing_compilation(f"encoding {source.dtype.name} rows"),
        make_backend(n_threads) as backend,
        contextlib.closing(prefetch(tasks, 0 if source.in_memory else DEPTH)) as parts,
    ):
        atoms = backend.gather(given, None) if in_order else np.ascontiguousarray(given)
        gram, _ = backend.correlate(np.empty((0, atoms.shape[1]), atoms.dtype), atoms)
        yield Atoms(atoms, gram, backend), parts


def encoded(
    parts: Iterable[Rows], atoms: Atoms, problem: Problem, progress: Progress | None = None
) -> Iterator[tuple[Rows, Array]]:
    """Yield each part with its codes (b, k), in the tolerance of codes that users see."""
    problem = replace(problem, code_tolerance=min(problem.code_tolerance, FINAL_TOLERANCE))
    for part in parts:
        codes = part.encode(problem, atoms)
        yield part, codes
        if progress is not None:
            progress(len(codes))


def row_tasks(source: MatrixSource, n_components: int, *, missing: bool = False) -> list[list[range]]:
    """Return the parts in which rows are encoded, grouped by the record that holds their first row.

    Each group is a task. The bits of codes depend on the part in which they are computed, so small records may share a
    part; a record in which no part begins has no task.
    """
    starts = [rows.start for rows in source.records]
    parts = all_parts(source, n_components, missing)
    by_record = itertools.groupby(parts, key=lambda part: bisect_right(starts, part.start))
    return [list(group) for _, group in by_record]


def all_parts(source: MatrixSource, n_components: int, missing: bool) -> Iterator[range]:
    """Split all rows, in order, into parts of about VALUES_PER_PART values, or codes."""
    stored = source.is_sparse and not missing
    per_row = source.shape[1] * source.stored_share if stored else source.shape[1]
    return consecutive_parts(source, max(1, int(VALUES_PER_PART / max(per_row, n_components))))


def consecutive_parts(source: MatrixSource, at_once: int) -> Iterator[range]:
    """Split all rows, in order, into parts of about ``at_once`` rows that do not split blocks of rows."""
    start = stop = 0
    for record, rows in enumerate(source.records):
        blocks = source.row_blocks(record)
        if blocks is None or max(map(len, blocks), default=0) > 4 * at_once:
            blocks = [range(at, min(at + at_once, rows.stop)) for at in range(rows.start, rows.stop, at_once)]
        for block in blocks:
            if stop > start and block.stop - start > at_once:
                yield range(start, stop)
                start = stop
            stop = block.stop
    yield range(start, stop)
