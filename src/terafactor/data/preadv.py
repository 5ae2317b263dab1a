"""Reading at a position of a file, from several threads."""

from __future__ import annotations

import io
import os
from threading import Lock

from terafactor._typing import Array

_one_at_a_time = Lock()


def fill(descriptor: int, buffer: Array, position: int) -> int:
    """Read into ``buffer``, contiguous, from a position on; return how many bytes there were."""
    if not buffer.nbytes:
        return 0
    view, done = buffer.data.cast("B"), 0
    while done < len(view):
        count = _read(descriptor, view[done:], position + done)
        if count == 0:
            break
        done += count
    return done


def _read(descriptor: int, view: memoryview, position: int) -> int:
    """Read once; where the system only reads at the place it remembers, nobody else may move that meanwhile."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    with _one_at_a_time, io.FileIO(descriptor, closefd=False) as file:
        file.seek(position)
        return file.readinto(view)
