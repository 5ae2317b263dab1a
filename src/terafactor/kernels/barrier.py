"""A barrier for threads inside one compiled kernel.

Threads run a kernel together, each on its own tiles, without the interpreter lock. Where all need what all computed,
each adds one to a shared counter and waits until the counter says that everybody has arrived. A thread that cannot
arrive, because of an error, sets the counter to ``RELEASED``, and nobody waits any more.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels.jit import jit

SPINS = 2000
"""Reads of the counter before a thread yields its core: more threads than cores would stall otherwise."""

RELEASED = 2**62
"""More than any number of arrivals."""

yield_core = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32())


def _counter(builder, address):
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def _arrive(typing, address):
    """Add one to the integer at ``address``; what was written before is visible to those who see the new value."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _counter(builder, args[0]), ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(types.int64), codegen


@intrinsic
def _arrived(typing, address):
    """Return the integer at ``address``, read from memory again."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_counter(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@jit
def wait_for_all(address, expected):
    """Wait until ``expected`` threads have arrived at the counter, counted from the start of the kernel."""
    _arrive(address)
    spins = 0
    while _arrived(address) < expected:
        spins += 1
        if spins > SPINS:
            yield_core()


@jit
def sum_tiles(partial, n_sums, n_threads, barrier):
    """Wait for all threads, then return the sums over tiles of ``partial`` (2, tiles, 4), in the order of tiles.

    n_sums: sums made so far. The halves of ``partial`` are used in turn: nobody overwrites what another still reads.
    """
    if n_threads > 1:
        wait_for_all(barrier, (n_sums + 1) * n_threads)
    parts = partial[n_sums % 2]
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    for tile in range(len(parts)):
        a0 += parts[tile, 0]
        a1 += parts[tile, 1]
        a2 += parts[tile, 2]
        a3 += parts[tile, 3]
    return a0, a1, a2, a3
