"""Looking through many flags for the few that differ, eight at a time."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import data_of

WORD = 8
"""Flags in a word of 64 bits, each a byte that is zero or one."""

ALL, NONE, ONE = np.uint64(0x0101010101010101), np.uint64(0), np.uint64(1)


@intrinsic
def _word(typing, flags, at):
    """Return WORD flags of a flattened array as one number."""

    def codegen(context, builder, signature, args):
        (data,) = data_of(context, builder, signature, args, 0)
        return builder.load(builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer()), align=1)

    return types.uint64(flags, types.int64), codegen


@intrinsic
def _first(typing, word):
    """Return which byte of a word is the first that is not zero; one must not be."""

    def codegen(context, builder, signature, args):
        zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

    return types.int64(types.uint64), codegen


@jit
def find_unlike(flags, start, stop, usual, places):
    """Put in ``places`` where flags from start to stop of the flattened array are not ``usual``; return how many."""
    expected, found = ALL if usual else NONE, 0
    whole = stop - (stop - start) % WORD
    for at in range(start, whole, WORD):
        unlike = _word(flags, at) ^ expected
        while unlike != NONE:
            places[found] = at + _first(unlike)
            found += 1
            unlike &= unlike - ONE
    flat = flags.ravel()
    for at in range(whole, stop):
        if flat[at] != usual:
            places[found] = at
            found += 1
    return found
