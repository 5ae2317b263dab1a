"""Codes and objective of all rows of a source on a given dictionary."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from scipy.sparse import csr_array, vstack

from terafactor._threads import TILE, n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.batch import observe
from terafactor.data.output import new_matrix
from terafactor.data.prefetch import DEPTH, prefetch
from terafactor.data.source import read_finite, read_stored_finite
from terafactor.problem import Penalty, Problem
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


def encode(
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    n_threads: int = 1,
    *,
    missing: bool = False,
    sparse: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Return the codes (n, k) of every row on ``dictionary`` (k, p); zero for rows without any value.

    missing: whether NaN marks missing values. sparse: return a ``csr_array`` instead of an array. progress: called
    with the number of rows of each part.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> encode(open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25))
    array([[0.75, 0.  , 0.  ],
           [0.  , 0.75, 0.  ],
           [0.  , 0.  , 0.75]])
    """
    codes = None if sparse else np.empty((source.shape[0], len(dictionary)), source.dtype)
    sparse_parts = []
    with reading(source, dictionary, n_threads, missing) as (atoms, parts):
        for part, found in encoded(parts, atoms, problem, progress):
            if codes is None:
                sparse_parts.append(csr_array(found))
            else:
                codes[part.numbers] = found
    return vstack(sparse_parts, format="csr") if codes is None else codes


def encode_to(
    out: str | Path,
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    n_threads: int = 1,
    *,
    missing: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write the codes to a new ``.npy`` file or Zarr array, a bounded number of rows at a time.

    dictionary (k, p) and the others: see :func:`encode`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encode_to(f"{folder}/codes.npy", open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25))
    ...     np.load(f"{folder}/codes.npy").diagonal()
    array([0.75, 0.75, 0.75])
    """
    shape = (source.shape[0], len(dictionary))
    with (
        new_matrix(out, shape, source.dtype) as write,
        reading(source, dictionary, n_threads, missing) as (atoms, parts),
    ):
        for _, codes in encoded(parts, atoms, problem, progress):
            write(codes)


def objective(
    source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1, *, missing: bool = False
) -> float:
    """Return the mean of l(x) over the rows that have a value, given ``dictionary`` (k, p); NaN if none has.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> objective(open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25))  # 0.25**2 / 2 + 0.25 * 0.75
    0.21875
    """
    total, n_rows = 0.0, 0
    with reading(source, dictionary, n_threads, missing) as (atoms, parts):
        for part, codes in encoded(parts, atoms, problem):
            losses = part.losses(problem, atoms, codes)
            total += float(losses.sum())
            n_rows += len(losses)
    return total / n_rows if n_rows else math.nan


def zero_strengths(
    source: MatrixSource, dictionary: Array, penalty: Penalty, n_threads: int = 1, *, missing: bool = False
) -> Array:
    """Return for each row the smallest strength of the penalty for which its code is zero (n,), float64.

    With missing values, the strength on the observed features is scaled up to all features. NaN if unknown.
    """
    strengths = np.full(source.shape[0], np.nan)
    with reading(source, dictionary, n_threads, missing) as (atoms, parts):
        for part in parts:
            found = penalty.zero_strength(part.products(atoms))
            if found is None:
                break
            share = 1.0 if part.observed is None else part.observed.mean(axis=1)
            strengths[part.numbers] = found / np.maximum(share, 1 / source.shape[1])
    return strengths


@contextlib.contextmanager
def reading(
    source: MatrixSource, dictionary: Array, n_threads: int, missing: bool
) -> Generator[tuple[Atoms, Iterator[Rows]], None, None]:
    """Yield the atoms in the precision of a source, and its rows in order, a bounded number at a time."""
    stored = source.is_sparse and not missing
    per_row = source.shape[1] * source.stored_share if stored else source.shape[1]
    rows_at_once = max(1, int(VALUES_PER_PART / max(per_row, len(dictionary))))
    tasks: Iterator[Callable[[], Rows]] = (
        partial(StoredRows.read, source, rows) if stored else partial(WholeRows.read, source, rows, missing)
        for rows in consecutive_parts(source, rows_at_once)
    )
    given = dictionary.astype(source.dtype, copy=False)
    in_order = given.flags.c_contiguous or given.flags.f_contiguous
    with (
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
