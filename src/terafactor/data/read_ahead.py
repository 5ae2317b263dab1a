"""Reading ahead of the one who works."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

N_READERS = 4
"""Threads that read: more than a disk needs to be busy, fewer than would crowd out the work."""

DEPTH = 4
"""Results that may be ready or under way before they are asked for; memory is bounded by it."""


def read_ahead(tasks: Iterable[Callable[[], Result]], *, in_memory: bool = False) -> Generator[Result, None, None]:
    """Yield the results of ``tasks`` in their order, the next ones computed by other threads meanwhile.

    A task that fails raises where its result would come. Once the generator is closed or collected no task begins, and
    those under way have ended. in_memory: there is nothing to wait for, each task is done when its turn comes.
    """
    if in_memory:
        yield from (task() for task in tasks)
        return
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(N_READERS, "terafactor-reader") as readers:
        try:
            for task in tasks:
                pending.append(readers.submit(task))
                if len(pending) > DEPTH:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
