"""Reading ahead of the one who works."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

N_READERS = 4
"""Threads that read: more than a disk needs to be busy, fewer than would crowd out the work."""

DEPTH = 4
"""Reads that may be ready or under way before they are asked for; memory is bounded by it."""

QUICK = 0.002
"""Seconds below which a task is not worth handing over: threads that pass the interpreter's lock back and forth for
such short ones are slower than one that does everything. Rows that the system has in memory are read so quickly."""


def read_ahead(tasks: Iterable[Callable[[], Result]], depth: int = DEPTH) -> Generator[Result, None, None]:
    """Yield the results of ``tasks`` in their order, the next ones computed by other threads meanwhile.

    Tasks are done as they are asked for until two in a row were not :data:`QUICK`. A task that fails raises where its
    result would come. Once the generator is closed or collected no task begins, and those under way have ended.
    depth: results that may be ready or under way before they are asked for; 0: each task is done when its turn comes.
    """
    tasks = iter(tasks)
    if depth == 0:
        yield from (task() for task in tasks)
        return
    yield from _while_quick(tasks)
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


def _while_quick(tasks: Iterator[Callable[[], Result]]) -> Generator[Result, None, None]:
    """Do tasks as they are asked for, until two in a row took long."""
    n_long = 0
    for task in tasks:
        started = time.perf_counter()
        result = task()
        n_long = n_long + 1 if time.perf_counter() - started > QUICK else 0
        yield result
        if n_long == 2:
            return
