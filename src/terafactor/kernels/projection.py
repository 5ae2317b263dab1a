r"""Projection of an atom on a ball: of all its entries, or of the observed ones with the others fixed.

Every ball of terafactor is :math:`\{d : \psi(d) \le c\}` with
:math:`\psi(d) = \mu |d|_1 + \tfrac{\nu}{2} |d|_2^2`: the l1 ball has (mu, nu) = (1, 0), the elastic-net ball
(rho, 1 - rho), and the l2 ball (0, 2) with the squared radius. Since psi is a sum over features, the projection that
fixes the entries outside the mask (the set T_j of the paper) is the same problem on the mask, with a smaller bound.

The projection of v is :math:`d_i = S_{\lambda \mu}(v_i) / (1 + \lambda \nu)` with the smallest multiplier
:math:`\lambda \ge 0` that satisfies the constraint. As a function of lambda, psi(d) is convex and decreasing: Newton's
method from the left of the root converges monotonically, and one step from the right leads to the left. It can start
anywhere; from the multiplier of the previous step it takes two or three passes.
"""

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.barrier import sum_tiles
from terafactor.kernels.jit import jit

MAX_NEWTON = 100
"""Bound on the steps of Newton's method; a handful is usual."""


@jit
def absolute_and_squares(values):
    """``abs(values).sum(), (values ** 2).sum()``, for at most a tile of values, in their precision."""
    absolute, squares = values.dtype.type(0), values.dtype.type(0)
    for i in range(len(values)):
        absolute += abs(values[i])
        squares += values[i] * values[i]
    return absolute, squares


@jit
def ball_size(values, l1_weight, l2_weight):
    """``l1_weight * abs(values).sum() + l2_weight / 2 * (values ** 2).sum()``, tiles added in float64."""
    size = 0.0
    for start in range(0, len(values), TILE):
        absolute, squares = absolute_and_squares(values[start : start + TILE])
        size += l1_weight * absolute + 0.5 * l2_weight * squares
    return size


@jit
def excess_sums(values, threshold):
    """Return count, sum and sum of squares of ``max(|values| - threshold, 0)``, for at most a tile of values."""
    zero, one = values.dtype.type(0), values.dtype.type(1)
    count, total, squares = zero, zero, zero
    level = values.dtype.type(threshold)
    for i in range(len(values)):
        excess = max(abs(values[i]) - level, zero)
        count += one if excess > zero else zero
        total += excess
        squares += excess * excess
    return float(count), float(total), float(squares)


@jit
def newton_step(multiplier, best, factor, count, total, squares, l1_weight, l2_weight, budget, precision):
    """Do one step of Newton's method; return the next multiplier, the best so far, its factor, and whether it is done.

    count, total, squares: :func:`excess_sums` at the threshold ``multiplier * l1_weight``, over all values; best: -1
    before the first step; factor: scale that brings the values inside the budget where no threshold in their precision
    does, because they are too large.
    """
    if count == 0.0:  # to the right of the root, where the slope is zero
        if best < 0.0 and multiplier > 0.0:  # a stale start
            return 0.0, best, factor, False
        return multiplier, best if best >= 0.0 else np.inf, factor, True
    scale = 1.0 / (1.0 + multiplier * l2_weight)
    linear, quadratic = scale * l1_weight * total, 0.5 * scale * scale * l2_weight * squares
    gap = linear + quadratic - budget
    slope = scale * (l1_weight * l1_weight * count + 2.0 * l2_weight * (linear + quadratic))
    following = max(multiplier + gap / slope, 0.0)
    # The second test: a finer multiplier would not change the threshold in the precision of the data.
    converged = abs(gap) <= precision * budget
    done = converged or abs(following - multiplier) <= precision * multiplier
    if done or gap > 0.0:
        best, factor = multiplier, 1.0 if converged or gap <= 0.0 else filling_factor(linear, quadratic, budget)
    return following, best, factor, done


@jit
def filling_factor(linear, quadratic, budget):
    """Return the c > 0 with ``linear * c + quadratic * c^2 = budget``, written so that nothing cancels."""
    return 2.0 * budget / (linear + np.sqrt(linear * linear + 4.0 * quadratic * budget))


@jit
def find_multiplier(
    values, first_tile, last_tile, l1_weight, l2_weight, size, budget, start, partial, n_sums, n_threads, barrier
):
    """Return the multiplier that brings ``values`` (s,) inside the budget, its factor, and the new ``n_sums``.

    size: psi of the values; budget: bound of psi; start: where Newton's method starts. The multiplier is infinite when
    only zero fits. Threads share the search, each on its tiles; see :func:`sum_tiles` for the last arguments.
    """
    if size <= budget:
        return 0.0, 1.0, n_sums
    if budget <= 0.0:
        return np.inf, 1.0, n_sums
    if l1_weight == 0.0:
        return (np.sqrt(size / budget) - 1.0) / l2_weight, 1.0, n_sums
    precision = 1e-7 if values.itemsize == 4 else 1e-15
    multiplier, best, factor = start, -1.0, 1.0
    for _ in range(MAX_NEWTON):
        parts = partial[n_sums % 2]
        for tile in range(first_tile, last_tile):
            part = values[tile * TILE : (tile + 1) * TILE]
            parts[tile, 0], parts[tile, 1], parts[tile, 2] = excess_sums(part, multiplier * l1_weight)
        count, total, squares, _ = sum_tiles(partial, n_sums, n_threads, barrier)
        n_sums += 1
        multiplier, best, factor, done = newton_step(
            multiplier, best, factor, count, total, squares, l1_weight, l2_weight, budget, precision
        )
        if done:
            break
    return best, factor, n_sums


@jit
def shrink(values, multiplier, factor, l1_weight, l2_weight, out):
    """``out = factor * sign(values) * max(|values| - multiplier * l1_weight, 0) / (1 + multiplier * l2_weight)``."""
    dtype = values.dtype.type
    threshold, scale = dtype(multiplier * l1_weight), dtype(factor / (1.0 + multiplier * l2_weight))
    if np.isinf(multiplier):
        threshold, scale = dtype(0), dtype(0)
    for i in range(len(values)):
        value = values[i]
        out[i] = (max(value - threshold, dtype(0)) + min(value + threshold, dtype(0))) * scale


@jit
def project(values, l1_weight, l2_weight, budget, positive, partial):
    """Project ``values`` (s,), in place, on ``{d : psi(d) <= budget}``, and on ``d >= 0`` when positive; return psi.

    Clipping first is exact: the projection of a negative entry is zero. partial (2, tiles, 4): scratch.
    """
    if positive:
        for i in range(len(values)):
            values[i] = max(values[i], values.dtype.type(0))
    size = ball_size(values, l1_weight, l2_weight)
    if size <= budget:
        return size
    multiplier, factor, _ = find_multiplier(
        values, 0, partial.shape[1], l1_weight, l2_weight, size, budget, 0.0, partial, 0, 1, 0
    )
    shrink(values, multiplier, factor, l1_weight, l2_weight, values)
    if np.isinf(multiplier):
        return 0.0
    return budget if size > budget else size  # NaN stays NaN
