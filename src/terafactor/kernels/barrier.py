"""A barrier for threads inside one compiled kernel.

Threads run the same kernel, each on its own tiles, without the interpreter lock. At a barrier each thread increments a
shared counter and waits until all have. A thread that fails sets it to ``RELEASED``, which releases the others.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels.jit import jit

SPINS = 2000
"""Reads of the counter before a thread yields its core, for when there are more threads than cores."""

RELEASED = 2**62
"""A count that no number of arrivals reaches."""

yield_core = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32())


def _counter(builder, address):
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def _arrive(typing, address):
    """Add one to the integer at ``address``; threads that see the new value see all earlier writes too."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _counter(builder, args[0]), ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(types.int64), codegen


@intrinsic
def _arrived(typing, address):
    """Return the integer at ``address``, with an atomic read."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_counter(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@jit
def wait_for_all(address, expected):
    """Wait until the counter at ``address`` is ``expected``: arrivals of all threads since the kernel started."""
    _arrive(address)
    spins = 0
    while _arrived(address) < expected:
        spins += 1
        if spins > SPINS:
            yield_core()


@jit
def sum_tiles(partial, n_sums, n_threads, barrier):
    """Wait for all threads, then return the sums over tiles of ``partial`` (2, tiles, 4), in the order of tiles.

    n_sums: number of sums before this one. The halves of ``partial`` alternate, so that no thread overwrites what
    another still reads.
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
