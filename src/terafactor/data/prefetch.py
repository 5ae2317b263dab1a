"""Prefetching: reads that run in other threads before their results are needed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

N_READERS = 4
"""Threads that read: enough to keep a disk busy, few enough to leave the cores to the computation."""

DEPTH = 4
"""Results that may be ready or in progress before they are needed; bounds the memory."""

QUICK_SECONDS = 0.002
"""Tasks faster than this run in the calling thread: passing the interpreter lock between threads would cost more.
Reads from the page cache are that fast."""


def prefetch(tasks: Iterable[Callable[[], Result]], depth: int = DEPTH) -> Generator[Result, None, None]:
    """Yield the results of ``tasks`` in order while other threads compute the next ones.

    Tasks run in the calling thread until two in a row take longer than :data:`QUICK_SECONDS`. A task that fails raises
    its error when its result is due. After the generator is closed or collected, no task starts and none is running.
    depth: results that may be ready or in progress in advance; 0 runs each task when its result is due.
    """
    tasks = iter(tasks)
    if depth == 0:
        yield from (task() for task in tasks)
        return
    n_slow = 0
    for task in tasks:
        start = time.perf_counter()
        result = task()
        n_slow = n_slow + 1 if time.perf_counter() - start > QUICK_SECONDS else 0
        yield result
        if n_slow == 2:
            break
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(min(N_READERS, depth), "terafactor-reader") as readers:
        try:
            for task in tasks:
                pending.append(readers.submit(task))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
