"""Reads at a position of an open file, from several threads."""

from __future__ import annotations

import io
import os
from threading import Lock

from terafactor._typing import Array

_seek_lock = Lock()


def read_at(descriptor: int, buffer: Array, position: int) -> int:
    """Read into ``buffer``, a contiguous array, from ``position`` on; return the number of bytes before the end."""
    if not buffer.nbytes:
        return 0
    view, done = buffer.data.cast("B"), 0
    while done < len(view):
        count = _read_once(descriptor, view[done:], position + done)
        if count == 0:
            break
        done += count
    return done


def _read_once(descriptor: int, view: memoryview, position: int) -> int:
    """Read once, possibly less than ``view`` holds. Without preadv, a lock keeps other threads from seeking."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    with _seek_lock, io.FileIO(descriptor, closefd=False) as file:
        file.seek(position)
        return file.readinto(view)
