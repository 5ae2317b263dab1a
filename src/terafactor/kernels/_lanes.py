"""Arithmetic on whole registers.

Rows of a few dozen numbers are too short for a compiler to vectorize well: it cannot know that their length is a
multiple of a register's, nor that two rows of one matrix do not overlap.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit

LANES = 8
"""Numbers handled together: a register of float32 on most processors of today."""


@intrinsic
def _subtract_multiple(typing, array, target, multiple, source):
    """``array[target : target + LANES] -= multiple * array[source : source + LANES]`` on a flattened array."""

    def codegen(context, builder, signature, args):
        array, target, multiple, source = args
        scalar = context.get_value_type(signature.args[0].dtype)
        vector, size = ir.VectorType(scalar, LANES), signature.args[0].dtype.bitwidth // 8
        data = context.make_array(signature.args[0])(context, builder, array).data
        to, of = (builder.bitcast(builder.gep(data, [at]), vector.as_pointer()) for at in (target, source))
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), multiple, ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        repeated = builder.shuffle_vector(first, first, everywhere)
        product = builder.fmul(repeated, builder.load(of, align=size), flags=("contract",))
        difference = builder.fsub(builder.load(to, align=size), product, flags=("contract",))
        builder.store(difference, to, align=size)
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype, types.int64), codegen


@jit
def subtract_multiple(matrix, row, multiple, other):
    """``matrix[row] -= multiple * matrix[other]``, row-major with rows of a multiple of ``LANES`` numbers."""
    width = matrix.shape[1]
    for start in range(0, width, LANES):
        _subtract_multiple(matrix, row * width + start, multiple, other * width + start)
