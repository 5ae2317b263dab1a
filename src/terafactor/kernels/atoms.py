r"""One block-coordinate sweep over the atoms (Procedure 2 of the paper), as matrix products.

Atom j moves to :math:`P[d_j + (b_j - \sum_i c_{ji} d_i) / c_{jj}] = P[(b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}]`,
with the atoms before it already moved. For a block of atoms, what all atoms add that do not move before them in the
block is one matrix product with the dictionary as it is when the block begins. Those of the block that have moved are
added by a smaller product at the start of each group of atoms, and one by one inside the group. The result is that of
the plain sweep.

Several threads do it together, each on its own tiles of features. They wait for each other once per atom, to add up
its size, and once per step of Newton's method.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE
from terafactor.kernels.barrier import sum_tiles
from terafactor.kernels.blas import add_product
from terafactor.kernels.jit import jit
from terafactor.kernels.projection import absolute_and_squares, ball_size, find_multiplier, shrink

BLOCK, GROUP = 32, 4
"""Atoms in a block, and in a group of it: fewer make thin matrix products, more leave more to add one by one."""

UNUSED = 1e-12
"""An atom whose share of the codes' energy is below this is left where it is: its step would divide by nothing."""


@jit
def least_curvature(code_gram):
    """Return the ``c_jj`` up to which an atom stays where it is."""
    total = 0.0
    for j in range(len(code_gram)):
        total += code_gram[j, j]
    return UNUSED * total


@jit
def sweep_weights(code_gram, data_type):
    """Return what each atom i weighs in the candidate of atom j (k, k), and the same for the product of j's block.

    The first is ``-c_ji / c_jj``, zero for i = j and for atoms j that stay. In the second, atoms that move before j in
    its block weigh nothing.
    """
    n_components, floor = len(code_gram), least_curvature(code_gram)
    weights = np.empty((n_components, n_components), data_type)
    at_start = np.empty((n_components, n_components), data_type)
    for j in range(n_components):
        curvature = code_gram[j, j]
        for i in range(n_components):
            counts = i != j and curvature > floor
            weights[j, i] = -code_gram[j, i] / curvature if counts else 0.0
            at_start[j, i] = 0.0 if j - j % BLOCK <= i < j else weights[j, i]
    return weights, at_start


@jit
def candidate(data_code, atoms, weights, curvature, positive, j, start, stop, candidates):
    """Complete the candidate of atom j on one tile, ``(b_j - sum of c_ji d_i) / c_jj``, in its row of ``candidates``.

    data_code, atoms (k, s); weights: of :func:`sweep_weights`; start, stop: the tile; candidates (BLOCK, s) in/out: the
    products of block and group. Returns the sums of its absolute values and of its squares. Rows are sliced here and
    not by the caller: of a slice of a matrix, the compiler does not know that its rows are contiguous.
    """
    row, dtype = j % BLOCK, atoms.dtype.type
    new, target, inverse = candidates[row, start:stop], data_code[j, start:stop], dtype(1.0 / curvature)
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
    """Move the atoms one after the other, entries outside the mask fixed: the part of one thread.

    rank: number of the thread; barrier: address of the counter; gemm: address of BLAS; atoms (k, s) in/out;
    data_code (k, s); code_gram (k, k) float64; sizes (k,): psi of each atom over all features, zero when the mask is
    all of them; multipliers (k,) in/out: where Newton's method starts; candidates (BLOCK, s), partial (2, tiles, 4):
    scratch; new_sizes (k, tiles + 1) out: psi of each moved atom on each tile and, last, outside the mask.
    """
    n_components, n_observed = atoms.shape
    n_tiles, n_sums = partial.shape[1], 0
    first_tile, last_tile = rank * n_tiles // n_threads, (rank + 1) * n_tiles // n_threads
    weights, at_start = sweep_weights(code_gram, atoms.dtype)
    floor = least_curvature(code_gram)
    for j in range(n_components):
        moves = code_gram[j, j] > floor
        for tile in range(first_tile, last_tile):
            start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
            row = j % BLOCK
            if row == 0:
                block = at_start[j : j + BLOCK]
                add_product(gemm, block, atoms[:, start:stop], 0.0, candidates[: len(block), start:stop])
            elif row % GROUP == 0:
                group = weights[j : j + GROUP, j - row : j]
                moved = atoms[j - row : j, start:stop]
                add_product(gemm, group, moved, 1.0, candidates[row : row + len(group), start:stop])
            if moves:
                sums = partial[n_sums % 2, tile]
                sums[0], sums[1] = candidate(
                    data_code, atoms, weights, code_gram[j, j], positive, j, start, stop, candidates
                )
                if sizes[j] > 0.0:
                    sums[2], sums[3] = absolute_and_squares(atoms[j, start:stop])
        if not moves:
            continue
        new_absolute, new_squares, absolute, squares = sum_tiles(partial, n_sums, n_threads, barrier)
        # Without a mask ``sizes`` is zero, and so is this, whatever the last two sums hold.
        outside = max(sizes[j] - l1_weight * absolute - 0.5 * l2_weight * squares, 0.0)
        size = l1_weight * new_absolute + 0.5 * l2_weight * new_squares
        multiplier, factor, n_sums = find_multiplier(
            candidates[j % BLOCK], first_tile, last_tile, l1_weight, l2_weight, size, limit - outside, multipliers[j],
            partial, n_sums + 1, n_threads, barrier,
        )  # fmt: skip
        for tile in range(first_tile, last_tile):
            start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
            new = atoms[j, start:stop]
            shrink(candidates[j % BLOCK, start:stop], multiplier, factor, l1_weight, l2_weight, new)
            new_sizes[j, tile] = ball_size(new, l1_weight, l2_weight)
        if rank == 0:
            new_sizes[j, n_tiles] = outside
            if multiplier > 0.0 and not np.isinf(multiplier):
                multipliers[j] = multiplier


@jit
def add_sizes(features, l1_weight, l2_weight, sizes):
    """Add psi of the columns of ``features`` (p, k) to ``sizes`` (k,), reading each feature once."""
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
