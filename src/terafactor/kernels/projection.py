r"""Projection of an atom on a ball, all its entries or the observed ones only.

Every ball of terafactor is :math:`\{d : \psi(d) \le c\}` with
:math:`\psi(d) = \mu |d|_1 + \tfrac{\nu}{2} |d|_2^2`: the l1 ball has (mu, nu) = (1, 0), the elastic-net ball
(rho, 1 - rho), and the l2 ball (0, 2) with the squared radius. Since psi adds over features, the projection that keeps
the entries outside the mask (the set T_j of the paper) is the same problem on the mask with the rest of the budget.

The projection of v is :math:`d_i = S_{\lambda \mu}(v_i) / (1 + \lambda \nu)` with the smallest multiplier
:math:`\lambda \ge 0` that satisfies the constraint. As a function of lambda, psi(d) is convex and decreasing: Newton's
method from the left of the root climbs to it without passing it, and from the right lands on the left at once. It can
therefore start anywhere; starting at the multiplier of the previous step it takes two or three passes.
"""

import numpy as np

from terafactor.kernels._jit import jit

CHUNK = 1024
"""Entries whose sum is taken in the precision of the data; sums of chunks are added in float64."""

MAX_NEWTON = 100


@jit
def ball_size(values, l1_weight, l2_weight):
    """Return ``l1_weight * sum(|values|) + l2_weight / 2 * sum(values ** 2)``, accumulated in float64."""
    absolute, squared = 0.0, 0.0
    zero = values.dtype.type(0)
    for start in range(0, len(values), CHUNK):
        chunk_absolute, chunk_squared = zero, zero
        chunk = values[start : start + CHUNK]
        for i in range(len(chunk)):
            chunk_absolute += abs(chunk[i])
            chunk_squared += chunk[i] * chunk[i]
        absolute += chunk_absolute
        squared += chunk_squared
    return l1_weight * absolute + 0.5 * l2_weight * squared


@jit
def excess_sums(values, threshold):
    """Return count, sum and sum of squares of ``max(|values| - threshold, 0)``."""
    count, total, squares = 0.0, 0.0, 0.0
    zero, one = values.dtype.type(0), values.dtype.type(1)
    level = values.dtype.type(threshold)
    for start in range(0, len(values), CHUNK):
        chunk_count, chunk_total, chunk_squares = zero, zero, zero
        chunk = values[start : start + CHUNK]
        for i in range(len(chunk)):
            excess = max(abs(chunk[i]) - level, zero)
            chunk_count += one if excess > zero else zero
            chunk_total += excess
            chunk_squares += excess * excess
        count += chunk_count
        total += chunk_total
        squares += chunk_squares
    return count, total, squares


@jit
def find_multiplier(values, l1_weight, l2_weight, size, budget, start):
    """Return the multiplier that brings ``values`` inside the budget; infinite when only zero fits.

    values (s,); size: psi of values; budget: psi allowed; start: where Newton's method begins.
    """
    if size <= budget:
        return 0.0
    if budget <= 0.0:
        return np.inf
    if l1_weight == 0.0:
        return (np.sqrt(size / budget) - 1.0) / l2_weight
    precision = 1e-7 if values.itemsize == 4 else 1e-15
    multiplier = start
    for _ in range(MAX_NEWTON):
        count, total, squares = excess_sums(values, multiplier * l1_weight)
        if count == 0.0:  # too far to the right, where the slope is zero
            multiplier = 0.0 if multiplier != 0.0 else np.inf
            continue
        scale = 1.0 / (1.0 + multiplier * l2_weight)
        total *= scale
        squares *= scale * scale
        gap = l1_weight * total + 0.5 * l2_weight * squares - budget
        slope = scale * (l1_weight * l1_weight * count + l2_weight * (2.0 * l1_weight * total + l2_weight * squares))
        following = max(multiplier + gap / slope, 0.0)
        # The second test: a finer multiplier would not change the threshold as the data's precision sees it.
        if abs(gap) <= precision * budget or abs(following - multiplier) <= precision * multiplier:
            break
        multiplier = following
    return multiplier


@jit
def shrink(values, multiplier, l1_weight, l2_weight):
    """Replace ``values`` by ``sign(v) * max(|v| - multiplier * l1_weight, 0) / (1 + multiplier * l2_weight)``."""
    dtype = values.dtype.type
    if np.isinf(multiplier):
        values[:] = dtype(0)
        return
    threshold, scale = dtype(multiplier * l1_weight), dtype(1.0 / (1.0 + multiplier * l2_weight))
    for i in range(len(values)):
        value = values[i]
        values[i] = (max(value - threshold, dtype(0)) + min(value + threshold, dtype(0))) * scale


@jit
def project(values, l1_weight, l2_weight, budget, positive):
    """Project ``values`` (s,), in place, on ``{d : psi(d) <= budget}``, and on ``d >= 0`` when positive.

    Clipping first is exact: a negative entry of v would only be shrunk to zero.
    """
    if positive:
        for i in range(len(values)):
            values[i] = max(values[i], values.dtype.type(0))
    size = ball_size(values, l1_weight, l2_weight)
    shrink(values, find_multiplier(values, l1_weight, l2_weight, size, budget, 0.0), l1_weight, l2_weight)
