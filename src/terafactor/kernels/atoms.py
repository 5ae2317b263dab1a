r"""One block-coordinate sweep over the atoms (Procedure 2 of the paper), as matrix products.

Atom j moves to its candidate :math:`(b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}`, projected on the ball, and atoms after
it see the new one. Matrix products need several atoms at a time, so the sum is split: atoms outside j's block, or after
j, enter by one product at the start of the block; atoms of the block that have moved enter by a smaller product at the
start of each group of :data:`GROUP` atoms, and one by one inside the group. The result is that of the plain sweep.

Threads share the sweep, each on its own tiles of features. They synchronize once per atom, to add up its size, and
once per Newton step of its projection.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.barrier import sum_tiles
from terafactor.kernels.blas import add_product
from terafactor.kernels.jit import jit
from terafactor.kernels.projection import absolute_and_squares, ball_size, find_multiplier, project, shrink

GROUP, BLOCK = 4, 32
"""Atoms in a group and in a long block."""

CACHE_BYTES = 2**19
"""Size up to which a tile of the dictionary stays in the second-level cache of most processors."""

UNUSED = 1e-12
"""Share of the codes' energy below which an atom does not move: its candidate would be a division by zero."""


def block_length(n_components: int, itemsize: int) -> int:
    """Return how many atoms make a block.

    Each block multiplies with the whole dictionary. Short blocks leave less to add one by one, and take 30 % less time
    as long as the dictionary is read from the cache; from memory they take three times as long.
    """
    return min(GROUP if n_components * TILE * itemsize <= CACHE_BYTES else BLOCK, n_components)


@jit
def least_curvature(code_gram):
    """Return ``UNUSED * np.trace(code_gram)``: atoms j whose ``c_jj`` is not larger do not move."""
    total = 0.0
    for j in range(len(code_gram)):
        total += code_gram[j, j]
    return UNUSED * total


@jit
def sweep_weights(code_gram, block, data_type):
    """Return the weight of each atom i in the candidate of atom j (k, k), and in the product that starts j's block.

    The first is ``-c_ji / c_jj``, zero for i = j and for atoms j that do not move. The second is zero also for atoms
    that move before j in its block: they enter later, in their new positions.
    """
    n_components, floor = len(code_gram), least_curvature(code_gram)
    weights = np.empty((n_components, n_components), data_type)
    at_start = np.empty((n_components, n_components), data_type)
    for j in range(n_components):
        curvature = code_gram[j, j]
        for i in range(n_components):
            weights[j, i] = -code_gram[j, i] / curvature if i != j and curvature > floor else 0.0
            at_start[j, i] = 0.0 if j - j % block <= i < j else weights[j, i]
    return weights, at_start


@jit
def start_candidates(gemm, weights, at_start, atoms, j, start, stop, candidates):
    """If atom j is the first of a block or group, add the products of that block or group to its candidates.

    gemm: address of BLAS; weights, at_start: from :func:`sweep_weights`; atoms (k, s); start, stop: the tile;
    candidates (block, s) in/out.
    """
    row = j % len(candidates)
    if row == 0:
        block = at_start[j : j + len(candidates)]
        add_product(gemm, block, atoms[:, start:stop], 0.0, candidates[: len(block), start:stop])
    elif row % GROUP == 0:
        group = weights[j : j + GROUP, j - row : j]
        add_product(gemm, group, atoms[j - row : j, start:stop], 1.0, candidates[row : row + len(group), start:stop])


@jit
def finish_candidate(data_code, atoms, weights, inverse, positive, j, start, stop, candidates):
    """Complete the candidate of atom j on one tile, in its row of ``candidates`` (block, s) in/out.

    data_code, atoms (k, s); inverse: ``1 / c_jj``, in float64 where it may overflow float32. Returns the sums of
    absolute values and of squares. Rows are sliced here and not by the caller: of a slice of a matrix, the compiler
    does not know that its rows are contiguous.
    """
    row, dtype = j % len(candidates), atoms.dtype.type
    new, target = candidates[row, start:stop], data_code[j, start:stop]
    for i in range(len(new)):
        new[i] += inverse * target[i]
    for moved in range(j - row % GROUP, j):
        weight, atom = weights[j, moved], atoms[moved, start:stop]
        for i in range(len(new)):
            new[i] += weight * atom[i]
    if positive:
        for i in range(len(new)):
            new[i] = max(new[i], dtype(0))
    return absolute_and_squares(new)


