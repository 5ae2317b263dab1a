r"""Codes by coordinate descent: :math:`\min_a \tfrac12 |x - a D|^2 + l_1 |a|_1 + \tfrac{l_2}{2} |a|^2`.

The data enter only through the Gram matrix ``D D'`` and the products ``x D'``. Both are in float64 whatever the data:
matrices are k x k, so precision costs little.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from terafactor._typing import Array
from terafactor.kernels.jit import jit
from terafactor.kernels.solve import cholesky, solve_triangles

FEW_PRODUCTS = 2**13
"""Rows times squared number of atoms up to which descent from zero is as fast as :func:`signed_start`."""

WEAK_PENALTY = 0.2
"""Share of the mean absolute product up to which an l1 term leaves most codes nonzero."""

ALIKE = 1e-3
"""Ratio of squared pivots below which atoms are too correlated to guess the signs of their codes."""

PATIENCE = 64
"""Passes of coordinate descent after which the nonzero codes are found by a linear system."""

WORK_RATIO = 4
"""Bound on the multiplications in these systems, relative to those in the passes."""


@jit
def soft_threshold(value, threshold, positive):
    """``sign(value) * max(|value| - threshold, 0)``, or ``max(value - threshold, 0)`` when positive."""
    if value > threshold:
        return value - threshold
    if value < -threshold and not positive:
        return value + threshold
    return 0.0


@jit
def violation(code, slope, l1, positive):
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
def largest_violation(gradient, code, l1, l2, positive):
    """Return the largest violation of the optimality conditions. gradient (k,), ``x D' - a D D'``; code (k,)."""
    largest = 0.0
    for j in range(len(code)):
        largest = max(largest, violation(code[j], gradient[j] - l2 * code[j], l1, positive))
    return largest


@jit
def find_gradient(gram, products, code, gradient):
    """``gradient = products - code @ gram``, skipping zeros. gram (k, k); others (k,)."""
    for j in range(len(code)):
        gradient[j] = products[j]
    for j in range(len(code)):
        if code[j] != 0.0:
            row = gram[j]
            for i in range(len(code)):
                gradient[i] -= code[j] * row[i]


@jit
def descend(gram, gradient, code, l1, l2, positive, only_active):
    """Do one pass of coordinate descent; return the largest violation, each measured before the update.

    gram (k, k); gradient (k,) in/out, ``x D' - a D D'``; code (k,) in/out.
    """
    largest = 0.0
    for j in range(len(code)):
        old, row = code[j], gram[j]
        curvature = row[j] + l2
        if (only_active and old == 0.0) or curvature <= 0.0:
            continue
        largest = max(largest, violation(old, gradient[j] - l2 * old, l1, positive))
        new = soft_threshold(gradient[j] + row[j] * old, l1, positive) / curvature
        if new != old:
            code[j] = new
            change = new - old
            for i in range(len(code)):
                gradient[i] -= change * row[i]
    return largest


@jit
def solve_active(gram, products, l1, l2, code, active, system, target):
    """Move the nonzero codes to the optimum for their signs, or until the first is zero; return whether one is.

    With A the nonzero codes and s their signs, the optimum solves ``(D_A D_A' + l2) a_A = x D_A' - l1 s``. On the way
    the objective is quadratic, and decreases. The more correlated atoms are, the more passes coordinate descent takes;
    the cost of this does not depend on it. active, target (k,), system (k, k): scratch.
    """
    n = np.int64(0)  # not a literal: see jit.py
    for j in range(len(code)):
        if code[j] != 0.0:
            active[n] = j
            n += 1
    for a in range(n):
        j = active[a]
        for b in range(a + 1):
            system[a, b] = gram[j, active[b]]
        system[a, a] += l2
        target[a] = products[j] - (l1 if code[j] > 0.0 else -l1)
    cholesky(system, n)
    solve_triangles(system, target, n)
    share, vanishing = 1.0, -1
    for a in range(n):
        old = code[active[a]]
        if old * target[a] <= 0.0 and old / (old - target[a]) < share:
            share, vanishing = old / (old - target[a]), active[a]
    for a in range(n):
        code[active[a]] += share * (target[a] - code[active[a]])
    if vanishing >= 0:
        code[vanishing] = 0.0
    return vanishing >= 0


def signed_start(gram: Array, products: Array, l1: float, l2: float) -> Array | None:
    """Return a start (b, k) for coordinate descent where few codes will be zero; None where zeros are the better start.

    gram (k, k), products (b, k). Codes without zeros and with signs s solve ``a (D D' + l2) = x D' - l1 s``. Here s are
    the signs without an l1 term, and codes that get another sign are set to zero. Zeros are better with a strong l1
    term, which leaves few codes, and with correlated atoms, whose codes have arbitrary signs. Halves the time of weakly
    penalized codes.
    """
    if products.size * len(gram) <= FEW_PRODUCTS or l1 * products.size > WEAK_PENALTY * np.abs(products).sum():
        return None
    factor, failed = lapack.dpotrf(gram + l2 * np.eye(len(gram)))
    pivots = factor.diagonal()
    if failed or not pivots.min() ** 2 >= ALIKE * pivots.max() ** 2:
        return None
    inverse = lapack.dpotri(factor)[0]  # its upper triangle; two products are faster than four triangular solves
    unpenalized = blas.dsymm(1.0, inverse, products.T)
    codes = blas.dsymm(1.0, inverse, products.T - np.copysign(l1, unpenalized))
    codes[codes * unpenalized <= 0] = 0
    return np.ascontiguousarray(codes.T)


@jit
def elastic_net_codes(grams, products, l1, l2, positive, tolerance, max_passes, codes):
    """Compute codes by coordinate descent; return how many rows did not converge.

    grams (b, k, k), or (1, k, k) where all rows share one; products (b, k); l1, l2 (b,); codes (b, k) in/out: start and
    result. A row has converged when every violation of the optimality conditions is below ``tolerance`` times its
    largest product. Passes over the nonzero coordinates alternate with passes over all, since most coordinates of a
    sparse code stay zero. Every :data:`PATIENCE` passes :func:`solve_active` runs, within :data:`WORK_RATIO` times the
    multiplications of the passes.
    """
    n_rows, k = codes.shape
    gradient, target, system, active = np.empty(k), np.empty(k), np.empty((k, k)), np.empty(k, np.int64)
    unfinished = 0
    for row in range(n_rows):
        gram, wanted, code = grams[row if len(grams) > 1 else 0], products[row], codes[row]
        find_gradient(gram, wanted, code, gradient)
        allowed = 0.0
        for j in range(k):
            allowed = max(allowed, tolerance * abs(wanted[j]))
        worst = largest_violation(gradient, code, l1[row], l2[row], positive)
        n_passes, waited, spent, only_active = 0, 0, 0.0, worst <= allowed
        while worst > allowed and n_passes < max_passes:
            largest = descend(gram, gradient, code, l1[row], l2[row], positive, only_active)
            if largest <= allowed and not only_active:
                worst = largest_violation(gradient, code, l1[row], l2[row], positive)  # updates may have raised one
            only_active = largest > allowed
            n_passes += 1
            waited += 1
            n_active = 0
            for j in range(k):
                n_active += code[j] != 0.0
            spent += n_active * k
            if waited >= PATIENCE:
                while spent * WORK_RATIO >= n_active**3 / 3:
                    spent -= n_active**3 / 3 / WORK_RATIO
                    if not solve_active(gram, wanted, l1[row], l2[row], code, active, system, target):
                        break
                    n_active -= 1
                find_gradient(gram, wanted, code, gradient)
                waited, only_active = 0, False
        unfinished += worst > allowed
    return unfinished


@jit
def ridge_codes(grams, products, l2, codes):
    """``codes[i] = np.linalg.solve(grams[i] + l2[i], products[i])``. grams (b, k, k); products, codes (b, k); l2 (b,).

    The code of a row whose system is zero is zero.
    """
    k = codes.shape[1]
    system = np.empty((k, k))
    for row in range(len(codes)):
        code, trace = codes[row], 0.0
        for j in range(k):
            for i in range(k):
                system[j, i] = grams[row, j, i]
            system[j, j] += l2[row]
            trace += system[j, j]
            code[j] = products[row, j]
        if trace > 0.0:
            cholesky(system, k)
            solve_triangles(system, code, k)
        else:  # no atom has an entry there
            for j in range(k):
                code[j] = 0.0
