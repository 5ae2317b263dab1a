"""Inner products of the rows of a matrix with each other, in registers.

``syrk`` of the BLAS libraries of today is made for large results: on some dozens of rows of thousands of entries it
takes up to twice as long.
"""

from __future__ import annotations

import itertools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import NUMBER, REGISTER_BITS, data_of, load, multiply_add, rows_from, vector_of

FEW = 100
"""Rows up to which this is as fast as BLAS, or faster."""

ROWS, OTHERS = 4, 3
"""Rows that are multiplied with others at once: twelve sums, four rows and one of the others fill 16 registers."""


@intrinsic
def _inner_products(typing, matrix, row, other, width, length, out, at, stride):
    """Put the inner products of ROWS rows with OTHERS in ``out[at + i * stride + j]``, a flattened array.

    row, other: where the first row of each begins in the flattened matrix; width: from a row to the next; length: how
    many entries count, of which those that do not fill a register are left out.
    """

    def codegen(context, builder, signature, args):
        _, row, other, width, length, _, at, stride = args
        matrix, target = data_of(context, builder, signature, args, 0, 5)
        vector = vector_of(context, signature.args[0].dtype)
        rows, others = rows_from(builder, matrix, row, width, ROWS), rows_from(builder, matrix, other, width, OTHERS)
        sums = [[cgutils.alloca_once(builder, vector) for _ in others] for _ in rows]
        for place in itertools.chain.from_iterable(sums):
            builder.store(ir.Constant(vector, None), place)
        lanes = ir.Constant(NUMBER, vector.count)
        whole = builder.sub(length, builder.urem(length, lanes))
        with cgutils.for_range_slice(builder, ir.Constant(NUMBER, 0), whole, lanes) as (i, _):
            theirs = [load(builder, pointer, i, vector) for pointer in others]
            for pointer, places in zip(rows, sums, strict=True):
                mine = load(builder, pointer, i, vector)
                for values, place in zip(theirs, places, strict=True):
                    builder.store(multiply_add(builder, mine, values, builder.load(place)), place)
        for start, places in zip(rows_from(builder, target, at, stride, ROWS), sums, strict=True):
            for j, place in enumerate(places):
                total = _add_up(builder, builder.load(place), vector.count)
                builder.store(total, builder.gep(start, [ir.Constant(NUMBER, j)]))
        return context.get_dummy_value()

    integer = types.int64
    return types.void(matrix, integer, integer, integer, integer, out, integer, integer), codegen


def _add_up(builder, values, lanes):
    """Return the sum of the entries of a vector, by halves."""
    while lanes > 1:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                values, values, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [*range(first, first + lanes)])
            )
            for first in (0, lanes)
        ]
        values = builder.fadd(*halves)
    return builder.extract_element(values, ir.Constant(ir.IntType(32), 0))


@jit
def inner_products(matrix, start, stop, out):
    """``out = matrix[:, start:stop] @ matrix[:, start:stop].T``. matrix (k, s), row-major; out (k, k).

    The lower triangle is computed, by blocks; blocks that would not fit overlap those before.
    """
    n_rows, width = matrix.shape
    rest = start
    if n_rows >= ROWS:
        rest = stop - (stop - start) % (REGISTER_BITS // (8 * matrix.itemsize))
        for first in range(0, n_rows, ROWS):
            i = min(first, n_rows - ROWS)
            for other in range(0, i + ROWS, OTHERS):
                j = min(other, n_rows - OTHERS)
                _inner_products(
                    matrix, i * width + start, j * width + start, width, stop - start, out, i * n_rows + j, n_rows
                )
    else:
        out[:] = matrix.dtype.type(0)
    for i in range(n_rows):
        row, products = matrix[i], out[i]
        for j in range(i + 1):
            other, total = matrix[j], products[j]
            for at in range(rest, stop):
                total += row[at] * other[at]
            products[j] = total
            out[j, i] = total
