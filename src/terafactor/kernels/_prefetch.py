"""Asking memory for what a kernel will need soon."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import data_of

LINE_BYTES = 64
"""What memory hands over at once, on the processors of today."""


@intrinsic
def _prefetch(typing, array, offset):
    """Start loading the entry ``offset`` of a flattened array into the caches."""

    def codegen(context, builder, signature, args):
        (data,) = data_of(context, builder, signature, args, 0)
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], function_type)
        read, keep, data_cache = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [pointer, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@jit
def prefetch_rows(matrix, rows, start, stop):
    """Start loading ``matrix[rows[start:stop]]``, row-major: rows in random places cost the latency of memory each."""
    width = matrix.shape[1]
    for i in range(start, min(stop, len(rows))):
        for first in range(0, width, LINE_BYTES // matrix.itemsize):
            _prefetch(matrix, rows[i] * width + first)
