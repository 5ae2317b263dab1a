"""Codes of rows on atoms: the backend computes inner products, the penalty finds codes, threads share the rows."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array
from terafactor.problem import Problem
from terafactor.solver.backends import Backend

ONE_THREAD_PRODUCTS = 2**18
"""Rows times squared number of atoms below which one thread is faster than several."""

SHARED_GRAM_ROWS = 64
"""Fewest rows per block: the rows of a block share the factorization of the Gram matrix. Blocks, and so the bits of
codes, do not depend on the number of threads."""

MOST_GRAMS = 2**16
"""Most entries of the Gram matrices of a block if each row has its own: small, so that threads can share blocks."""


def encode_rows(
    values: Array,
    atoms: Array,
    problem: Problem,
    backend: Backend,
    n_features: int,
    observed: Array | None = None,
    gram: Array | None = None,
) -> Array:
    """Return the codes (b, k) of the rows ``values`` (b, s) on ``atoms`` (k, s), in the type of the atoms.

    n_features: p, of which s are given. observed (b, s): True where there is a value (values are zero elsewhere);
    None if there is one everywhere. gram (k, k): that of the atoms, if known.
    """
    gram, products = backend.correlate(values, atoms) if gram is None else (gram, backend.products(values, atoms))
    if observed is None:
        codes = code_rows(gram, products, problem, backend, values.shape[1] / n_features)
    else:
        features = np.empty(atoms.T.shape, atoms.dtype)
        backend.scatter(atoms, None, features.T)
        codes = code_observed(gram, products, features, observed, problem, backend, n_features)
    return codes.astype(atoms.dtype, copy=False)


def code_rows(gram: Array, products: Array, problem: Problem, backend: Backend, share: float) -> Array:
    """Return the codes (b, k), float64, of rows that share a Gram matrix (k, k). share: s / p."""
    n_rows, k = products.shape
    if n_rows * k * k <= ONE_THREAD_PRODUCTS:
        return problem.codes(gram, products, share)
    codes, size = np.empty(products.shape), max(SHARED_GRAM_ROWS, k)

    def work(first: int, last: int) -> None:
        for block in range(first, last):
            rows = slice(block * size, (block + 1) * size)
            codes[rows] = problem.codes(gram, products[rows], share)

    backend.split(work, -(-n_rows // size))
    return codes


def code_observed(
    gram: Array, products: Array, features: Array, observed: Array, problem: Problem, backend: Backend, n_features: int
) -> Array:
    """Return the codes (b, k), float64, of rows that each observe some of the features; zero if none.

    gram (k, k), products (b, k): over all features, with zeros for missing values; features (s, k): the transposed
    atoms; observed (b, s).
    """
    codes, size = np.zeros(products.shape), max(1, MOST_GRAMS // gram.size)
    counts = np.array([np.count_nonzero(row) for row in observed])

    def work(first: int, last: int) -> None:
        for block in range(first, last):
            rows = np.flatnonzero(counts[block * size : (block + 1) * size]) + block * size
            if len(rows):
                grams = backend.row_grams(features, observed[rows], gram)
                codes[rows] = problem.codes(grams, products[rows], counts[rows] / n_features)

    backend.split(work, -(-len(codes) // size))
    return codes
