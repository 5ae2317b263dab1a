r"""Codes of rows on a dictionary: :math:`\min_a \tfrac12 |x - a D|^2 + l_1 |a|_1 + \tfrac{l_2}{2} |a|^2`.

Both solvers see the data only through the Gram matrix ``D D'`` and the correlations ``x D'``. They work in float64
whatever the data: the matrices are k x k, so precision is free here.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from terafactor._typing import Array
from terafactor.kernels._jit import jit

SINGULAR = 1e-12
"""Ratio of eigenvalues (or squared pivots) below which a Gram matrix counts as singular."""

ROUNDING = 4
"""Error of a Gram matrix, at the most, in units of its norm times the precision of the data; twice what was met."""

ALIKE = 1e-3
"""Ratio of squared pivots below which atoms resemble each other too much to tell the signs of their codes."""

PATIENCE = 64
"""Passes of coordinate descent after which the nonzero codes are solved for at once."""

SHARE = 4
"""Multiplications in these solutions over those in passes, at the most."""


def ridge_codes(gram: Array, correlations: Array, l2: float) -> Array:
    """Return the codes without an l1 term, by one Cholesky factorization for all rows.

    gram (k, k), correlations (b, k), both float64. A singular system (l2 = 0 and dependent atoms, or an atom without
    observed entries) gets its solution of least norm.
    """
    system = _with_ridge(gram, l2)
    factor, codes, failed = linalg.lapack.dposv(system, correlations.T, lower=True)
    # A factorization can pass on a matrix that is singular to working precision, with codes that blow up.
    if failed or _nearly_singular(factor, SINGULAR):
        codes = linalg.lstsq(system, correlations.T, cond=SINGULAR, check_finite=False)[0]
    return np.ascontiguousarray(codes.T)


def dense_start(gram: Array, correlations: Array, l1: float, l2: float) -> Array:
    """Return where coordinate descent finds few codes to change, when few of them are zero. Arguments as above.

    Were the signs s of all codes known, and none zero, codes would solve ``a (D D' + l2) = x D' - l1 s``. Here s are
    the signs without an l1 term, and codes that turn out to have another sign are set to zero. Atoms that resemble each
    other would have codes of either sign and any size: there the start is zero.
    """
    factor, codes, failed = linalg.lapack.dposv(_with_ridge(gram, l2), correlations.T, lower=True)
    if failed or _nearly_singular(factor, ALIKE):
        return np.zeros(correlations.shape)
    signs = np.sign(codes)
    codes, _ = linalg.lapack.dpotrs(factor, correlations.T - l1 * signs, lower=True)
    return np.ascontiguousarray(np.where(codes * signs > 0, codes, 0.0).T)


def is_definite(gram: Array, l2: float) -> bool:
    """Whether ``gram + l2`` (k, k) is positive definite, so that every row has codes that are optimal."""
    _, failed = linalg.lapack.dpotrf(_with_ridge(gram, l2), lower=True)
    return not failed


def _with_ridge(gram: Array, l2: float) -> Array:
    system = gram.copy()
    system.reshape(-1)[:: len(gram) + 1] += l2
    return system


def _nearly_singular(factor: Array, ratio: float) -> bool:
    pivots = factor.diagonal()  # all positive, or the factorization would have failed
    return bool(pivots.min() ** 2 < ratio * pivots.max() ** 2)


@jit
def least_ridge(gram, precision):
    """Return the l2 term below which rounding decides, for a Gram matrix (k, k) of that relative precision.

    Where atoms depend on each other, as in data without noise, some combination v of them is zero, and so should be
    ``v' D D' v`` and ``x D' v``. Both are rounding errors of either sign: without a ridge that outweighs the first,
    the objective falls along v without end, unless an l1 term is strong enough, and codes have no bound.
    """
    squares = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            squares += gram[i, j] * gram[i, j]
    return ROUNDING * precision * np.sqrt(squares)


@jit
def soft_threshold(value, threshold, positive):
    """Return ``sign(value) * max(|value| - threshold, 0)``, or ``max(value - threshold, 0)`` when positive."""
    if value > threshold:
        return value - threshold
    if value < -threshold and not positive:
        return value + threshold
    return 0.0


@jit
def kkt_violation(code, slope, l1, positive):
    """Return the distance of zero from the subdifferential, for one coordinate.

    slope: minus the derivative of the smooth part, ``(x - a D) d_j - l2 a_j``.
    """
    if code > 0.0:
        return abs(slope - l1)
    if code < 0.0:
        return abs(slope + l1)
    if positive:
        return max(slope - l1, 0.0)
    return max(abs(slope) - l1, 0.0)


@jit
def worst_violation(gradient, code, l1, l2, positive):
    """Return the largest violation of the optimality conditions. gradient (k,), ``x D' - a D D'``; code (k,)."""
    worst = 0.0
    for j in range(len(code)):
        worst = max(worst, kkt_violation(code[j], gradient[j] - l2 * code[j], l1, positive))
    return worst


@jit
def descend(gram, gradient, code, l1, l2, positive, only_active):
    """Do one pass of coordinate descent; return the largest violation met before each update.

    gram (k, k); gradient (k,) in/out, ``x D' - a D D'``; code (k,) in/out.
    """
    n_components = len(code)
    largest = 0.0
    for j in range(n_components):
        old = code[j]
        curvature = gram[j, j] + l2
        if (only_active and old == 0.0) or curvature <= 0.0:
            continue
        largest = max(largest, kkt_violation(old, gradient[j] - l2 * old, l1, positive))
        new = soft_threshold(gradient[j] + gram[j, j] * old, l1, positive) / curvature
        if new != old:
            code[j] = new
            change = new - old
            for i in range(n_components):
                gradient[i] -= change * gram[j, i]
    return largest


@jit
def subtract_products(gram, code, correlations, gradient):
    """``gradient = correlations - code @ gram``, skipping zeros. gram (k, k); others (k,)."""
    gradient[:] = correlations
    for j in range(len(code)):
        if code[j] != 0.0:
            for i in range(len(code)):
                gradient[i] -= code[j] * gram[j, i]


@jit
def solve_nonzero(gram, correlations, l1, l2, code):
    """Move the nonzero codes to where they are optimal if they keep their signs, or until one is zero: tell if so.

    With A the nonzero codes and s their signs, that is ``(D_A D_A' + l2) a_A = x D_A' - l1 s``, by Cholesky's method;
    the objective is quadratic on the way there, and falls. Coordinate descent needs as many passes as atoms resemble
    each other, this does not. Where atoms depend on each other pivots are raised, the way is long, and a code vanishes.
    """
    n_components = len(code)
    support, target = np.empty(n_components, np.int64), np.empty(n_components)
    n = 0
    for j in range(n_components):
        if code[j] != 0.0:
            support[n] = j
            n += 1
    factor = np.empty((n, n))
    for a in range(n):
        products, row = gram[support[a]], factor[a]
        for b in range(a):
            total, other = products[support[b]], factor[b]
            for h in range(b):
                total -= row[h] * other[h]
            row[b] = total / other[b]
        size = products[support[a]] + l2
        pivot, right = size, correlations[support[a]] - (l1 if code[support[a]] > 0.0 else -l1)
        for h in range(a):
            pivot -= row[h] * row[h]
            right -= row[h] * target[h]
        row[a] = np.sqrt(max(pivot, SINGULAR * size))
        target[a] = right / row[a]
    for a in range(n - 1, -1, -1):
        row = factor[a]
        target[a] /= row[a]
        for h in range(a):
            target[h] -= target[a] * row[h]
    share, vanishing = 1.0, -1
    for a in range(n):
        old = code[support[a]]
        if old * target[a] <= 0.0 and old / (old - target[a]) < share:
            share, vanishing = old / (old - target[a]), support[a]
    for a in range(n):
        code[support[a]] += share * (target[a] - code[support[a]])
    if vanishing >= 0:
        code[vanishing] = 0.0
    return vanishing >= 0


@jit
def descend_row(gram, correlations, l1, l2, positive, tolerance, max_passes, code, gradient):
    """Code one row by coordinate descent; return whether it stopped before it converged.

    gram (k, k), correlations (k,); code (k,) in/out, the starting point; gradient (k,): scratch. The row is done when
    every violation of the optimality conditions is below ``tolerance`` times its largest correlation. Passes over the
    active coordinates alternate with passes over all, since most coordinates of a sparse code stay at zero. When they
    get many, :func:`solve_nonzero` helps out, for :data:`SHARE` times the multiplications that they took.
    """
    n_components = len(code)
    subtract_products(gram, code, correlations, gradient)
    scale = 0.0
    for j in range(n_components):
        scale = max(scale, abs(correlations[j]))
    allowed = tolerance * scale
    if worst_violation(gradient, code, l1, l2, positive) <= allowed:
        return False
    waited, spent, only_active = 0, 0.0, False
    for _ in range(max_passes):
        if descend(gram, gradient, code, l1, l2, positive, only_active) > allowed:
            only_active = True
        elif only_active:
            only_active = False
        elif worst_violation(gradient, code, l1, l2, positive) <= allowed:  # updates after it may have raised one
            return False
        waited += 1
        n_active = np.count_nonzero(code)
        spent += n_active * n_components
        if waited >= PATIENCE:
            while spent * SHARE >= n_active**3 / 3:
                spent -= n_active**3 / 3 / SHARE
                if not solve_nonzero(gram, correlations, l1, l2, code):
                    break
                n_active -= 1
            subtract_products(gram, code, correlations, gradient)
            waited, only_active = 0, False
    return True


@jit
def elastic_net_codes(gram, correlations, l1, l2, positive, tolerance, max_passes, codes, unfinished):
    """Code rows that share a Gram matrix.

    gram (k, k), correlations (b, k); codes (b, k) in/out, the starting point; unfinished (b,) out: rows that did not
    converge.
    """
    gradient = np.empty(gram.shape[0])
    for row in range(len(codes)):
        unfinished[row] = descend_row(
            gram, correlations[row], l1, l2, positive, tolerance, max_passes, codes[row], gradient
        )
