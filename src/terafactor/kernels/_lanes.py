"""Arithmetic on whole registers.

Rows of a few dozen numbers are too short for a compiler to vectorize well: it does most of them one number at a time,
since it cannot know that their length is close to a multiple of a register's, nor that two rows do not overlap.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit

LANES = 8
"""Numbers handled together: a register of float32 on most processors of today."""


@intrinsic
def _add_multiple(typing, target, to, multiple, source, of):
    """``target[to : to + LANES] += multiple * source[of : of + LANES]`` on flattened arrays."""

    def codegen(context, builder, signature, args):
        _, to, multiple, _, of = args
        entry = signature.args[0].dtype
        vector, size = ir.VectorType(context.get_value_type(entry), LANES), entry.bitwidth // 8
        target, source = (
            builder.bitcast(
                builder.gep(context.make_array(signature.args[i])(context, builder, args[i]).data, [at]),
                vector.as_pointer(),
            )
            for i, at in ((0, to), (3, of))
        )
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), multiple, ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        repeated = builder.shuffle_vector(first, first, everywhere)
        product = builder.fmul(repeated, builder.load(source, align=size), flags=("contract",))
        total = builder.fadd(builder.load(target, align=size), product, flags=("contract",))
        builder.store(total, target, align=size)
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
