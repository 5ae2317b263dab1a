r"""One block-coordinate sweep over the atoms (Procedure 2 of the paper), as matrix products.

Atom j moves to :math:`P[d_j + (b_j - \sum_i c_{ji} d_i) / c_{jj}] = P[(b_j - \sum_{i \ne j} c_{ji} d_i) / c_{jj}]`,
with the atoms before it already moved. For a block of atoms, what the others add that do not move before them is one
matrix product with the dictionary as it is when the block begins. What is left are the atoms of the block that have
moved when an atom's turn comes: those before its group of four are added for all four together, in registers, and the
others one by one. The result is that of the plain sweep.

A team of threads does it together, each on its own tiles of features: the products and the moves need nothing from
elsewhere, and for each atom the threads meet once to add up its size, and once per step of Newton's method. An atom is
written when the next one is computed, in one pass over the tiles.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE, Executor, Part, features_of, n_tiles, nothing
from terafactor._typing import Array
from terafactor.kernels import _blas
from terafactor.kernels._blas import product
from terafactor.kernels._jit import jit
from terafactor.kernels._rows import ROWS, add_rows
from terafactor.kernels._team import DISMISSED, meet
from terafactor.kernels.projection import (
    MAX_NEWTON,
    ball_size,
    climb,
    excess_sums,
    precision_of,
    simple_multiplier,
)

BLOCK = 20
"""Most atoms in a block: fewer make thin matrix products, more leave more to add inside the block."""

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
def weigh(code_gram, width, zero):
    """Return what each atom i weighs in the candidate of atom j, twice (k + ROWS, k), in the precision of ``zero``.

    That is ``-c_ji / c_jj``, zero for i = j and for atoms j that stay; in the second also for those that move before j
    in its block of ``width`` atoms. What follows row k is zero.
    """
    n_components, floor = len(code_gram), least_curvature(code_gram)
    weights = np.full((n_components + ROWS, n_components), zero)
    unmoved = weights.copy()
    for j in range(n_components):
        curvature = code_gram[j, j]
        if curvature <= floor:
            continue
        for i in range(n_components):
            if i != j:
                weights[j, i] = -code_gram[j, i] / curvature
                unmoved[j, i] = zero if j - j % width <= i < j else weights[j, i]
    return weights, unmoved


@jit
def prepare(gemm, weights, unmoved, atoms, j, start, stop, values):
    """Add up in ``values`` what atoms add to the candidates of a block or a group that begins with atom j, on one tile.

    gemm: address of BLAS; weights, unmoved: of :func:`weigh`; atoms (k, s); start, stop: the tile; values (block, s)
    in/out. Where neither begins nothing is done.
    """
    n_components, n_observed = atoms.shape
    row = j % len(values)
    if row == 0:
        product(
            gemm, min(len(values), n_components - j), stop - start, n_components, unmoved, j * n_components,
            n_components, atoms, start, n_observed, values, start, n_observed,
        )  # fmt: skip
    elif row % ROWS == 0:
        add_rows(weights, j, atoms, j - row, j, start, stop, values, row)


@jit
def candidate(data_code, atoms, weights, curvature, positive, j, start, stop, values):
    """Complete the candidate of atom j in its row of ``values``, on one tile; return the sums of its |d| and d^2.

    data_code, atoms (k, s); weights: of :func:`weigh`; curvature: ``c_jj``; start, stop: the tile; values (block, s)
    in/out: of :func:`prepare`.
    """
    row, dtype = j % len(values), atoms.dtype.type
    new, target, inverse = values[row, start:stop], data_code[j, start:stop], dtype(1.0 / curvature)
    for i in range(len(new)):
        new[i] += inverse * target[i]
    for earlier in range(j - row % ROWS, j):
        weight, atom = weights[j, earlier], atoms[earlier, start:stop]
        for i in range(len(new)):
            new[i] += weight * atom[i]
    if positive:
        for i in range(len(new)):
            new[i] = max(new[i], dtype(0))
    return size_sums(new)


@jit
def size_sums(values):
    """Return the sums of |v| and of v^2."""
    absolute, squares = values.dtype.type(0), values.dtype.type(0)
    for i in range(len(values)):
        absolute += abs(values[i])
        squares += values[i] * values[i]
    return absolute, squares


@jit
def commit(values, multiplier, factor, l1_weight, l2_weight, atom):
    """Put the candidate ``values`` (w,), shrunk, in the atom (w,), on one tile; return psi of the new entries.

    Sums have a loop of their own: in one that also writes, compilers take another order where the two arrays happen to
    lie close together in memory, and last bits differ.
    """
    dtype = atom.dtype.type
    threshold, scale = dtype(multiplier * l1_weight), dtype(factor / (1.0 + multiplier * l2_weight))
    if np.isinf(multiplier):
        threshold, scale = dtype(0), dtype(0)
    for i in range(len(atom)):
        value = values[i]
        atom[i] = (max(value - threshold, dtype(0)) + min(value + threshold, dtype(0))) * scale
    absolute, squares = size_sums(atom)
    return l1_weight * float(absolute) + 0.5 * l2_weight * float(squares)


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
    """Return the multiplier of ``values`` (s,) by Newton's method from ``start``, its factor, and the meetings."""
    multiplier, best, factor = start, -1.0, 1.0
    for _ in range(MAX_NEWTON):
        sums = partial[meetings % 2]
        for tile in range(first_tile, last_tile):
            part = values[tile * TILE : (tile + 1) * TILE]
            sums[tile, 0], sums[tile, 1], sums[tile, 2] = excess_sums(part, multiplier * l1_weight)
        count, total, squares, _ = add_up(partial, meetings, size, counter)
        meetings += 1
        multiplier, best, factor, done = climb(
            multiplier, best, factor, count, total, squares, l1_weight, l2_weight, budget, precision_of(values)
        )
        if done:
            break
    return best, factor, meetings


