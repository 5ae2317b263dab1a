"""Files that are either there in full or not at all, whatever stops the process or the machine."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from terafactor.errors import DataError, StorageError


@contextlib.contextmanager
def naming(path: Path | str, action: str = "write") -> Iterator[None]:
    """Turn what the system says into an error that names the file: most system calls do not."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error, path, action) from error


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file: under a name that nobody can guess first, then renamed."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.unfinished")
        try:
            with open(temporary, "xb", opener=no_follow) as file:
                file.write(content)
                file.flush()
                flush(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left of :func:`write_durably` below a folder; the caller holds its lock."""
    for path in folder.rglob(".*.unfinished"):
        with contextlib.suppress(OSError):
            path.unlink()


def no_follow(path: str, flags: int) -> int:
    """Open a file unless it is a link, which may have been planted to lead elsewhere; for ``open(..., opener=)``."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def replace_durably(path: Path, final: Path) -> None:
    """Give a file or folder its final name once everything in it is on the disk."""
    make_durable(path)
    with naming(final):
        os.rename(path, final)
        _sync_folder(final.parent)


def make_durable(path: Path) -> None:
    """Wait until a file, or all files and folders below a folder, are on the disk."""
    if not path.is_dir():
        _sync_file(path)
    for parent, _, names in os.walk(path):
        for name in names:
            _sync_file(Path(parent, name))
        _sync_folder(Path(parent))


def flush(descriptor: int) -> None:
    """Wait until an open file is on the disk: on macOS, fsync only waits until the drive has it in its cache."""
    try:
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]
    except (ImportError, AttributeError, OSError):  # Windows, Linux, network drives
        os.fsync(descriptor)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder where another process does; the lock goes with the process."""
    descriptor = _open_to_lock(folder)
    try:
        if not try_lock(descriptor):
            raise DataError(f"{folder} is being written by another process: wait for it to end")
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; False when another process has it.

    shared: only against those who want it for themselves, where the system tells the difference, as Windows does not.
    """
    try:
        _lock(descriptor, shared)
    except OSError:
        return False
    return True


def _open_to_lock(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows, where a folder cannot be renamed either while a file in it is open
        return os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT)


def _lock(descriptor: int, shared: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _sync_file(path: Path) -> None:
    with naming(path), open(path, "r+b") as file:
        flush(file.fileno())


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where folders can be opened for that."""
    with naming(path):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except PermissionError:  # Windows
            return
        try:
            flush(descriptor)
        finally:
            os.close(descriptor)
