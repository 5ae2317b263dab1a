"""Threads that never change the result.

Work is cut into tiles whose borders depend on the problem only, never on the number of threads; results come back in
the order of the tiles and are summed in that order. BLAS is held to one thread meanwhile, so that the two do not
compete for the cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral
from typing import Any, Self, TypeVar

from terafactor._typing import is_number
from terafactor.errors import ParameterError

Item = TypeVar("Item")
Result = TypeVar("Result")

TILE_WIDTH = 2048
"""Features per tile: a tile of 60 atoms in float32 is about the size of a second-level cache."""


def tiles(length: int, width: int = TILE_WIDTH) -> list[slice]:
    """Cut ``range(length)`` into consecutive slices of equal width, the last one shorter.

    >>> tiles(5, width=2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + width, length)) for start in range(0, length, width)]


def resolve_threads(n_threads: object) -> int:
    """Return the number of threads to use: all the cores this process may use when ``n_threads`` is None."""
    if n_threads is None:
        from joblib import cpu_count

        return int(cpu_count())
    if not (isinstance(n_threads, Integral) and is_number(n_threads) and n_threads >= 1):
        raise ParameterError(f"n_threads must be an integer >= 1, or None for all cores, got {n_threads!r}")
    return int(n_threads)


class Executor:
    """Runs tiles of work on a fixed number of threads, inside a ``with`` block.

    Parameters
    ----------
    n_threads : int
        How many tiles may run at the same time.
    """

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads
        self._exit = contextlib.ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        from threadpoolctl import threadpool_limits

        self._exit.enter_context(threadpool_limits(1, user_api="blas"))
        if self.n_threads > 1:
            self._pool = self._exit.enter_context(ThreadPoolExecutor(self.n_threads - 1, "terafactor"))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._pool = None
        self._exit.close()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return ``[function(item) for item in items]``, computed on several threads.

        Thread i takes the items i, i + n_threads, ...: one hand-over per thread and call, not one per item.
        """
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        n_shares = min(self.n_threads, len(items))

        def share(first: int) -> list[Result]:
            return [function(item) for item in items[first::n_shares]]

        futures = [self._pool.submit(share, first) for first in range(1, n_shares)]
        shares = [share(0), *(future.result() for future in futures)]
        return [shares[index % n_shares][index // n_shares] for index in range(len(items))]
