r"""Sums over the entries of an atom that nobody visits, for any threshold, without visiting them.

Between two visits an entry d of atom j only goes through maps :math:`x \mapsto S_a(x) / c`, a soft threshold and a
division, one per projection (:mod:`terafactor.kernels.lazy`). With :math:`A_j, C_j` the threshold and the scale of all
the maps since the beginning of the cycle, an entry written when they were :math:`(A, C)` has from then on the magnitude
:math:`(E - A_j)_+ / C_j` with a *level* :math:`E = |d| C + A` that never changes: the entry dies when :math:`A_j`
passes its level. All that a projection needs, count, sum and sum of squares of the magnitudes left by a threshold,
follows from count, sum and sum of squares of the levels above a number.

Levels are kept in buckets of equal width between an origin and a horizon, each with its three sums and a chained list
of its members; levels beyond the horizon are only summed. A question at a given level takes the sums of everything
above the current bucket, less the buckets in between, plus the members of the bucket that the level falls into. As
:math:`A_j` only grows, each bucket is left behind once. Where a projection passes the horizon, the atom is scanned
once and the horizon set to twice as far, hence a few times per cycle at most.

In a cycle each feature is written once (:class:`terafactor.solver.lazy.LazyAtoms` sees to it), so entries that were
there when the cycle began may leave, when their feature is visited, and the entries put in their place stay until its
end. Members of lists that left are recognised by the step that wrote their feature, and skipped.
"""

from typing import NamedTuple

import numpy as np

from terafactor._typing import Array
from terafactor.kernels._jit import jit


class Levels(NamedTuple):
    """Levels of the entries of k atoms, as arrays that kernels take together. All float64 unless said."""

    above: Array
    """Count, sum and sum of squares of the levels in buckets above the current one and beyond the horizon (k, 3)."""

    near: Array
    """The same of each bucket (k, buckets, 3)."""

    head: Array
    """First member of the list of each bucket, -1 for none (k, buckets), int64."""

    place: Array
    """The current bucket, that of the atom's threshold (k,), int64."""

    origin: Array
    """Where buckets begin; levels up to here count no more (k,)."""

    horizon: Array
    """Where they end (k,)."""

    rate: Array
    """Buckets per unit of level (k,); 0 without buckets."""


class Members(NamedTuple):
    """Members of the lists of all buckets, in one pool."""

    level: Array
    """Level of each member (n,), float64."""

    feature: Array
    """Its feature, -1 for those written in this cycle (n,), int32."""

    following: Array
    """The next member of the same list, -1 at its end (n,), int64."""

    used: Array
    """How many places of the pool are taken (1,), int64."""


@jit
def grown(members):
    """Return the members in a pool of twice the size."""
    size = len(members.level)
    level, feature = np.empty(2 * size + 64, np.float64), np.empty(2 * size + 64, np.int32)
    following = np.empty(2 * size + 64, np.int64)
    level[:size], feature[:size], following[:size] = members.level, members.feature, members.following
    return Members(level, feature, following, members.used)


@jit
def bucket_of(levels, j, level):
    """Return the bucket of a level below the horizon."""
    bucket = int((level - levels.origin[j]) * levels.rate[j])
    return min(max(bucket, 0), levels.near.shape[1] - 1)


@jit
def add_to(sums, sign, level):
    """Add a level to count, sum and sum of squares (3,) in/out, or take it away with ``sign`` -1."""
    sums[0] += sign
    sums[1] += sign * level
    sums[2] += sign * level * level


@jit
def add_level(levels, members, j, level, feature):
    """Count a level of atom j in; return the members, in a larger pool if it was full."""
    if level < levels.horizon[j]:
        bucket = bucket_of(levels, j, level)
        add_to(levels.near[j, bucket], 1.0, level)
        node = members.used[0]
        if node == len(members.level):
            members = grown(members)
        members.level[node], members.feature[node] = level, feature
        members.following[node] = levels.head[j, bucket]
        levels.head[j, bucket] = node
        members.used[0] = node + 1
        if bucket <= levels.place[j]:
            return members
    add_to(levels.above[j], 1.0, level)
    return members


@jit
def remove_level(levels, j, level):
    """Count a level of atom j out. Its place in a list stays: the step that wrote its feature tells that it left."""
    if level <= levels.origin[j]:
        return
    if level < levels.horizon[j]:
        bucket = bucket_of(levels, j, level)
        add_to(levels.near[j, bucket], -1.0, level)
        if bucket <= levels.place[j]:
            return
    add_to(levels.above[j], -1.0, level)


@jit
def clear_levels(levels, j, origin, horizon):
    """Forget the levels of atom j, and cut buckets between an origin and a horizon."""
    levels.above[j], levels.near[j], levels.head[j], levels.place[j] = 0.0, 0.0, -1, 0
    levels.origin[j], levels.horizon[j] = origin, horizon
    levels.rate[j] = levels.near.shape[1] / (horizon - origin) if horizon > origin else 0.0


@jit
def open_levels(matrix, levels, members):
    """Count in the entries of all atoms at the beginning of a cycle, where levels are magnitudes; return the members.

    matrix (p, k); levels out, save ``horizon``, which says how far to cut buckets.
    """
    members.used[0] = 0
    for j in range(matrix.shape[1]):
        clear_levels(levels, j, 0.0, levels.horizon[j])
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            level = float(abs(matrix[i, j]))
            if level > 0.0:
                members = add_level(levels, members, j, level, i)
    return members


@jit
def scan_levels(levels, members, j, origin, horizon, matrix, written, thresholds, scales, step):
    """Count in the entries of atom j above an origin, anew; return the members.

    matrix (p, k) as written, written (p,) the steps that wrote its rows; rows of this step are left out;
    thresholds, scales (steps, k): the maps of the cycle up to each step.
    """
    clear_levels(levels, j, origin, horizon)
    for i in range(len(written)):
        stamp = written[i]
        if stamp == step:
            continue
        level = float(abs(matrix[i, j])) * scales[stamp, j] + thresholds[stamp, j]
        if level > origin:
            members = add_level(levels, members, j, level, i if stamp == 0 else -1)
    return members


@jit
def sums_above(levels, members, written, j, level):
    """Return count, sum and sum of squares of the levels of atom j above ``level``, which is below the horizon."""
    place = levels.place[j]
    bucket = max(bucket_of(levels, j, level), place)
    count, total, squares = levels.above[j, 0], levels.above[j, 1], levels.above[j, 2]
    for passed in range(place + 1, bucket + 1):
        count -= levels.near[j, passed, 0]
        total -= levels.near[j, passed, 1]
        squares -= levels.near[j, passed, 2]
    node = levels.head[j, bucket]
    while node >= 0:
        member, feature = members.level[node], members.feature[node]
        if member > level and (feature < 0 or written[feature] == 0):
            count += 1.0
            total += member
            squares += member * member
        node = members.following[node]
    return count, total, squares


@jit
def move_place(levels, j, level):
    """Leave behind the buckets below that of ``level``, the atom's new threshold."""
    bucket = bucket_of(levels, j, level)
    for passed in range(levels.place[j] + 1, bucket + 1):
        for n in range(3):
            levels.above[j, n] -= levels.near[j, passed, n]
    levels.place[j] = max(bucket, levels.place[j])
