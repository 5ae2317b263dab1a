"""Files that are either there in full or not at all, whatever stops the process or the machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from terafactor.errors import DataError


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file: under another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.unfinished")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def replace_durably(folder: Path, final: Path) -> None:
    """Give a folder its final name once everything in it is on the disk."""
    make_durable(folder)
    os.rename(folder, final)
    _sync(final.parent)


def make_durable(folder: Path) -> None:
    """Wait until all files and folders below ``folder`` are on the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(Path(parent, name), "r+b") as file:
                os.fsync(file.fileno())
        _sync(Path(parent))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder where another process does; the lock goes with the process. Windows has none."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{folder} is being written by another process: wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where folders can be opened for that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
