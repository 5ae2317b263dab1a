"""Threads that never change the result.

Work over features is cut into tiles whose borders depend on the problem only, never on the number of threads. Threads
take ranges of tiles; whatever is summed over tiles is summed in their order. BLAS is held to one thread meanwhile, so
that the two do not compete for the cores.
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
"""Features per tile: a tile of 60 atoms in float32 is about the size of a second-level cache."""


def n_tiles(n_features: int) -> int:
    """Return how many tiles there are; the last one may be narrower."""
    return -(-n_features // TILE)


def features_of(first: int, last: int, n_features: int) -> tuple[int, int]:
    """Return the features of consecutive tiles, from number ``first`` to ``last``."""
    return first * TILE, min(last * TILE, n_features)


def resolve_threads(n_threads: object) -> int:
    """Return the number of threads to use: all the cores this process may use when ``n_threads`` is None."""
    if n_threads is None:
        from joblib import cpu_count

        return int(cpu_count())
    if not (isinstance(n_threads, Integral) and is_number(n_threads) and int(n_threads) >= 1):
        raise ParameterError(f"n_threads must be an integer >= 1, or None for all cores, got {n_threads!r}")
    return int(n_threads)


@cache
def _loaded_libraries() -> Any:
    """Return what sets the threads of the BLAS libraries that NumPy and SciPy bring, looked for once: it takes 5 ms."""
    import scipy.linalg  # noqa: F401, loads SciPy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class SingleThreadedBlas:
    """Holds BLAS to one thread inside ``with`` blocks: from the first that is entered, in any thread, to the last."""

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


class Executor:
    """Runs parts of work on a fixed number of threads, inside a ``with`` block, or several inside each other.

    Parameters
    ----------
    n_threads : int
        How many parts may run at the same time.
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
        self.run_together(lambda rank, size: function(rank * length // size, (rank + 1) * length // size), length)

    def run_together(
        self, function: Callable[[int, int], object], most: int, on_failure: Callable[[], object] = lambda: None
    ) -> None:
        """Call ``function(rank, size)`` for every rank below size at the same time; size is at most ``most``.

        on_failure: called when one of them fails, for those who wait for it.
        """
        size = max(1, min(self.n_threads, most))
        if self._pool is None or size == 1:
            function(0, 1)
            return

        def work(rank: int) -> None:
            try:
                function(rank, size)
            except BaseException:
                on_failure()
                raise

        others: list[Future[None]] = []
        try:
            for rank in range(1, size):
                others.append(self._pool.submit(work, rank))
            function(0, size)
        except BaseException:  # also of a thread that could not be started
            on_failure()
            raise
        finally:
            wait(others)
        for other in others:
            other.result()
