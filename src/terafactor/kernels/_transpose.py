"""Transposing small squares in registers."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._registers import data_of

SIDE = 8
"""Entries in a side of a square: eight numbers of 32 bits fill a register of today's processors."""


@intrinsic
def transpose_square(typing, source, starts, target, ends):
    """Copy eight runs of eight entries of ``source`` such that entry i of run j becomes entry j of run i of ``target``.

    source, target: contiguous arrays; starts, ends: tuples of the places, in the flattened array, where runs begin.
    """

    def codegen(context, builder, signature, args):
        source, target = data_of(context, builder, signature, args, 0, 2)
        starts, ends = ([builder.extract_value(args[place], i) for i in range(SIDE)] for place in (1, 3))
        entry = context.get_value_type(signature.args[0].dtype)
        align = entry.get_abi_size(context.target_data)
        vector = ir.VectorType(entry, SIDE).as_pointer()
        rows = [builder.load(builder.bitcast(builder.gep(source, [at]), vector), align=align) for at in starts]
        for _ in range(3):  # each time, rows that lie half of the square apart are interleaved
            pairs = [(rows[i], rows[i + SIDE // 2]) for i in range(SIDE // 2)]
            rows = [_interleaved(builder, *pair, first) for pair in pairs for first in (0, SIDE // 2)]
        for row, at in zip(rows, ends, strict=True):
            builder.store(row, builder.bitcast(builder.gep(target, [at]), vector), align=align)
        return context.get_dummy_value()

    places = types.UniTuple(types.int64, SIDE)
    return types.void(source, places, target, places), codegen


def _interleaved(builder, one, other, first):
    """Return half of each of two vectors, from entry ``first`` on, in turns."""
    order = [place for i in range(first, first + SIDE // 2) for place in (i, SIDE + i)]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), SIDE), order))
