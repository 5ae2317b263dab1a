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
once and the horizon set to several times as far, hence a few times per cycle at most.

In a cycle each feature is written once (:class:`terafactor.solver.lazy.LazyAtoms` sees to it), so entries that were
there when the cycle began may leave, when their feature is visited, and the entries put in their place stay until its
end. Members of lists that left are recognised by the step that wrote their feature, and skipped.
"""

from typing import NamedTuple

import numpy as np

from terafactor._typing import Array
from terafactor.kernels._jit import jit

PIECE = 1024
"""Entries whose levels are computed together: a piece of all atoms stays in the second-level cache."""


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

    work: Array
    """Entries that scans went through, and buckets and members that questions did, since the start (k, 2), int64."""


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
def with_room(members, n_more):
    """Return the members in a pool that has room for ``n_more``: the same, or one of twice the size or more."""
    size = len(members.level)
    needed = members.used[0] + n_more
    if needed <= size:
        return members
    larger = max(2 * size, needed)
    level, feature, following = np.empty(larger), np.empty(larger, np.int32), np.empty(larger, np.int64)
    level[:size], feature[:size], following[:size] = members.level, members.feature, members.following
    return Members(level, feature, following, members.used)


@jit
def bucket_at(level, origin, rate, n_buckets):
    """Return the bucket of a level below the horizon."""
    return min(max(int((level - origin) * rate), 0), n_buckets - 1)


@jit
def add_beyond(above, j, values, sign):
    """Add ``sign`` times the sums of the positive ones of the levels ``values`` (n,) to ``above`` (k, 3) in/out."""
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(len(values)):
        level = max(values[i], 0.0)
        count += 1.0 if level > 0.0 else 0.0
        total += level
        squares += level * level
    above[j, 0] += sign * count
    above[j, 1] += sign * total
    above[j, 2] += sign * squares


@jit
def add_levels(levels, members, j, values, features):
    """Count levels of atom j in, those above its origin; return the members.

    values (n,): levels; features (n,): their features, -1 for those written in this cycle.
    """
    origin, horizon, rate, place = levels.origin[j], levels.horizon[j], levels.rate[j], levels.place[j]
    if horizon <= origin:
        add_beyond(levels.above, j, values, 1.0)
        return members
    members = with_room(members, len(values))
    near, head, used = levels.near, levels.head, members.used[0]
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(len(values)):
        level = values[i]
        if level <= origin:
            continue
        if level < horizon:
            bucket = bucket_at(level, origin, rate, near.shape[1])
            near[j, bucket, 0] += 1.0
            near[j, bucket, 1] += level
            near[j, bucket, 2] += level * level
            members.level[used], members.feature[used], members.following[used] = level, features[i], head[j, bucket]
            head[j, bucket] = used
            used += 1
            if bucket <= place:
                continue
        count += 1.0
        total += level
        squares += level * level
    members.used[0] = used
    levels.above[j, 0] += count
    levels.above[j, 1] += total
    levels.above[j, 2] += squares
    return members


@jit
def remove_levels(levels, j, values):
    """Count levels (n,) of atom j out, those above its origin.

    Their places in lists stay: the step that wrote their features tells that they left.
    """
    origin, horizon, rate, place = levels.origin[j], levels.horizon[j], levels.rate[j], levels.place[j]
    if horizon <= origin:
        add_beyond(levels.above, j, values, -1.0)
        return
    near = levels.near
    count, total, squares = 0.0, 0.0, 0.0
    for i in range(len(values)):
        level = values[i]
        if level <= origin:
            continue
        if level < horizon:
            bucket = bucket_at(level, origin, rate, near.shape[1])
            near[j, bucket, 0] -= 1.0
            near[j, bucket, 1] -= level
            near[j, bucket, 2] -= level * level
            if bucket <= place:
                continue
        count += 1.0
        total += level
        squares += level * level
    levels.above[j, 0] -= count
    levels.above[j, 1] -= total
    levels.above[j, 2] -= squares


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
    values, features = np.empty(PIECE), np.empty(PIECE, np.int32)
    for start in range(0, matrix.shape[0], PIECE):
        n = min(PIECE, matrix.shape[0] - start)
        for i in range(n):
            features[i] = start + i
        for j in range(matrix.shape[1]):
            for i in range(n):
                values[i] = abs(matrix[start + i, j])
            members = add_levels(levels, members, j, values[:n], features[:n])
    return members


@jit
def scan_levels(levels, members, j, origin, horizon, matrix, written, thresholds, scales, step):
    """Count in the entries of atom j above an origin, anew; return the members.

    matrix (p, k) as written, written (p,) the steps that wrote its rows; rows of this step are left out;
    thresholds, scales (steps, k): the maps of the cycle up to each step.
    """
    clear_levels(levels, j, origin, horizon)
    levels.work[j, 0] += len(written)
    values, features = np.empty(PIECE), np.empty(PIECE, np.int32)
    for start in range(0, len(written), PIECE):
        n = min(PIECE, len(written) - start)
        for i in range(n):
            stamp = written[start + i]
            features[i] = start + i if stamp == 0 else -1
            values[i] = abs(matrix[start + i, j]) * scales[stamp, j] + thresholds[stamp, j] if stamp != step else 0.0
        members = add_levels(levels, members, j, values[:n], features[:n])
    return members


@jit
def sums_above(levels, members, written, j, level):
    """Return count, sum and sum of squares of the levels of atom j above ``level``, which is below the horizon."""
    place = levels.place[j]
    bucket = max(bucket_at(level, levels.origin[j], levels.rate[j], levels.near.shape[1]), place)
    count, total, squares = levels.above[j, 0], levels.above[j, 1], levels.above[j, 2]
    for passed in range(place + 1, bucket + 1):
        count -= levels.near[j, passed, 0]
        total -= levels.near[j, passed, 1]
        squares -= levels.near[j, passed, 2]
    levels.work[j, 1] += bucket - place
    node = levels.head[j, bucket]
    while node >= 0:
        levels.work[j, 1] += 1
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
    bucket = bucket_at(level, levels.origin[j], levels.rate[j], levels.near.shape[1])
    for passed in range(levels.place[j] + 1, bucket + 1):
        for n in range(3):
            levels.above[j, n] -= levels.near[j, passed, n]
    levels.place[j] = max(bucket, levels.place[j])
