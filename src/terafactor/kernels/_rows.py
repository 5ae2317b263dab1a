"""Weighted sums of rows, in registers.

A loop that adds one row after the other loads and stores the sum each time; a compiler cannot keep it in registers,
since it cannot know that rows do not overlap.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import (
    NUMBER,
    REGISTER_BITS,
    data_of,
    load,
    multiply_add,
    repeat,
    rows_from,
    store,
    vector_of,
)

ROWS, VECTORS = 4, 3
"""Sums that are made at once, and registers of each: twelve, three of a row that is added and a weight fill 16."""


LONG = 8
"""Registers of a sum that is made alone."""

SHORT = 10
"""Registers of a short row that stay while others pass, at the most."""


@intrinsic
def _add_rows(typing, target, to, source, at, width, weights, weight, n_weights, count):
    """Add to ROWS rows of ``target`` the sum over ``count`` rows of ``source``, for as many columns as fill VECTORS.

    to, at, weight: where the first row of each begins in the flattened array; width, n_weights: from a row to the next.
    """

    def codegen(context, builder, signature, args):
        _, to, _, at, width, _, weight, n_weights, count = args
        target, source, weights = data_of(context, builder, signature, args, 0, 2, 5)
        vector = vector_of(context, signature.args[0].dtype)
        targets = rows_from(builder, target, to, width, ROWS)
        shares = rows_from(builder, weights, weight, n_weights, ROWS)
        offsets = [ir.Constant(NUMBER, i * vector.count) for i in range(VECTORS)]
        sums = [[cgutils.alloca_once(builder, vector) for _ in offsets] for _ in targets]
        for row, totals in zip(targets, sums, strict=True):
            for offset, total in zip(offsets, totals, strict=True):
                builder.store(load(builder, row, offset, vector), total)
        with cgutils.for_range(builder, count) as loop:
            added = builder.gep(source, [builder.add(at, builder.mul(loop.index, width))])
            values = [load(builder, added, offset, vector) for offset in offsets]
            for start, totals in zip(shares, sums, strict=True):
                share = repeat(builder, builder.load(builder.gep(start, [loop.index])), vector)
                for value, total in zip(values, totals, strict=True):
                    builder.store(multiply_add(builder, share, value, builder.load(total)), total)
        for row, totals in zip(targets, sums, strict=True):
            for offset, total in zip(offsets, totals, strict=True):
                store(builder, builder.load(total), row, offset, vector)
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


@contextmanager
def _each_row(builder, matrix, at, width, rows, weights, first, last, vector) -> Generator[tuple[Any, Any], None, None]:
    """Loop over places from first to last: what follows sees the row of the matrix that each names, and its weight.

    at: where the part of row 0 that counts begins; width: from a row to the next; rows: int64, or unsigned.
    """
    with cgutils.for_range_slice(builder, first, last, ir.Constant(NUMBER, 1)) as (place, _):
        row = builder.load(builder.gep(rows, [place]))
        if row.type != NUMBER:
            row = builder.zext(row, NUMBER)
        weight = repeat(builder, builder.load(builder.gep(weights, [place])), vector)
        yield builder.gep(matrix, [builder.add(at, builder.mul(row, width))]), weight


@intrinsic
def _blend_rows(typing, target, to, keep, take, source, at, width, rows, weights, first, last):
    """``target = keep * target + take * sum of weights[i] * source[rows[i]]`` for as many columns as fill LONG.

    i: from first to last; to, at: where these columns begin in the flattened target, and in ``keep``, ``take`` and the
    first row of the source; width: from a row to the next. Where ``keep`` is zero, what the target held is forgotten.
    """

    def codegen(context, builder, signature, args):
        _, to, _, _, _, at, width, _, _, first, last = args
        target, keep, take, source, rows, weights = data_of(context, builder, signature, args, 0, 2, 3, 4, 7, 8)
        vector = vector_of(context, signature.args[0].dtype)
        offsets, zero = [ir.Constant(NUMBER, i * vector.count) for i in range(LONG)], ir.Constant(vector, None)
        sums = [cgutils.alloca_once(builder, vector) for _ in offsets]
        for total in sums:
            builder.store(zero, total)
        with _each_row(builder, source, at, width, rows, weights, first, last, vector) as (row, weight):
            for offset, total in zip(offsets, sums, strict=True):
                values = load(builder, row, offset, vector)
                builder.store(multiply_add(builder, weight, values, builder.load(total)), total)
        before, keep, take = builder.gep(target, [to]), builder.gep(keep, [at]), builder.gep(take, [at])
        for offset, total in zip(offsets, sums, strict=True):
            share, old = load(builder, keep, offset, vector), load(builder, before, offset, vector)
            kept = builder.select(builder.fcmp_ordered("==", share, zero), zero, builder.fmul(share, old))
            new = multiply_add(builder, load(builder, take, offset, vector), builder.load(total), kept)
            store(builder, new, before, offset, vector)
        return context.get_dummy_value()

    integer = types.int64
    signature = types.void(target, integer, keep, take, source, integer, integer, rows, weights, integer, integer)
    return signature, codegen


@jit
def blend_rows(keep, take, source, rows, weights, first, last, start, stop, target, row):
    """``target[row] = keep * target[row] + take * (weights @ source[rows])`` from column start to stop.

    keep, take (s,); rows, weights: int64 and in the precision of the source (n, s), those from first to last;
    target (k, s) in/out. Where ``keep`` is zero, what the target held is forgotten.
    """
    width = target.shape[1]
    step = LONG * (REGISTER_BITS // (8 * target.itemsize))
    whole = stop - (stop - start) % step
    for column in range(start, whole, step):
        _blend_rows(target, row * width + column, keep, take, source, column, width, rows, weights, first, last)
    for column in range(whole, stop):
        total = target.dtype.type(0)
        for i in range(first, last):
            total += weights[i] * source[rows[i], column]
        kept = keep[column] * target[row, column] if keep[column] != 0 else keep[column]
        target[row, column] = kept + take[column] * total


def _for_each_count(builder, count, work):
    """Do ``work(count)``, in code of its own for every count of registers up to SHORT."""
    end = builder.append_basic_block()
    choice = builder.switch(count, end)
    for n_registers in range(1, SHORT + 1):
        block = builder.append_basic_block()
        choice.add_case(ir.Constant(NUMBER, n_registers), block)
        builder.position_at_end(block)
        work(n_registers)
        builder.branch(end)
    builder.position_at_end(end)


def _signature(matrix, other, rows, weights):
    number = types.int64
    return types.void(matrix, number, other, number, number, rows, weights, number, number, number)


@intrinsic
def _add_to_rows(typing, source, of, target, at, width, rows, weights, first, last, n_registers):
    """``target[rows[i]] += weights[i] * source`` for i from first to last, for as many columns as fill the registers.

    of, at: where they begin in the flattened source, and in row 0 of the target; width: from a row to the next.
    """

    def codegen(context, builder, signature, args):
        _, of, _, at, width, _, _, first, last, count = args
        source, target, rows, weights = data_of(context, builder, signature, args, 0, 2, 5, 6)
        vector = vector_of(context, signature.args[0].dtype)

        def work(n_registers):
            offsets = [ir.Constant(NUMBER, i * vector.count) for i in range(n_registers)]
            added = [load(builder, builder.gep(source, [of]), offset, vector) for offset in offsets]
            with _each_row(builder, target, at, width, rows, weights, first, last, vector) as (row, weight):
                for offset, values in zip(offsets, added, strict=True):
                    total = multiply_add(builder, weight, values, load(builder, row, offset, vector))
                    store(builder, total, row, offset, vector)

        _for_each_count(builder, count, work)
        return context.get_dummy_value()

    return _signature(source, target, rows, weights), codegen


@intrinsic
def _add_up_rows(typing, target, to, source, at, width, rows, weights, first, last, n_registers):
    """``target += weights[i] * source[rows[i]]`` for i from first to last; as :func:`_add_to_rows`."""

    def codegen(context, builder, signature, args):
        _, to, _, at, width, _, _, first, last, count = args
        target, source, rows, weights = data_of(context, builder, signature, args, 0, 2, 5, 6)
        vector = vector_of(context, signature.args[0].dtype)

        def work(n_registers):
            offsets = [ir.Constant(NUMBER, i * vector.count) for i in range(n_registers)]
            start, sums = builder.gep(target, [to]), [cgutils.alloca_once(builder, vector) for _ in offsets]
            for offset, total in zip(offsets, sums, strict=True):
                builder.store(load(builder, start, offset, vector), total)
            with _each_row(builder, source, at, width, rows, weights, first, last, vector) as (row, weight):
                for offset, total in zip(offsets, sums, strict=True):
                    values = load(builder, row, offset, vector)
                    builder.store(multiply_add(builder, weight, values, builder.load(total)), total)
            for offset, total in zip(offsets, sums, strict=True):
                store(builder, builder.load(total), start, offset, vector)

        _for_each_count(builder, count, work)
        return context.get_dummy_value()

    return _signature(target, source, rows, weights), codegen


@jit
def add_to_rows(source, row, rows, weights, first, last, target):
    """``target[rows[i]] += weights[i] * source[row]`` for i from first to last.

    source, target: row-major, of the same width; rows: int64, or unsigned; weights: in their precision.
    """
    width, lanes = source.shape[1], REGISTER_BITS // (8 * source.itemsize)
    start = 0
    while start + lanes <= width:
        n_registers = min(SHORT, (width - start) // lanes)
        _add_to_rows(source, row * width + start, target, start, width, rows, weights, first, last, n_registers)
        start += n_registers * lanes
    for i in range(first, last):
        for j in range(start, width):
            target[rows[i], j] += weights[i] * source[row, j]


@jit
def add_up_rows(source, rows, weights, first, last, target, row):
    """``target[row] += weights[i] * source[rows[i]]`` for i from first to last; as :func:`add_to_rows`."""
    width, lanes = source.shape[1], REGISTER_BITS // (8 * source.itemsize)
    start = 0
    while start + lanes <= width:
        n_registers = min(SHORT, (width - start) // lanes)
        _add_up_rows(target, row * width + start, source, start, width, rows, weights, first, last, n_registers)
        start += n_registers * lanes
    for i in range(first, last):
        for j in range(start, width):
            target[row, j] += weights[i] * source[rows[i], j]
