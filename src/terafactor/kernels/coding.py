r"""Codes of rows on a dictionary: :math:`\min_a \tfrac12 |x - a D|^2 + l_1 |a|_1 + \tfrac{l_2}{2} |a|^2`.

Both solvers see the data only through the Gram matrix ``D D'`` and the correlations ``x D'``. They work in float64
whatever the data: the matrices are k x k, so precision is free here.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from terafactor._typing import Array
from terafactor.kernels._blas import FLOAT64, address, factorize, product, solve_rows
from terafactor.kernels._jit import jit
from terafactor.kernels._lanes import add_multiple

SINGULAR = 1e-12
"""Ratio of eigenvalues (or squared pivots) below which a Gram matrix counts as singular."""

ROUNDING = 4
"""Error of a Gram matrix, at the most, in units of its norm times the precision of the data; twice what was met."""

ALIKE = 1e-3
"""Ratio of squared pivots below which atoms resemble each other too much to tell the signs of their codes."""

FEW_PRODUCTS = 2**13
"""Rows times squared number of atoms up to which coordinate descent from zero is as fast as to look for a start."""

WEAK_PENALTY = 0.2
"""Share of the mean absolute correlation up to which an l1 term leaves most codes nonzero."""

SMALL = 64
"""Atoms up to which an inverse of our own is faster than a factorization and solutions by LAPACK."""

PATIENCE = 64
"""Passes of coordinate descent after which the nonzero codes are solved for at once."""

SHARE = 4
"""Multiplications in these solutions over those in passes, at the most."""


def ridge_codes(gram: Array, correlations: Array, l2: float) -> Array:
    """Return the codes without an l1 term, by one Cholesky factorization for all rows.

    gram (k, k), correlations (b, k), both float64. A singular system (l2 = 0 and dependent atoms, or an atom without
    observed entries) gets its solution of least norm; one that has overflowed, codes of NaN.
    """
    system, codes = with_ridge(gram, l2), correlations.copy()
    if solve_together(*_solvers(), system.copy(), codes):
        return codes
    if not np.isfinite(system).all():
        return np.full(correlations.shape, np.nan)
    return np.ascontiguousarray(linalg.lstsq(system, correlations.T, cond=SINGULAR, check_finite=False)[0].T)


def elastic_net_start(gram: Array, correlations: Array, l1: float, l2: float, *, dense: bool) -> tuple[Array, Array]:
    """Return codes (b, k) for coordinate descent to start from, and what they leave, ``correlations - codes gram``.

    Arguments as above. dense: there may be few zeros among the codes, and either sign; otherwise they start from zero.
    """
    codes, gradients = np.zeros(correlations.shape), correlations.copy()
    if dense and codes.size * len(gram) > FEW_PRODUCTS:
        start_dense(*_solvers(), address("gemm", FLOAT64), gram, correlations, l1, l2, codes, gradients)
    return codes, gradients


def is_definite(gram: Array, l2: float) -> bool:
    """Whether ``gram + l2`` (k, k) is positive definite, so that every row has codes that are optimal."""
    return bool(factorize(address("potrf", FLOAT64), with_ridge(gram, l2)))


def _solvers() -> tuple[int, int]:
    return address("potrf", FLOAT64), address("trsm", FLOAT64)


@jit
def with_ridge(gram, l2):
    """Return ``gram + l2``, the latter on the diagonal."""
    system = gram.copy()
    for j in range(len(gram)):
        system[j, j] += l2
    return system


@jit
def pivots_of(potrf, system):
    """Put the Cholesky factor of ``system`` (k, k) in its place; return the ratio of squared pivots, at the worst.

    It is zero where there is no factor. One that is there can be that of a matrix singular to working precision.
    """
    if not factorize(potrf, system):
        return 0.0
    least, most = system[0, 0], system[0, 0]
    for j in range(1, len(system)):
        least, most = min(least, system[j, j]), max(most, system[j, j])
    return (least / most) ** 2


@jit
def invert(system):
    """Put the inverse of a positive definite ``system`` (k, k) in its place; return as :func:`pivots_of` does.

    By the method of Gauss and Jordan, whose pivots are the squares of Cholesky's.
    """
    k = len(system)
    least, most = np.inf, 0.0
    for j in range(k):
        pivot = system[j, j]
        if not pivot > 0.0:
            return 0.0
        least, most = min(least, pivot), max(most, pivot)
        for i in range(k):
            if i != j:
                share = -system[i, j] / pivot
                add_multiple(system, i, share, system, j)
                system[i, j] = share
        for i in range(k):
            system[j, i] /= pivot
        system[j, j] = 1.0 / pivot
    return least / most


@jit
def solve_together(potrf, trsm, system, rows):
    """Solve ``a system = row`` for all ``rows`` (b, k), in place; tell whether that could be done.

    potrf, trsm: addresses; system (k, k), overwritten.
    """
    if not pivots_of(potrf, system) >= SINGULAR:
        return False
    solve_rows(trsm, system, rows)
    return True


@jit
def solve_with(trsm, gemm, inverted, system, rows, out):
    """Put in ``out`` (b, k) what solves ``a system = row`` for all ``rows`` (b, k), by its inverse or its factor."""
    if inverted:
        n_rows, k = rows.shape
        product(gemm, n_rows, k, k, rows, 0, k, system, 0, k, out, 0, k)
    else:
        out[:] = rows
        solve_rows(trsm, system, out)


@jit
def start_dense(potrf, trsm, gemm, gram, correlations, l1, l2, codes, gradients):
    """Put in ``codes`` (b, k) where coordinate descent finds few of them to change, when few of them are zero.

    potrf, trsm, gemm: addresses; gram (k, k), correlations (b, k); gradients (b, k) out: what the codes leave. Were the
    signs s of all codes known, and none zero, codes would solve ``a (D D' + l2) = x D' - l1 s``. Here s are the signs
    without an l1 term, and codes that turn out to have another sign are set to zero. Atoms that resemble each other
    would have codes of either sign and any size, and a strong l1 term leaves few codes: there nothing is done.
    """
    n_rows, k = correlations.shape
    total = 0.0
    for i in range(n_rows):
        for j in range(k):
            total += abs(correlations[i, j])
    if l1 * codes.size > WEAK_PENALTY * total:
        return
    system, inverted = with_ridge(gram, l2), k <= SMALL
    if not (invert(system) if inverted else pivots_of(potrf, system)) >= ALIKE:
        return
    start, shifted = np.empty((n_rows, k)), np.empty((n_rows, k))
    solve_with(trsm, gemm, inverted, system, correlations, start)
    for i in range(n_rows):
        for j in range(k):
            shifted[i, j] = correlations[i, j] - np.copysign(l1, start[i, j])
    solve_with(trsm, gemm, inverted, system, shifted, codes)
    for i in range(n_rows):
        for j in range(k):
            codes[i, j] = codes[i, j] if codes[i, j] * start[i, j] > 0.0 else 0.0
    product(gemm, n_rows, k, k, codes, 0, k, gram, 0, k, shifted, 0, k)
    for i in range(n_rows):
        for j in range(k):
            gradients[i, j] = correlations[i, j] - shifted[i, j]


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

    gram (k, k), correlations (k,); code (k,) in/out, the starting point, and gradient (k,) in/out, what it leaves,
    ``x D' - a D D'``. The row is done when every violation of the optimality conditions is below ``tolerance`` times
    its largest correlation. Passes over the active coordinates alternate with passes over all, since most coordinates
    of a sparse code stay at zero. When they get many, :func:`solve_nonzero` helps out, for :data:`SHARE` times the
    multiplications that they took.
    """
    n_components = len(code)
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
def elastic_net_codes(
    gram, correlations, l1, l2, positive, tolerance, max_passes, start, stop, codes, gradients, unfinished
):
    """Code the rows from start to stop, which share a Gram matrix.

    gram (k, k), correlations (b, k); codes, gradients (b, k) in/out: of :func:`elastic_net_start`; unfinished (b,) out:
    rows that did not converge.
    """
    for row in range(start, stop):
        unfinished[row] = descend_row(
            gram, correlations[row], l1, l2, positive, tolerance, max_passes, codes[row], gradients[row]
        )
