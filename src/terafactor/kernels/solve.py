"""Symmetric positive definite k x k systems: Cholesky factorization for codes, elimination for ratings."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, lstsq

from terafactor._typing import Array
from terafactor.kernels.jit import jit

SINGULAR = 1e-12
"""Ratio of squared pivots below which a system counts as singular."""

SMALLEST_PIVOT = 1e-7
"""Smallest pivot of the elimination, relative to the largest diagonal entry: smaller ones are rounding errors."""


def solve_rows(system: Array, rows: Array) -> Array:
    """Return the solution a of ``a @ system == row`` for each of the ``rows`` (b, k), all float64, by LAPACK.

    Of a singular system, return the solution of least norm; of one that is not finite, NaN.
    """
    factor, failed = lapack.dpotrf(system)
    pivots = factor.diagonal()
    if not failed and pivots.min() ** 2 >= SINGULAR * pivots.max() ** 2:
        return np.ascontiguousarray(lapack.dpotrs(factor, rows.T)[0].T)
    if not np.isfinite(system).all():
        return np.full(rows.shape, np.nan)
    return np.ascontiguousarray(lstsq(system, rows.T, cond=SINGULAR, check_finite=False)[0].T)


def is_definite(system: Array) -> bool:
    """Whether ``system`` (k, k), float64, is positive definite."""
    factor, failed = lapack.dpotrf(system)
    return not failed and bool((factor.diagonal() > 0).all())  # some libraries factorize NaN without an error


@jit
def cholesky(system, n):
    """``system[:n, :n] = np.linalg.cholesky(system[:n, :n])``, lower triangle, in place.

    Pivots that rounding makes too small are raised: the solution is then large in that direction, not infinite.
    """
    for j in range(n):
        row, size = system[j], system[j, j]
        for i in range(j):
            other, total = system[i], row[i]
            for h in range(i):
                total -= row[h] * other[h]
            row[i] = total / other[i]
        pivot = size
        for h in range(j):
            pivot -= row[h] * row[h]
        row[j] = np.sqrt(max(pivot, SINGULAR * size))


@jit
def solve_triangles(factor, right, n):
    """``right[:n] = np.linalg.solve(L @ L.T, right[:n])`` in place, with L from :func:`cholesky`."""
    for j in range(n):
        row = factor[j]
        for h in range(j):
            right[j] -= row[h] * right[h]
        right[j] /= row[j]
    for j in range(n - 1, -1, -1):
        row = factor[j]
        right[j] /= row[j]
        for h in range(j):
            right[h] -= right[j] * row[h]


@jit
def eliminate(system, n_components):
    """Factorize a symmetric system in place, right-hand side and inverse included.

    system (width, width) in/out. In: upper triangle of A (k, k), right-hand side in the last column. Out, with
    A = L D L': D on the diagonal, the inverse of L below it (without its unit diagonal), D L' above it, and the inverse
    of L times the right-hand side in the last column. Each update covers whole rows: the part below the diagonal, which
    A does not use, becomes the inverse.
    """
    largest = system[0, 0]
    for j in range(1, n_components):
        largest = max(largest, system[j, j])
    floor = max(largest * system.dtype.type(SMALLEST_PIVOT), system.dtype.type(1e-30))
    for j in range(n_components):
        pivot_row = system[j]
        pivot_row[j] = max(pivot_row[j], floor)
        inverse = system.dtype.type(1) / pivot_row[j]
        for i in range(j + 1, n_components):
            multiple, row = pivot_row[i] * inverse, system[i]
            for h in range(len(row)):
                row[h] -= multiple * pivot_row[h]
            row[j] = -multiple


@jit
def read_solution(system, n_components, scale, solution, variance):
    """Compute from an eliminated system the solution and ``scale`` times the diagonal of the inverse, (width,) out.

    The inverse of A is M' D^-1 M with M the inverse of L.
    """
    width, zero = system.shape[1], system.dtype.type(0)
    for h in range(width):
        solution[h] = zero
        variance[h] = zero
    for j in range(n_components):
        row = system[j]
        inverse = system.dtype.type(1) / row[j]
        right = row[width - 1]
        row[j] = 1
        for h in range(j + 1):
            weighted = inverse * row[h]
            solution[h] += weighted * right
            variance[h] += scale * weighted * row[h]
