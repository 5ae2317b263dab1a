"""Threads that never change the result.

Features are cut into tiles whose borders depend on the problem only, never on the number of threads. Threads work on
ranges of tiles; sums over tiles are made in their order. Meanwhile BLAS is limited to one thread, so that its
threads do not compete with these.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from numbers import Integral
from typing import Any, Self

from terafactor._typing import is_number
from terafactor.errors import ParameterError

TILE = 2048
"""Features per tile: a tile of 60 atoms in float32 fills about half of a second-level cache."""


def n_tiles(n_features: int) -> int:
    """Return the number of tiles; the last one may be narrower."""
    return -(-n_features // TILE)


def resolve_threads(n_threads: object) -> int:
    """Return the number of threads to use; None is the number of cores that this process may use."""
    if n_threads is None:
        from joblib import cpu_count

        return int(cpu_count())
    if not (isinstance(n_threads, Integral) and is_number(n_threads) and int(n_threads) >= 1):
        raise ParameterError(f"n_threads must be an integer >= 1, or None for all cores, got {n_threads!r}")
    return int(n_threads)


@cache
def _loaded_libraries() -> Any:
    """Return the controller of the BLAS libraries of NumPy and SciPy, cached: finding them takes 5 ms."""
    import scipy.linalg  # noqa: F401, loads SciPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class SingleThreadedBlas:
    """Limits BLAS to one thread while any ``with`` block is active, in any Python thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._limit = _loaded_libraries().limit(limits=1, user_api="blas")
            self._depth += 1

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._limit.restore_original_limits()


single_threaded_blas = SingleThreadedBlas()


class Threads:
    """Runs functions on a fixed number of threads, inside a ``with`` block; blocks may be nested.

    Parameters
    ----------
    n_threads : int
    """

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads
        self._depth = 0
        self._exit = contextlib.ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:
            return self
        self._exit.enter_context(single_threaded_blas)
        if self.n_threads > 1:
            self._pool = self._exit.enter_context(ThreadPoolExecutor(self.n_threads - 1, "terafactor"))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._pool = None
            self._exit.close()

    def split(self, function: Callable[[int, int], object], length: int) -> None:
        """Call ``function(start, stop)`` on consecutive parts of ``range(length)``, one per thread."""
        self.run_parallel(lambda rank, size: function(rank * length // size, (rank + 1) * length // size), length)

    def run_parallel(
        self, function: Callable[[int, int], object], max_size: int, on_error: Callable[[], object] = lambda: None
    ) -> None:
        """Call ``function(rank, size)`` for every rank below size, each in a thread; size is at most ``max_size``.

        on_error: called when one of them raises, to release threads that wait for it.
        """
        size = max(1, min(self.n_threads, max_size))
        if self._pool is None or size == 1:
            function(0, 1)
            return

        def work(rank: int) -> None:
            try:
                function(rank, size)
            except BaseException:
                on_error()
                raise

        others: list[Future[None]] = []
        try:
            for rank in range(1, size):
                others.append(self._pool.submit(work, rank))
            function(0, size)
        except BaseException:  # including a thread that could not be started
            on_error()
            raise
        finally:
            wait(others)
        for other in others:
            other.result()
