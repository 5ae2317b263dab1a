"""Files that are either there in full or not at all, whatever stops the process or the machine."""

from __future__ import annotations

import os
from pathlib import Path


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
            _sync(Path(parent, name))
        _sync(Path(parent))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
