r"""One block-coordinate sweep over the atoms (Procedure 2 of the paper), as matrix products.

Atom j moves to :math:`P[d_j + (b_j - \sum_i c_{ji} d_i) / c_{jj}]`, with the atoms before it already moved. For a
block J of atoms, ``C_J D`` is one matrix product with the dictionary as it is when the block begins; the moves made
since, all inside the block, are subtracted when an atom's turn comes:
``b_j - (C_J D)_j - sum over earlier i in J of c_ji * (move of d_i)``. The result is that of the plain sweep.

A team of threads does it together, each on its own tiles of features: the matrix products and the moves need nothing
from elsewhere, and for each atom the threads meet once to add up its size, and once per step of Newton's method.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE, Executor, Part, features_of, n_tiles, nothing
from terafactor._typing import Array
from terafactor.kernels import _blas
from terafactor.kernels._blas import product
from terafactor.kernels._jit import jit
from terafactor.kernels._team import meet
from terafactor.kernels.projection import (
    MAX_NEWTON,
    ball_size,
    excess_sums,
    next_multiplier,
    precision_of,
    simple_multiplier,
)

BLOCK = 20
"""Most atoms in a block: fewer make thin matrix products, more make longer corrections inside the block."""

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
def candidate(atom, target, moves, row, start, coefficients, first, curvature, positive, gradient, sums):
    """Put ``d + (b - c D) / c_jj`` in ``moves[row]``, on one tile; put sums of |d|, d^2, of old and new, in ``sums``.

    atom, target (w,): the tile of d_j and b_j; moves (block, s) in/out: rows before ``row`` hold the moves made, the
    row itself holds ``c_j D``; start: where the tile begins; coefficients (k,): the row c_j; first: the first atom of
    the block; gradient (TILE,): scratch.
    """
    dtype = atom.dtype.type
    stop = start + len(atom)
    new = moves[row, start:stop]
    for i in range(len(atom)):
        gradient[i] = target[i] - new[i]
    earlier = 0
    while earlier + 3 < row:  # four moves at a time: one load and store of the gradient for four products
        c0, c1 = dtype(coefficients[first + earlier]), dtype(coefficients[first + earlier + 1])
        c2, c3 = dtype(coefficients[first + earlier + 2]), dtype(coefficients[first + earlier + 3])
        m0, m1 = moves[earlier, start:stop], moves[earlier + 1, start:stop]
        m2, m3 = moves[earlier + 2, start:stop], moves[earlier + 3, start:stop]
        for i in range(len(atom)):
            gradient[i] -= c0 * m0[i] + c1 * m1[i] + c2 * m2[i] + c3 * m3[i]
        earlier += 4
    while earlier < row:
        c0, m0 = dtype(coefficients[first + earlier]), moves[earlier, start:stop]
        for i in range(len(atom)):
            gradient[i] -= c0 * m0[i]
        earlier += 1
    inverse = dtype(1.0 / curvature)
    for i in range(len(atom)):
        new[i] = atom[i] + gradient[i] * inverse
    if positive:
        for i in range(len(atom)):
            new[i] = max(new[i], dtype(0))
    a0, a1, a2, a3 = dtype(0), dtype(0), dtype(0), dtype(0)
    for i in range(len(atom)):
        a0 += abs(atom[i])
        a1 += atom[i] * atom[i]
        a2 += abs(new[i])
        a3 += new[i] * new[i]
    sums[0], sums[1], sums[2], sums[3] = a0, a1, a2, a3


@jit
def commit(atom, values, multiplier, l1_weight, l2_weight):
    """Shrink the candidate ``values`` into the atom, leave the move in ``values``; return psi of the new entries.

    atom, values (w,) in/out, one tile.
    """
    dtype = atom.dtype.type
    threshold, scale = dtype(multiplier * l1_weight), dtype(1.0 / (1.0 + multiplier * l2_weight))
    if np.isinf(multiplier):
        threshold, scale = dtype(0), dtype(0)
    a0, a1 = dtype(0), dtype(0)
    for i in range(len(atom)):
        value = values[i]
        new = (max(value - threshold, dtype(0)) + min(value + threshold, dtype(0))) * scale
        values[i] = new - atom[i]
        atom[i] = new
        a0 += abs(new)
        a1 += new * new
    return l1_weight * float(a0) + 0.5 * l2_weight * float(a1)


@jit
def add_up(partial, meetings, size, counter):
    """Meet, and return the sums over tiles of what each thread left in ``partial`` (2, tiles, 4), in their order.

    The two sets of ``partial`` are used in turn: nobody overwrites what another still reads.
    """
    if size > 1:
        meet(counter, (meetings + 1) * size)
    sums = partial[meetings % 2]
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    for tile in range(len(sums)):
        a0 += sums[tile, 0]
        a1 += sums[tile, 1]
        a2 += sums[tile, 2]
        a3 += sums[tile, 3]
    return a0, a1, a2, a3


@jit
def find_together(values, first_tile, last_tile, l1_weight, l2_weight, budget, start, partial, meetings, size, counter):
    """Return the multiplier of ``values`` (s,) by Newton's method from ``start``, and the number of meetings so far."""
    multiplier = start
    for _ in range(MAX_NEWTON):
        sums = partial[meetings % 2]
        for tile in range(first_tile, last_tile):
            part = values[tile * TILE : (tile + 1) * TILE]
            sums[tile, 0], sums[tile, 1], sums[tile, 2] = excess_sums(part, multiplier * l1_weight)
        count, total, squares, _ = add_up(partial, meetings, size, counter)
        meetings += 1
        multiplier, done = next_multiplier(
            multiplier, count, total, squares, l1_weight, l2_weight, budget, precision_of(values)
        )
        if done:
            break
    return multiplier, meetings


