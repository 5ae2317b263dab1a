"""Weighted sums of rows, in registers.

A loop that adds one row after the other loads and stores the sum each time; a compiler cannot keep it in registers,
since it cannot know that rows do not overlap.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from terafactor.kernels._jit import jit

REGISTER_BITS = 256
"""Of the registers that most processors have; others use two of theirs, or half of one."""

ROWS, VECTORS = 4, 3
"""Sums that are made at once, and registers of each: twelve, three of a row that is added and a weight fill 16."""


@intrinsic
def _add_rows(typing, target, to, source, at, width, weights, weight, weight_width, count):
    """``target[to + r * width + c] += sum over m < count of weights[weight + r * weight_width + m] *
    source[at + m * width + c]``, flattened arrays.
    """

    def codegen(context, builder, signature, args):
        _, to, _, at, width, _, weight, weight_width, count = args
        entry, number = signature.args[0].dtype, ir.IntType(64)
        size, lanes = entry.bitwidth // 8, REGISTER_BITS // entry.bitwidth
        vector = ir.VectorType(context.get_value_type(entry), lanes)
        target, source, weights = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2, 5)
        )

        def vectors(pointer):
            return [
                builder.bitcast(builder.gep(pointer, [ir.Constant(number, lanes * v)]), vector.as_pointer())
                for v in range(VECTORS)
            ]

        def rows_from(data, start, step):
            return [
                builder.gep(data, [builder.add(start, builder.mul(step, ir.Constant(number, r)))]) for r in range(ROWS)
            ]

        targets = [vectors(pointer) for pointer in rows_from(target, to, width)]
        mine = rows_from(weights, weight, weight_width)
        sums = [[cgutils.alloca_once(builder, vector) for _ in row] for row in targets]
        for row, totals in zip(targets, sums, strict=True):
            for pointer, total in zip(row, totals, strict=True):
                builder.store(builder.load(pointer, align=size), total)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        with cgutils.for_range_slice(builder, ir.Constant(number, 0), count, ir.Constant(number, 1)) as (m, _):
            pointers = vectors(builder.gep(source, [builder.add(at, builder.mul(m, width))]))
            values = [builder.load(pointer, align=size) for pointer in pointers]
            for start, totals in zip(mine, sums, strict=True):
                weight = builder.load(builder.gep(start, [m]))
                once = builder.insert_element(ir.Constant(vector, ir.Undefined), weight, ir.Constant(ir.IntType(32), 0))
                repeated = builder.shuffle_vector(once, once, everywhere)
                for value, total in zip(values, totals, strict=True):
                    product = builder.fmul(repeated, value, flags=("contract",))
                    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        for row, totals in zip(targets, sums, strict=True):
            for pointer, total in zip(row, totals, strict=True):
                builder.store(builder.load(total), pointer, align=size)
        return context.get_dummy_value()

    integer = types.int64
    signature = types.void(target, integer, source, integer, integer, weights, integer, integer, integer)
    return signature, codegen


@jit
def add_rows(weights, at, source, first, last, start, stop, target, row):
    """``target[row + r] += weights[at + r, first:last] @ source[first:last]`` for r < ROWS, from start to stop.

    weights (at + ROWS or more, k); source (k, s); target (row + ROWS or more, s) in/out.
    """
    width, n_weights = target.shape[1], weights.shape[1]
    step = VECTORS * (REGISTER_BITS // (8 * target.itemsize))
    whole = stop - (stop - start) % step
    for column in range(start, whole, step):
        _add_rows(
            target, row * width + column, source, first * width + column, width,
            weights, at * n_weights + first, n_weights, last - first,
        )  # fmt: skip
    for r in range(ROWS):
        for i in range(first, last):
            for column in range(whole, stop):
                target[row + r, column] += weights[at + r, i] * source[i, column]