@jit
def sweep_team(
    rank, size, counter, gemm, atoms, data_code, code_gram, values,
    l1_weight, l2_weight, limit, positive, sizes, outside, multipliers, partial, committed,
):  # fmt: skip
    """Move the atoms one after the other, entries outside the mask fixed: the part of one thread of a team.

    rank, size: which thread of how many; counter: address where they meet; gemm: address of BLAS.
    atoms (k, s) in/out; data_code (k, s); code_gram (k, k) float64; values (block, s): scratch; sizes (k,): psi of each
    atom over all features, zero when the mask is all of them; outside (k,) out: the part of it outside the mask;
    multipliers (k,) in/out: where Newton's method starts; partial (2, tiles, 4): scratch;
    committed (k, tiles) out: psi of each moved atom on each tile.
    """
    n_components, n_observed = atoms.shape
    n_parts, width = partial.shape[1], len(values)
    first_tile, last_tile = rank * n_parts // size, (rank + 1) * n_parts // size
    weights, unmoved = weigh(code_gram, width, atoms.dtype.type(0))
    floor = least_curvature(code_gram)
    meetings, pending, multiplier, factor = 0, -1, 0.0, 1.0  # the atom whose multiplier was found last, not yet written
    for j in range(n_components + 1):
        moves = j < n_components and code_gram[j, j] > floor
        for tile in range(first_tile, last_tile):
            start, stop = tile * TILE, min((tile + 1) * TILE, n_observed)
            if pending >= 0:
                committed[pending, tile] = commit(
                    values[pending % width, start:stop], multiplier, factor, l1_weight, l2_weight,
                    atoms[pending, start:stop],
                )  # fmt: skip
            if j < n_components:
                prepare(gemm, weights, unmoved, atoms, j, start, stop, values)
            if moves:
                sums = partial[meetings % 2, tile]
                sums[0], sums[1] = candidate(
                    data_code, atoms, weights, code_gram[j, j], positive, j, start, stop, values
                )
                if sizes[j] > 0.0:
                    sums[2], sums[3] = size_sums(atoms[j, start:stop])
        pending = -1
        if not moves:
            continue
        new1, new2, old1, old2 = add_up(partial, meetings, size, counter)
        meetings += 1
        rest = max(sizes[j] - l1_weight * old1 - 0.5 * l2_weight * old2, 0.0)
        budget, wanted = limit - rest, l1_weight * new1 + 0.5 * l2_weight * new2
        pending, multiplier, factor = j, simple_multiplier(l1_weight, l2_weight, wanted, budget), 1.0
        if multiplier < 0.0:
            multiplier, factor, meetings = find_together(
                values[j % width], first_tile, last_tile, l1_weight, l2_weight, budget, multipliers[j],
                partial, meetings, size, counter,
            )  # fmt: skip
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

    As few blocks as possible, of equal width, in whole groups of ROWS.
    """
    return ROWS * -(-n_components // (ROWS * -(-n_components // BLOCK)))


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
    values = np.empty((block_width(n_components), n_observed), atoms.dtype)
    counter = np.zeros(1, np.int64)
    partial, committed, outside = np.zeros((2, n_parts, 4)), np.empty((n_components, n_parts)), np.empty(n_components)
    gemm = _blas.address("gemm", atoms.dtype)
    sizes_before = np.zeros(n_components) if whole else sizes

    def work(rank: int, size: int) -> None:
        features = features_of(rank * n_parts // size, (rank + 1) * n_parts // size, n_observed)
        before(*features)
        sweep_team(
            rank, size, counter.ctypes.data, gemm, atoms, data_code, code_gram, values,
            *ball, sizes_before, outside, multipliers, partial, committed,
        )  # fmt: skip
        after(*features)

    executor.team(work, n_parts, dismiss=lambda: counter.fill(DISMISSED))
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