@jit
def sweep_team(
    rank, size, counter, gemm, atoms, data_code, code_gram, moves,
    l1_weight, l2_weight, limit, positive, sizes, outside, multipliers, partial, committed,
):  # fmt: skip
    """Move the atoms one after the other, entries outside the mask fixed: the part of one thread of a team.

    rank, size: which thread of how many; counter: address where they meet; gemm: address of BLAS.
    atoms (k, s) in/out; data_code (k, s); code_gram (k, k) float64; moves (block, s): scratch; sizes (k,): psi of each
    atom over all features, zero when the mask is all of them; outside (k,) out: the part of it outside the mask;
    multipliers (k,) in/out: where Newton's method starts; partial (2, tiles, 4): scratch;
    committed (k, tiles) out: psi of each moved atom on each tile.
    """
    n_components, n_observed = atoms.shape
    n_parts, width = partial.shape[1], len(moves)
    first_tile, last_tile = rank * n_parts // size, (rank + 1) * n_parts // size
    gradient, mixing = np.empty(TILE, atoms.dtype), code_gram.astype(atoms.dtype)
    floor = least_curvature(code_gram)
    meetings = 0
    for first in range(0, n_components, width):
        last = min(first + width, n_components)
        for tile in range(first_tile, last_tile):  # moves = C_J D
            start = tile * TILE
            product(
                gemm, last - first, min(TILE, n_observed - start), n_components, mixing, first * n_components,
                n_components, atoms, start, n_observed, moves, start, n_observed,
            )  # fmt: skip
        for j in range(first, last):
            row, curvature = j - first, code_gram[j, j]
            if curvature <= floor:
                moves[row, first_tile * TILE : last_tile * TILE] = 0
                continue
            for tile in range(first_tile, last_tile):
                start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
                candidate(
                    atoms[j, start:stop], data_code[j, start:stop], moves, row, start, code_gram[j], first,
                    curvature, positive, gradient, partial[meetings % 2, tile],
                )  # fmt: skip
            old1, old2, new1, new2 = add_up(partial, meetings, size, counter)
            meetings += 1
            rest = max(sizes[j] - l1_weight * old1 - 0.5 * l2_weight * old2, 0.0)
            budget, wanted = limit - rest, l1_weight * new1 + 0.5 * l2_weight * new2
            multiplier = simple_multiplier(l1_weight, l2_weight, wanted, budget)
            if multiplier < 0.0:
                multiplier, meetings = find_together(
                    moves[row], first_tile, last_tile, l1_weight, l2_weight, budget, multipliers[j],
                    partial, meetings, size, counter,
                )  # fmt: skip
            for tile in range(first_tile, last_tile):
                start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
                values = moves[row, start:stop]
                committed[j, tile] = commit(atoms[j, start:stop], values, multiplier, l1_weight, l2_weight)
            if rank == 0:
                outside[j] = rest
                if multiplier > 0.0 and not np.isinf(multiplier):
                    multipliers[j] = multiplier


