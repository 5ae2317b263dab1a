"""Codes and objective of all the rows of a source, for a given dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.source import read_finite
from terafactor.problem import Problem
from terafactor.problem.problem import correlate

MAX_VALUES = 2**22
"""Values read at once."""

FINAL_TOLERANCE = 1e-6
"""Tolerance of codes that are handed out; those of a step only steer the atoms and may be rougher."""


def encode(source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1) -> Array:
    """Return the codes (n, k) of every row on ``dictionary`` (k, p)."""
    codes = np.empty((source.shape[0], len(dictionary)), dictionary.dtype)
    with Executor(n_threads) as executor:
        for rows, _, part in encoded_parts(source, dictionary, problem, executor):
            codes[rows] = part
    return codes


def objective(source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1) -> float:
    """Return the mean of l(x) over the rows, in float64."""
    total = 0.0
    with Executor(n_threads) as executor:
        for _, values, codes in encoded_parts(source, dictionary, problem, executor):
            total += float(problem.losses(values, dictionary, codes, 1.0, executor).sum())
    return total / source.shape[0]


def encoded_parts(
    source: MatrixSource, dictionary: Array, problem: Problem, executor: Executor
) -> Iterator[tuple[Indices, Array, Array]]:
    """Yield rows, their values and their codes, a bounded number at a time."""
    n_rows, n_features = source.shape
    problem = replace(problem, code_tolerance=min(problem.code_tolerance, FINAL_TOLERANCE))
    at_once = max(1, MAX_VALUES // n_features)
    gram, _ = correlate(np.empty((0, n_features), dictionary.dtype), dictionary, executor)
    for start in range(0, n_rows, at_once):
        rows = np.arange(start, min(start + at_once, n_rows))
        values = read_finite(source, rows)
        _, correlations = correlate(values, dictionary, executor, gram=False)
        codes = problem.encode_from(gram, correlations, 1.0, executor)
        yield rows, values, codes.astype(dictionary.dtype, copy=False)
