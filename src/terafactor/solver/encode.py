"""Codes and objective of all the rows of a source, for a given dictionary."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.output import new_matrix
from terafactor.data.read_ahead import read_ahead
from terafactor.data.source import read_finite
from terafactor.data.stream import observe
from terafactor.kernels.accumulation import gather_features
from terafactor.problem import Problem
from terafactor.problem.problem import correlate

MAX_VALUES = 2**22
"""Values read at once, or a few times as many where rows come in blocks."""

FINAL_TOLERANCE = 1e-6
"""Tolerance of codes that are handed out; those of a step only steer the atoms and may be rougher."""

Progress = Callable[[int], None]
"""Called with a number of rows that are done."""


def _ignore(n_rows: int) -> None:
    pass


@dataclass(frozen=True)
class EncodedRows:
    """Some rows that follow each other, and their codes."""

    rows: Indices
    """Their numbers (b,)."""

    values: Array
    """What was read (b, p); zero where missing."""

    observed: Array | None
    """Where there is a value (b, p); None when everywhere."""

    codes: Array
    """(b, k)."""


def encode(
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    n_threads: int = 1,
    *,
    missing: bool = False,
    progress: Progress = _ignore,
) -> Array:
    """Return the codes (n, k) of every row on ``dictionary`` (k, p); zero for a row without any value.

    missing: whether NaN stands for a missing value. progress: called with the number of rows of each part.
    """
    codes = np.empty((source.shape[0], len(dictionary)), dictionary.dtype)
    with (
        Executor(n_threads) as executor,
        contextlib.closing(encoded_parts(source, dictionary, problem, executor, missing)) as parts,
    ):
        for part in parts:
            codes[part.rows] = part.codes
            progress(len(part.rows))
    return codes


def encode_to(
    out: str | Path,
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    n_threads: int = 1,
    *,
    missing: bool = False,
    progress: Progress = _ignore,
) -> None:
    """Write the codes to a new ``.npy`` file or Zarr array, a bounded number of rows at a time; see :func:`encode`."""
    shape = (source.shape[0], len(dictionary))
    with (
        new_matrix(out, shape, dictionary.dtype) as write,
        Executor(n_threads) as executor,
        contextlib.closing(encoded_parts(source, dictionary, problem, executor, missing)) as parts,
    ):
        for part in parts:
            write(part.codes)
            progress(len(part.rows))


def objective(
    source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1, *, missing: bool = False
) -> float:
    """Return the mean of l(x) over the rows that have a value, in float64; NaN when none has."""
    total, n_rows = 0.0, 0
    with (
        Executor(n_threads) as executor,
        contextlib.closing(encoded_parts(source, dictionary, problem, executor, missing)) as parts,
    ):
        for part in parts:
            losses = problem.losses(part.values, dictionary, part.codes, source.shape[1], executor, part.observed)
            total += float(losses.sum())
            n_rows += len(part.values) if part.observed is None else int(part.observed.any(axis=1).sum())
    return total / n_rows if n_rows else math.nan


def encoded_parts(
    source: MatrixSource, dictionary: Array, problem: Problem, executor: Executor, missing: bool
) -> Generator[EncodedRows, None, None]:
    """Yield the rows of a source in their order with their codes, a bounded number at a time."""
    n_features = source.shape[1]
    problem = replace(problem, code_tolerance=min(problem.code_tolerance, FINAL_TOLERANCE))
    dictionary = contiguous_atoms(dictionary, executor)
    gram, _ = correlate(np.empty((0, n_features), dictionary.dtype), dictionary, executor)
    tasks = (partial(_read, source, rows, missing) for rows in consecutive_parts(source))
    with contextlib.closing(read_ahead(tasks, in_memory=source.in_memory)) as parts:
        for rows, values, observed in parts:
            _, correlations = correlate(values, dictionary, executor, gram=False)
            if observed is None:
                codes = problem.encode_from(gram, correlations, 1.0, executor)
            else:
                codes = problem.encode_observed(gram, correlations, dictionary, observed, n_features, executor)
            yield EncodedRows(rows, values, observed, codes.astype(dictionary.dtype, copy=False))


def contiguous_atoms(dictionary: Array, executor: Executor) -> Array:
    """Return the dictionary (k, p) with each atom contiguous, as kernels walk along atoms: itself or a copy."""
    if dictionary.flags.c_contiguous or not dictionary.flags.f_contiguous:
        return np.ascontiguousarray(dictionary)
    atoms, columns = np.empty(dictionary.shape, dictionary.dtype), np.arange(dictionary.shape[1])
    executor.split(lambda start, stop: gather_features(dictionary.T, columns, start, stop, atoms), len(columns))
    return atoms


def consecutive_parts(source: MatrixSource) -> Iterator[range]:
    """Cut all rows, in their order, into parts of some MAX_VALUES values that leave blocks of rows whole."""
    at_once = max(1, MAX_VALUES // source.shape[1])
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


def _read(source: MatrixSource, rows: range, missing: bool) -> tuple[Indices, Array, Array | None]:
    numbers = np.arange(rows.start, rows.stop)
    values = read_finite(source, numbers, allow_nan=missing)
    return numbers, values, observe(values)[0] if missing else None
