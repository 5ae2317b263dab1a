"""The parts in which the rows of a source are encoded: of bounded size, the same for any number of processes."""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.batch import observe
from terafactor.data.prefetch import DEPTH, prefetch
from terafactor.data.source import read_finite, read_stored_finite
from terafactor.problem import Problem
from terafactor.solver.backends import Backend
from terafactor.solver.coding import code_observed, code_rows
from terafactor.solver.objective import row_losses

VALUES_PER_PART = 2**22
"""Values read at once, or a few times as many if rows come in blocks."""

FINAL_TOLERANCE = 1e-6
"""Tolerance of codes that users see; those of a step only update the atoms and may be less accurate."""


@dataclass(frozen=True)
class Atoms:
    """A dictionary with its Gram matrix."""

    dictionary: Array
    """(k, p), in C order."""

    gram: Array
    """Inner products of the atoms (k, k), float64."""

    backend: Backend

    @classmethod
    def of(cls, dictionary: Array, source: MatrixSource, backend: Backend) -> Self:
        """Convert a dictionary to the precision of a source."""
        given = dictionary.astype(source.dtype, copy=False)
        in_order = given.flags.c_contiguous or given.flags.f_contiguous
        atoms = backend.gather(given, None) if in_order else np.ascontiguousarray(given)
        gram, _ = backend.correlate(np.empty((0, atoms.shape[1]), atoms.dtype), atoms)
        return cls(atoms, gram, backend)

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
        """Return the codes (b, k), float64."""
        products = self.products(atoms)
        if self.observed is None:
            return code_rows(atoms.gram, products, problem, atoms.backend, 1.0)
        return code_observed(
            atoms.gram, products, atoms.by_feature, self.observed, problem, atoms.backend, self.values.shape[1]
        )

    def losses(self, problem: Problem, atoms: Atoms, codes: Array) -> Array:
        """Return l(x) of the rows that have a value."""
        losses = row_losses(self.values, atoms.dictionary, codes, problem, atoms.backend, self.observed)
        return losses if self.observed is None else losses[self.observed.any(axis=1)]


@dataclass(frozen=True)
class StoredRows:
    """Consecutive rows of a sparse matrix."""

    numbers: Indices
    """(b,)."""

    values: Any
    """A ``csr_array`` (b, p)."""

    @classmethod
    def read(cls, source: MatrixSource, rows: range) -> Self:
        numbers = np.arange(rows.start, rows.stop)
        return cls(numbers, read_stored_finite(source, numbers))

    @property
    def observed(self) -> None:
        """Every row has a value at each feature."""

    def products(self, atoms: Atoms) -> Array:
        """Return the inner products of rows and atoms (b, k), float64."""
        products = np.empty((len(self.numbers), len(atoms.gram)))

        def multiply(first: int, last: int) -> None:
            products[first:last] = self.values[first:last] @ atoms.by_feature

        atoms.backend.split(multiply, len(products))
        return products

    def encode(self, problem: Problem, atoms: Atoms) -> Array:
        """Return the codes (b, k), float64."""
        return code_rows(atoms.gram, self.products(atoms), problem, atoms.backend, 1.0)

    def losses(self, problem: Problem, atoms: Atoms, codes: Array) -> Array:
        """Return l(x) of the rows by ``|x - a D|^2 = |x|^2 - 2 a (x D')' + a D D' a'``: rows stay sparse.

        In float32, a loss below a millionth of the sum of these terms is rounding error.
        """
        precise = codes.astype(np.float64)
        squares = self.values.power(2).sum(axis=1, dtype=np.float64)
        squares += np.einsum("ij,ij->i", precise @ atoms.gram - 2 * self.products(atoms), precise)
        return problem.losses(np.maximum(squares, 0.0), precise, 1.0)


def row_tasks(source: MatrixSource, n_components: int, *, missing: bool = False) -> list[list[range]]:
    """Return the parts in which rows are encoded, by the record in which they begin: one task per record.

    The bits of codes depend on the part that they are computed in. A part may end in a later record, if records are
    small; records in which none begins have no task.
    """
    starts = [rows.start for rows in source.records]
    parts = consecutive_parts(source, rows_at_once(source, n_components, _reads_stored(source, missing)))
    by_record = itertools.groupby(parts, key=lambda part: bisect_right(starts, part.start))
    return [list(group) for _, group in by_record]


def _reads_stored(source: MatrixSource, missing: bool) -> bool:
    return source.is_sparse and not missing


def row_parts(
    source: MatrixSource, atoms: Atoms, missing: bool, parts: Iterable[range] | None = None
) -> Generator[WholeRows | StoredRows, None, None]:
    """Yield the rows of a source in order, a bounded number at a time. parts: some of the parts; None for all."""
    stored = _reads_stored(source, missing)
    if parts is None:
        parts = consecutive_parts(source, rows_at_once(source, len(atoms.gram), stored))
    tasks: Iterator[Callable[[], WholeRows | StoredRows]] = (
        partial(StoredRows.read, source, rows) if stored else partial(WholeRows.read, source, rows, missing)
        for rows in parts
    )
    with contextlib.closing(prefetch(tasks, 0 if source.in_memory else DEPTH)) as found:
        yield from found


def encoded_parts(
    source: MatrixSource, atoms: Atoms, problem: Problem, missing: bool, parts: Iterable[range] | None = None
) -> Generator[tuple[WholeRows | StoredRows, Array], None, None]:
    """Yield the rows of a source in order with their codes (b, k), a bounded number at a time.

    parts: some of the parts of :func:`row_tasks`; None for all.
    """
    problem = replace(problem, code_tolerance=min(problem.code_tolerance, FINAL_TOLERANCE))
    with contextlib.closing(row_parts(source, atoms, missing, parts)) as found:
        for part in found:
            yield part, part.encode(problem, atoms).astype(atoms.dictionary.dtype, copy=False)


def rows_at_once(source: MatrixSource, n_components: int, stored: bool) -> int:
    """Return how many rows have about VALUES_PER_PART values, or codes. stored: whether only stored values are read."""
    per_row = source.shape[1] * source.stored_share if stored else source.shape[1]
    return max(1, int(VALUES_PER_PART / max(per_row, n_components)))


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
