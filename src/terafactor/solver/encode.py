"""Codes and objective of all the rows of a source, for a given dictionary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.source import read_finite
from terafactor.data.stream import observe
from terafactor.problem import Problem
from terafactor.problem.problem import correlate

MAX_VALUES = 2**22
"""Values read at once."""

FINAL_TOLERANCE = 1e-6
"""Tolerance of codes that are handed out; those of a step only steer the atoms and may be rougher."""


def encode(
    source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1, *, missing: bool = False
) -> Array:
    """Return the codes (n, k) of every row on ``dictionary`` (k, p); zero for a row without any value.

    missing: whether NaN stands for a missing value.
    """
    codes = np.empty((source.shape[0], len(dictionary)), dictionary.dtype)
    with Executor(n_threads) as executor:
        for rows, _, _, part in encoded_parts(source, dictionary, problem, executor, missing):
            codes[rows] = part
    return codes


def objective(
    source: MatrixSource, dictionary: Array, problem: Problem, n_threads: int = 1, *, missing: bool = False
) -> float:
    """Return the mean of l(x) over the rows that have a value, in float64; NaN when none has."""
    total, n_rows = 0.0, 0
    with Executor(n_threads) as executor:
        for _, values, observed, codes in encoded_parts(source, dictionary, problem, executor, missing):
            losses = problem.losses(values, dictionary, codes, source.shape[1], executor, observed)
            total += float(losses.sum())
            n_rows += len(values) if observed is None else int(observed.any(axis=1).sum())
    return total / n_rows if n_rows else math.nan


def encoded_parts(
    source: MatrixSource, dictionary: Array, problem: Problem, executor: Executor, missing: bool
) -> Iterator[tuple[Indices, Array, Array | None, Array]]:
    """Yield rows, their values, where these are (None: everywhere) and their codes, a bounded number at a time."""
    n_rows, n_features = source.shape
    problem = replace(problem, code_tolerance=min(problem.code_tolerance, FINAL_TOLERANCE))
    at_once = max(1, MAX_VALUES // n_features)
    gram, _ = correlate(np.empty((0, n_features), dictionary.dtype), dictionary, executor)
    for start in range(0, n_rows, at_once):
        rows = np.arange(start, min(start + at_once, n_rows))
        values = read_finite(source, rows, allow_nan=missing)
        observed = observe(values)[0] if missing else None
        _, correlations = correlate(values, dictionary, executor, gram=False)
        if observed is None:
            codes = problem.encode_from(gram, correlations, 1.0, executor)
        else:
            codes = problem.encode_observed(gram, correlations, dictionary, observed, n_features, executor)
        yield rows, values, observed, codes.astype(dictionary.dtype, copy=False)
