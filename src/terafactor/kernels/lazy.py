r"""Projection of whole atoms at the cost of the mask.

After its move on the mask, atom j is projected on the ball with all its entries:
:math:`d_i = S_{\lambda \mu}(v_i) / (1 + \lambda \nu)`, on the mask and outside, with one multiplier
(:mod:`terafactor.kernels.projection`). Maps of this kind are closed under composition,

.. math:: S_{a'}(S_a(x) / c) / c' = S_{a + a' c}(x) / (c c'),

so rows of the dictionary outside the mask are left as they were written, and each atom remembers, for each step t of
the cycle, the map :math:`x \mapsto S_{A_t}(x) / C_t` made of all projections since the cycle began. A row written at
step u is brought to step t by the map in between, :math:`S_{(A_t - A_u) / C_u}(x) \, C_u / C_t`. For the l2 ball
A stays 0, for the l1 ball C stays 1 up to rounding; for the elastic net both change, A by :math:`\lambda \mu C` and C
by the factor :math:`1 + \lambda \nu`.

The multiplier solves psi(d) = limit over the whole atom. In the units of the beginning of the cycle, where an entry
has the constant level E of :mod:`terafactor.kernels.lazy_levels`, the candidate multiplier puts the threshold at
:math:`L = A + \lambda \mu C`, and entries outside the mask contribute, before the division by :math:`1 + \lambda \nu`,

.. math:: \sum (v_i - \lambda\mu)_+ = \frac{S - N L}{C}, \qquad
          \sum (v_i - \lambda\mu)_+^2 = \frac{Q - 2 L S + N L^2}{C^2},

with N, S, Q count, sum and sum of squares of the levels above L. Newton's method takes these with the sums over the
mask. It approaches the root from the left after its first iterate, so an iterate that passes the horizon of the levels
is a lower bound of the root: what lies below it is dead, and the atom is scanned once from there on.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels._jit import jit
from terafactor.kernels.atoms import candidate, commit, least_curvature, prepare, weigh
from terafactor.kernels.lazy_levels import add_levels, move_place, remove_levels, scan_levels, sums_above
from terafactor.kernels.projection import (
    MAX_NEWTON,
    climb,
    excess_sums,
    precision_of,
    simple_multiplier,
)

AHEAD = 4.0
"""Where a scan sets the horizon, in units of the threshold since the cycle began that asked for it."""


@jit
def soft(value, threshold):
    """Return ``sign(value) * max(|value| - threshold, 0)``."""
    return max(value - threshold, 0.0) + min(value + threshold, 0.0)


@jit
def bring_rows(matrix, written, since_threshold, since_scale, start, stop):
    """Bring rows from start to stop up to date. matrix (p, k) in/out, written (p,) the step that wrote each row.

    since_threshold, since_scale (steps, k): the map from each step to now, ``S_threshold(x) * scale``.
    """
    for i in range(start, stop):
        row, stamp = matrix[i], written[i]
        for j in range(len(row)):
            row[j] = soft(float(row[j]), since_threshold[stamp, j]) * since_scale[stamp, j]


@jit
def bring_atoms(atoms, thresholds, scales, out):
    """Put in ``out`` the atoms (k, s) as written when the cycle began, brought up to date by ``S_A(x) / C`` (k,)."""
    for j in range(len(atoms)):
        threshold, factor = thresholds[j], 1.0 / scales[j]
        for i in range(atoms.shape[1]):
            out[j, i] = soft(float(atoms[j, i]), threshold) * factor


@jit
def remove_entries(levels, atoms):
    """Count entries out of the levels of all atoms. atoms (k, s): as they were written when the cycle began."""
    values = np.empty(atoms.shape[1])
    for j in range(len(atoms)):
        for i in range(len(values)):
            values[i] = abs(atoms[j, i])
        remove_levels(levels, j, values)


@jit
def add_entries(levels, members, j, entries, threshold, scale, values, features):
    """Count entries (s,) in, as they are now that the atom's map is (threshold, scale); return the members.

    values, features (s,): scratch, and -1 everywhere.
    """
    for i in range(len(entries)):
        values[i] = float(abs(entries[i])) * scale + (threshold if entries[i] != 0 else 0.0)
    return add_levels(levels, members, j, values, features)


@jit
def outside_sums(levels, members, written, j, level, scale):
    """Return count, sum and sum of squares of what a threshold leaves of the entries outside the mask.

    level: the threshold in units of the cycle's beginning; scale: what divides entries since.
    """
    count, total, squares = sums_above(levels, members, written, j, level)
    squares -= level * (2.0 * total - count * level)
    total -= count * level
    return max(count, 0.0), max(total, 0.0) / scale, max(squares, 0.0) / (scale * scale)


@jit
def find_exact(
    values, l1_weight, l2_weight, limit, start, j, levels, members, matrix, written, thresholds, scales, step
):
    """Return the multiplier of the whole atom j, by Newton's method from ``start``, its factor, and the members.

    values (s,): the atom on the mask, after its move; the others as in :func:`sweep_exact`.
    """
    threshold, scale, first = thresholds[step, j], scales[step, j], members.used[0]
    multiplier = start if threshold + start * l1_weight * scale < levels.horizon[j] else 0.0
    best, factor = -1.0, 1.0
    for _ in range(MAX_NEWTON):
        level = threshold + multiplier * l1_weight * scale
        if level >= levels.horizon[j] and level > levels.origin[j]:
            members.used[0] = first  # members of an earlier scan of this search
            members = scan_levels(
                levels, members, j, level, AHEAD * level, matrix, written, thresholds, scales, step
            )  # fmt: skip
        count, total, squares = outside_sums(levels, members, written, j, level, scale)
        for begin in range(0, len(values), TILE):
            part = excess_sums(values[begin : begin + TILE], multiplier * l1_weight)
            count += part[0]
            total += part[1]
            squares += part[2]
        multiplier, best, factor, done = climb(
            multiplier, best, factor, count, total, squares, l1_weight, l2_weight, limit, precision_of(values)
        )
        if done:
            break
    return best, factor, members


@jit
def sweep_exact(
    gemm, atoms, data_code, code_gram, candidates, l1_weight, l2_weight, limit, positive, multipliers,
    matrix, written, thresholds, scales, step, levels, members,
):  # fmt: skip
    """Move the atoms one after the other on the mask, each followed by the projection of the whole atom.

    gemm: address of BLAS; atoms (k, s) in/out, up to date; data_code (k, s); code_gram (k, k) float64;
    candidates (block, s): scratch; multipliers (k,) in/out: where Newton's method starts.

    matrix (p, k): the dictionary as written, the mask's rows not yet changed; written (p,): the step that wrote each
    row, ``step`` for those of the mask; thresholds, scales (steps, k): the maps of the cycle up to each step, row
    ``step`` in/out, still that of the step before; levels in/out: without the mask's entries, which come in here.
    Return the members.
    """
    n_components, n_observed = atoms.shape
    weights, unmoved = weigh(code_gram, len(candidates), atoms.dtype.type(0))
    floor = least_curvature(code_gram)
    levels_now, written_now = np.empty(n_observed), np.full(n_observed, -1, np.int32)
    for j in range(n_components):
        values, curvature = candidates[j % len(candidates)], code_gram[j, j]
        for start in range(0, n_observed, TILE):
            prepare(gemm, weights, unmoved, atoms, j, start, min(start + TILE, n_observed), candidates)
        if curvature <= floor:
            members = add_entries(
                levels, members, j, atoms[j], thresholds[step, j], scales[step, j], levels_now, written_now
            )
            continue
        _, outside, squares = outside_sums(levels, members, written, j, thresholds[step, j], scales[step, j])
        size = l1_weight * outside + 0.5 * l2_weight * squares
        for start in range(0, n_observed, TILE):
            stop = min(start + TILE, n_observed)
            absolute, squares = candidate(data_code, atoms, weights, curvature, positive, j, start, stop, candidates)
            size += l1_weight * absolute + 0.5 * l2_weight * squares
        multiplier, factor = simple_multiplier(l1_weight, l2_weight, size, limit), 1.0
        if multiplier < 0.0:
            multiplier, factor, members = find_exact(
                values, l1_weight, l2_weight, limit, multipliers[j], j, levels, members, matrix, written,
                thresholds, scales, step,
            )  # fmt: skip
        if multiplier > 0.0:
            multipliers[j] = multiplier
            thresholds[step, j] += multiplier * l1_weight * scales[step, j]
            scales[step, j] *= (1.0 + multiplier * l2_weight) / factor
            move_place(levels, j, thresholds[step, j])
        for start in range(0, n_observed, TILE):
            stop = min(start + TILE, n_observed)
            commit(values[start:stop], multiplier, factor, l1_weight, l2_weight, atoms[j, start:stop])
        members = add_entries(
            levels, members, j, atoms[j], thresholds[step, j], scales[step, j], levels_now, written_now
        )
    return members
