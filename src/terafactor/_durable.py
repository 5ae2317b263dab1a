"""Files that are either there in full or not at all, whatever stops the process or the machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from terafactor.errors import StorageError


@contextlib.contextmanager
def naming(path: Path, action: str = "write") -> Iterator[None]:
    """Turn what the system says into an error that names the file: most system calls do not."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error, path, action) from error


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file: under another name first, then renamed."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.unfinished")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync(path.parent)


def replace_durably(folder: Path, final: Path) -> None:
    """Give a folder its final name once everything in it is on the disk."""
    make_durable(folder)
    with naming(final):
        os.rename(folder, final)
        _sync(final.parent)


def make_durable(folder: Path) -> None:
    """Wait until all files and folders below ``folder`` are on the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync(Path(parent, name))
        _sync(Path(parent))


def _sync(path: Path) -> None:
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
