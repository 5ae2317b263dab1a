r"""One block-coordinate sweep over the atoms (Procedure 2 of the paper), as matrix products.

Atom j moves to :math:`P[d_j + (b_j - \sum_i c_{ji} d_i) / c_{jj}]`, with the atoms before it already moved. For a
block J of atoms, ``C_J D`` is one matrix product with the dictionary as it is when the block begins; the moves made
since, all inside the block, are subtracted when an atom's turn comes:
``b_j - (C_J D)_j - sum over earlier i in J of c_ji * (move of d_i)``. The result is that of the plain sweep.
"""

from __future__ import annotations

import numpy as np

from terafactor._threads import Executor, tiles
from terafactor._typing import Array
from terafactor.kernels._jit import jit
from terafactor.kernels.projection import CHUNK, ball_size, find_multiplier

BLOCK = 24
"""Most atoms in a block: fewer make thin matrix products, more make longer corrections inside the block."""

UNUSED = 1e-12
"""An atom whose share of the codes' energy is below this is left where it is: its step would divide by nothing."""


@jit
def candidate(atom, data_code, moves, code_gram, j, first, l1_weight, l2_weight, positive):
    """Put ``d_j + (b_j - C_j D) / c_jj`` in ``moves[j - first]``; return psi of the atom and of the candidate.

    moves (block, s) in/out: rows before j - first hold the moves made, the row j - first holds ``C_j D``.
    """
    dtype = atom.dtype.type
    inverse = dtype(1.0 / code_gram[j, j])
    old_absolute, old_squared, new_absolute, new_squared = 0.0, 0.0, 0.0, 0.0
    gradient = np.empty(CHUNK, atom.dtype)
    for start in range(0, len(atom), CHUNK):  # slices of chunks with loops from zero: the form LLVM vectorizes
        stop = min(start + CHUNK, len(atom))
        old, target, new = atom[start:stop], data_code[start:stop], moves[j - first, start:stop]
        for i in range(len(old)):
            gradient[i] = target[i] - new[i]
        earlier = first
        while earlier + 3 < j:  # four moves at a time: one load and store of the gradient for four products
            c0, c1 = dtype(code_gram[j, earlier]), dtype(code_gram[j, earlier + 1])
            c2, c3 = dtype(code_gram[j, earlier + 2]), dtype(code_gram[j, earlier + 3])
            m0, m1 = moves[earlier - first, start:stop], moves[earlier - first + 1, start:stop]
            m2, m3 = moves[earlier - first + 2, start:stop], moves[earlier - first + 3, start:stop]
            for i in range(len(old)):
                gradient[i] -= c0 * m0[i] + c1 * m1[i] + c2 * m2[i] + c3 * m3[i]
            earlier += 4
        while earlier < j:
            c0 = dtype(code_gram[j, earlier])
            m0 = moves[earlier - first, start:stop]
            for i in range(len(old)):
                gradient[i] -= c0 * m0[i]
            earlier += 1
        for i in range(len(old)):
            new[i] = old[i] + gradient[i] * inverse
        if positive:
            for i in range(len(old)):
                new[i] = max(new[i], dtype(0))
        a0, a1, a2, a3 = dtype(0), dtype(0), dtype(0), dtype(0)
        for i in range(len(old)):
            a0 += abs(old[i])
            a1 += old[i] * old[i]
            a2 += abs(new[i])
            a3 += new[i] * new[i]
        old_absolute += a0
        old_squared += a1
        new_absolute += a2
        new_squared += a3
    return (
        l1_weight * old_absolute + 0.5 * l2_weight * old_squared,
        l1_weight * new_absolute + 0.5 * l2_weight * new_squared,
    )


@jit
def commit(atom, row, multiplier, l1_weight, l2_weight):
    """Shrink the candidate in ``row`` into the atom, leave the move in ``row``, and return psi of the new atom."""
    dtype = atom.dtype.type
    threshold, scale = dtype(multiplier * l1_weight), dtype(1.0 / (1.0 + multiplier * l2_weight))
    if np.isinf(multiplier):
        threshold, scale = dtype(0), dtype(0)
    absolute, squared = 0.0, 0.0
    for start in range(0, len(atom), CHUNK):
        entries, values = atom[start : start + CHUNK], row[start : start + CHUNK]
        a0, a1 = dtype(0), dtype(0)
        for i in range(len(entries)):
            value = values[i]
            new = (max(value - threshold, dtype(0)) + min(value + threshold, dtype(0))) * scale
            values[i] = new - entries[i]
            entries[i] = new
            a0 += abs(new)
            a1 += new * new
        absolute += a0
        squared += a1
    return l1_weight * absolute + 0.5 * l2_weight * squared


@jit
def sweep_block(
    atoms, data_code, moves, code_gram, first, l1_weight, l2_weight, limit, positive, whole, floor, sizes, multipliers
):
    """Move the atoms of one block, one after the other, entries outside the mask fixed.

    atoms (k, s) in/out; data_code (k, s); moves (block, s) in/out: ``C_J D`` on entry, the moves on return;
    code_gram (k, k); sizes (k,) in/out: psi of each atom over all features; multipliers (k,) in/out: start of Newton's
    method; whole: the mask is all the features; floor: ``c_jj`` below which an atom stays.
    """
    for j in range(first, first + len(moves)):
        atom, row = atoms[j], moves[j - first]
        if code_gram[j, j] <= floor:
            row[:] = atom.dtype.type(0)
            continue
        old, new = candidate(atom, data_code[j], moves, code_gram, j, first, l1_weight, l2_weight, positive)
        outside = 0.0 if whole else max(sizes[j] - old, 0.0)
        budget = limit - outside
        multiplier = find_multiplier(row, l1_weight, l2_weight, new, budget, multipliers[j])
        sizes[j] = outside + commit(atom, row, multiplier, l1_weight, l2_weight)
        if multiplier > 0.0 and not np.isinf(multiplier):
            multipliers[j] = multiplier


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
) -> None:
    """Sweep once over all atoms on the observed features, each move followed by the projection on the ball.

    atoms (k, s) in/out; data_code (k, s); code_gram (k, k) float64; ball: weight of l1, weight of l2, limit, positive;
    sizes, multipliers (k,) in/out; whole: the features are all there are.
    """
    n_components, n_observed = atoms.shape
    l1_weight, l2_weight, limit, positive = ball
    floor = UNUSED * float(code_gram.trace())
    mixing = code_gram.astype(atoms.dtype)
    width = -(-n_components // -(-n_components // BLOCK))  # as few blocks as possible, of equal width
    buffer = np.empty((width, n_observed), atoms.dtype)
    for first in range(0, n_components, width):
        moves = buffer[: min(width, n_components - first)]
        block = mixing[first : first + len(moves)]

        def mix(tile: slice, block: Array = block, moves: Array = moves) -> None:
            np.matmul(block, atoms[:, tile], out=moves[:, tile])

        executor.map(mix, tiles(n_observed))
        sweep_block(
            atoms, data_code, moves, code_gram, first,
            l1_weight, l2_weight, limit, positive, whole, floor, sizes, multipliers,
        )  # fmt: skip


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
    for start in range(0, len(features), CHUNK):
        part[:] = dtype(0)
        for feature in range(start, min(start + CHUNK, len(features))):
            entries = features[feature]
            for j in range(len(entries)):
                part[j] += linear * abs(entries[j]) + quadratic * entries[j] * entries[j]
        for j in range(len(part)):
            sizes[j] += part[j]