@jit
def take_sizes(code_gram, outside, committed, sizes):
    """Put in ``sizes`` (k,) psi of each atom that was moved: ``outside`` (k,) the mask and ``committed`` (k, tiles)."""
    floor = least_curvature(code_gram)
    for j in range(len(sizes)):
        if code_gram[j, j] > floor:
            size = outside[j]
            for tile in range(committed.shape[1]):
                size += committed[j, tile]
            sizes[j] = size


def block_width(n_components: int) -> int:
    """Return how many atoms make a block.

    As few blocks as possible, of equal width, a multiple of the four columns that BLAS works on together.
    """
    return 4 * -(-n_components // (4 * -(-n_components // BLOCK)))


def sweep_atoms(
    atoms: Array,
    data_code: Array,
    code_gram: Array,
    ball: tuple[float, float, float, bool],
    sizes: Array,
    multipliers: Array,
    *,
    whole: bool,
    executor: Executor,
    before: Part = nothing,
    after: Part = nothing,
) -> None:
    """Sweep once over all atoms on the observed features, each move followed by the projection on the ball.

    atoms (k, s) in/out; data_code (k, s); code_gram (k, k) float64; ball: weight of l1, weight of l2, limit, positive;
    sizes, multipliers (k,) in/out; whole: the features are all there are; before, after: what each thread does to its
    features first and last.
    """
    n_components, n_observed = atoms.shape
    n_parts = n_tiles(n_observed)
    moves = np.empty((block_width(n_components), n_observed), atoms.dtype)
    counter = np.zeros(1, np.int64)
    partial, committed, outside = np.zeros((2, n_parts, 4)), np.empty((n_components, n_parts)), np.empty(n_components)
    gemm = _blas.address("gemm", atoms.dtype)
    sizes_before = np.zeros(n_components) if whole else sizes

    def work(rank: int, size: int) -> None:
        features = features_of(rank * n_parts // size, (rank + 1) * n_parts // size, n_observed)
        before(*features)
        sweep_team(
            rank, size, counter.ctypes.data, gemm, atoms, data_code, code_gram, moves,
            *ball, sizes_before, outside, multipliers, partial, committed,
        )  # fmt: skip
        after(*features)

    executor.team(work, n_parts)
    take_sizes(code_gram, outside, committed, sizes)


def atom_sizes(dictionary: Array, l1_weight: float, l2_weight: float) -> Array:
    """Return psi of every atom, float64 (k,). dictionary (k, p) in either memory order, read once."""
    if dictionary.flags.c_contiguous:
        return np.array([ball_size(atom, l1_weight, l2_weight) for atom in dictionary])
    sizes = np.zeros(len(dictionary))
    add_sizes(dictionary.T, l1_weight, l2_weight, sizes)
    return sizes


@jit
def add_sizes(features, l1_weight, l2_weight, sizes):
    """Add psi of the columns of ``features`` (p, k) to ``sizes`` (k,)."""
    dtype = features.dtype.type
    linear, quadratic = dtype(l1_weight), dtype(0.5 * l2_weight)
    part = np.empty(features.shape[1], features.dtype)
    for start in range(0, len(features), TILE):
        part[:] = dtype(0)
        for feature in range(start, min(start + TILE, len(features))):
            entries = features[feature]
            for j in range(len(entries)):
                part[j] += linear * abs(entries[j]) + quadratic * entries[j] * entries[j]
        for j in range(len(part)):
            sizes[j] += part[j]