@jit
def sweep_tiles(
    rank, n_threads, barrier, gemm, atoms, data_code, code_gram, l1_weight, l2_weight, limit, positive, sizes,
    multipliers, candidates, partial, new_sizes,
):  # fmt: skip
    """Move the atoms one after the other, entries outside the mask fixed: the share of one thread.

    rank: number of the thread; barrier: address of the counter; gemm: address of BLAS; atoms (k, s) in/out;
    data_code (k, s); code_gram (k, k) float64; sizes (k,): psi of each atom over all features, zero when the mask is
    all of them; multipliers (k,) in/out: where Newton's method starts; candidates (block, s), partial (2, tiles, 4):
    scratch; new_sizes (k, tiles + 1) out: psi of each moved atom on each tile and, last, outside the mask.
    """
    n_components, n_observed = atoms.shape
    n_tiles, n_sums = partial.shape[1], np.int64(0)  # not a literal: see jit.py
    first_tile, last_tile = rank * n_tiles // n_threads, (rank + 1) * n_tiles // n_threads
    weights, at_start = sweep_weights(code_gram, len(candidates), atoms.dtype)
    floor, dtype = least_curvature(code_gram), atoms.dtype.type
    for j in range(n_components):
        curvature, row = code_gram[j, j], j % len(candidates)
        for tile in range(first_tile, last_tile):
            start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
            start_candidates(gemm, weights, at_start, atoms, j, start, stop, candidates)
            if curvature > floor:
                sums = partial[n_sums % 2, tile]
                sums[0], sums[1] = finish_candidate(
                    data_code, atoms, weights, dtype(1.0 / curvature), positive, j, start, stop, candidates
                )
                if sizes[j] > 0.0:
                    sums[2], sums[3] = absolute_and_squares(atoms[j, start:stop])
        if curvature <= floor:
            continue
        new_absolute, new_squares, absolute, squares = sum_tiles(partial, n_sums, n_threads, barrier)
        # Without a mask ``sizes`` is zero, and so is this, whatever the last two sums hold.
        outside = max(sizes[j] - l1_weight * absolute - 0.5 * l2_weight * squares, 0.0)
        size = l1_weight * new_absolute + 0.5 * l2_weight * new_squares
        multiplier, factor, n_sums = find_multiplier(
            candidates[row], first_tile, last_tile, l1_weight, l2_weight, size, limit - outside, multipliers[j],
            partial, n_sums + 1, n_threads, barrier,
        )  # fmt: skip
        for tile in range(first_tile, last_tile):
            start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
            new = atoms[j, start:stop]
            shrink(candidates[row, start:stop], multiplier, factor, l1_weight, l2_weight, new)
            new_sizes[j, tile] = ball_size(new, l1_weight, l2_weight)
        if rank == 0:
            new_sizes[j, n_tiles] = outside
            if multiplier > 0.0 and not np.isinf(multiplier):
                multipliers[j] = multiplier


@jit
def sweep_whole_atoms(
    gemm, atoms, data_code, code_gram, l1_weight, l2_weight, limit, positive, columns, candidates, partial, dictionary,
    sizes,
):  # fmt: skip
    """Move the atoms one after the other on the mask, and project each as a whole.

    atoms (k, s) in/out: ``dictionary[:, columns]``; columns (s,): the mask; candidates (block, s), partial
    (2, tiles of p, 4): scratch; dictionary (k, p) in/out; sizes (k,) in/out: psi of the atoms; others as in
    :func:`sweep_tiles`.
    """
    n_components, n_observed = atoms.shape
    weights, at_start = sweep_weights(code_gram, len(candidates), atoms.dtype)
    floor = least_curvature(code_gram)
    for j in range(n_components):
        atom, whole, moved = atoms[j], dictionary[j], candidates[j % len(candidates)]
        for start in range(0, n_observed, TILE):
            stop = min(start + TILE, n_observed)
            start_candidates(gemm, weights, at_start, atoms, j, start, stop, candidates)
            if code_gram[j, j] > floor:
                finish_candidate(data_code, atoms, weights, 1.0 / code_gram[j, j], False, j, start, stop, candidates)
        if code_gram[j, j] > floor:
            for i in range(n_observed):
                whole[columns[i]] = moved[i]
            sizes[j] = project(whole, l1_weight, l2_weight, limit, positive, partial)
            for i in range(n_observed):
                atom[i] = whole[columns[i]]


@jit
def add_sizes(features, l1_weight, l2_weight, sizes):
    """Add psi of the columns of ``features`` (p, k) to ``sizes`` (k,) in/out, reading each feature once.

    Features of a tile are added in the precision of the data, tiles in float64.
    """
    dtype = features.dtype.type
    linear, quadratic = dtype(l1_weight), dtype(0.5 * l2_weight)
    part = np.empty(features.shape[1], features.dtype)
    for start in range(0, len(features), TILE):
        for j in range(len(part)):
            part[j] = dtype(0)
        for feature in range(start, min(start + TILE, len(features))):
            entries = features[feature]
            for j in range(len(entries)):
                part[j] += linear * abs(entries[j]) + quadratic * entries[j] * entries[j]
        for j in range(len(part)):
            sizes[j] += part[j]
