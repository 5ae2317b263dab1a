"""Codes and objective of all rows of a source on a given dictionary."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.data.output import new_matrix, write_rows
from terafactor.problem import Penalty, Problem
from terafactor.solver.parts import Progress, encoded, reading


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
    >>> from terafactor.solver import encode
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
    >>> from terafactor.solver import encode_to
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


def encode_rows_into(
    scratch: str | Path,
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    parts: Iterable[range],
    n_threads: int = 1,
    *,
    missing: bool = False,
) -> None:
    """Write the codes of some rows into the file of a :func:`~terafactor.data.output.shared_matrix`.

    Several processes may write different parts at the same time; the bits are those of :func:`encode_to`. parts: some
    of the parts of :func:`~terafactor.solver.parts.row_tasks`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.data.output import shared_matrix
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver.parts import row_tasks
    >>> source, atoms, problem = open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with shared_matrix(f"{folder}/codes.npy", (3, 3), source.dtype) as scratch:
    ...         for parts in row_tasks(source, n_components=3):  # each in a process of its own
    ...             encode_rows_into(scratch, source, atoms, problem, parts)
    ...     np.load(f"{folder}/codes.npy").diagonal()
    array([0.75, 0.75, 0.75])
    """
    with reading(source, dictionary, n_threads, missing, parts) as (atoms, found):
        for part, codes in encoded(found, atoms, problem):
            write_rows(scratch, int(part.numbers[0]), codes)


def objective(
    source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1, *, missing: bool = False
) -> float:
    """Return the mean of l(x) over the rows that have a value, given ``dictionary`` (k, p); NaN if none has.

    Examples
    --------
    >>> from terafactor.solver import objective
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> objective(open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25))  # 0.25**2 / 2 + 0.25 * 0.75
    0.21875
    """
    return mean_loss(sum_losses(source, dictionary, problem, None, n_threads, missing=missing))


def sum_losses(
    source: MatrixSource,
    dictionary: Array,
    problem: Problem,
    parts: Iterable[range] | None = None,
    n_threads: int = 1,
    *,
    missing: bool = False,
) -> list[tuple[float, int]]:
    """Return for each part the sum of l(x) over the rows that have a value, and their number.

    parts: some of the parts of :func:`~terafactor.solver.parts.row_tasks`; None for all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver.parts import row_tasks
    >>> source, atoms, problem = open_source(np.eye(3)), np.eye(3), Problem(alpha=0.25)
    >>> tasks = row_tasks(source, n_components=3)
    >>> found = [sum_losses(source, atoms, problem, parts) for parts in tasks]  # each in a process of its own
    >>> mean_loss([each for task in found for each in task]) == objective(source, atoms, problem)
    True
    """
    with reading(source, dictionary, n_threads, missing, parts) as (atoms, found):
        losses = (part.losses(problem, atoms, codes) for part, codes in encoded(found, atoms, problem))
        return [(float(each.sum()), len(each)) for each in losses]


def mean_loss(sums: Iterable[tuple[float, int]]) -> float:
    """Return the objective from the sums of all parts, in the order of their rows; NaN if no row has a value."""
    total, n_rows = 0.0, 0
    for loss, count in sums:
        total += loss
        n_rows += count
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
