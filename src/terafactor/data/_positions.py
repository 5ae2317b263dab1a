"""Reading at a position of a file, from several threads."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from threading import Lock

from terafactor._typing import Array

_one_at_a_time = Lock()


def fill(descriptor: int, buffers: Sequence[Array], position: int) -> int:
    """Read into ``buffers``, contiguous, one after the other from a position on; return how many bytes there were."""
    views = [buffer.data.cast("B") for buffer in buffers if buffer.nbytes]
    done = 0
    while views:
        count = _read(descriptor, views, position + done)
        if count == 0:
            break
        done += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if views:
            views[0] = views[0][count:]
    return done


def _read(descriptor: int, views: list[memoryview], position: int) -> int:
    """Read once; where the system only reads at the place it remembers, nobody else may move that meanwhile."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, views, position)
    with _one_at_a_time, io.FileIO(descriptor, closefd=False) as file:
        file.seek(position)
        return file.readinto(views[0])
