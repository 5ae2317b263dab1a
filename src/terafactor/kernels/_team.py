"""Threads that meet inside a kernel.

A team runs one kernel on several threads, each on its own tiles, without the interpreter lock. Where all need what
all computed they meet: each adds one to a shared counter and waits until the counter says that everybody came. Who
cannot come, because of an error, puts the counter at ``DISMISSED``: nobody waits any more.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from terafactor.kernels._jit import jit

SPINS = 2000
"""Looks at the counter before a thread offers its core to others: more threads than cores would stall otherwise."""

DISMISSED = 2**62
"""More than any number of meetings."""

give_way = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32())


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
    """Return the integer at ``address``, read anew."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_counter(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@jit
def meet(address, expected):
    """Wait until ``expected`` threads have arrived at the counter, counted from the start of the kernel."""
    _arrive(address)
    spins = 0
    while _arrived(address) < expected:
        spins += 1
        if spins > SPINS:
            give_way()
