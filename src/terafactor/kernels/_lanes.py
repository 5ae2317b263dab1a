"""Arithmetic on whole registers.

Rows of a few dozen numbers are too short for a compiler to vectorize well: it does most of them one number at a time,
since it cannot know that their length is close to a multiple of a register's, nor that two rows do not overlap.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import data_of, load, multiply_add, repeat, store, vector_of

LANES = 8
"""Numbers handled together: a register of float32 on most processors of today."""


@intrinsic
def _add_multiple(typing, target, to, multiple, source, of):
    """``target[to : to + LANES] += multiple * source[of : of + LANES]`` on flattened arrays."""

    def codegen(context, builder, signature, args):
        _, to, multiple, _, of = args
        target, source = data_of(context, builder, signature, args, 0, 3)
        vector = vector_of(context, signature.args[0].dtype, LANES)
        added, total = load(builder, source, of, vector), load(builder, target, to, vector)
        store(builder, multiply_add(builder, repeat(builder, multiple, vector), added, total), target, to, vector)
        return context.get_dummy_value()

    return types.void(target, types.int64, target.dtype, source, types.int64), codegen


@jit
def add_multiple(target, row, multiple, source, other):
    """``target[row] += multiple * source[other]``, two rows. target, source: row-major, of the same width."""
    width = target.shape[1]
    to, of = row * width, other * width
    whole = width - width % LANES
    for j in range(0, whole, LANES):
        _add_multiple(target, to + j, multiple, source, of + j)
    for j in range(whole, width):
        target[row, j] += multiple * source[other, j]
