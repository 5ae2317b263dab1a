"""Crash-safe files: complete or absent, whatever stops the process or the machine.

New content gets a random temporary name in the same folder, is flushed to the disk, and is renamed into place. Symbolic
links are never followed on writing: they are replaced, or refused.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from terafactor.errors import DataError, StorageError

logger = logging.getLogger("terafactor")

UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})
"""Errors of a file system that lacks an operation, such as locks on some cluster disks."""


@contextlib.contextmanager
def storage_errors(path: Path | str, action: str = "write") -> Iterator[None]:
    """Convert errors of the system into a StorageError that names the file: most system calls do not."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error, path, action) from error


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file, replacing one of that name."""
    with open_durably(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_durably(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the place of ``path`` when the block ends without an error."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(path) as temporary:
            with open(temporary, "xb", opener=no_follow) as file:
                yield file
                file.flush()
                flush(file.fileno())
            os.replace(temporary, path)
        _sync_folder(path.parent)


@contextlib.contextmanager
def durable_path(path: Path) -> Iterator[Path]:
    """Yield a path of the same name, for packages that write by name; its file takes the place of ``path`` at the end.

    The path is in an unfinished folder, so that the extension is that of ``path``.
    """
    with storage_errors(path):
        with unfinished(path) as folder:
            folder.mkdir()
            yield folder / path.name
            make_durable(folder / path.name)
            os.replace(folder / path.name, path)
        _discard(folder)
        _sync_folder(path.parent)


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path`` that nobody can guess; remove what is there if the block fails."""
    temporary = _hidden(path, "unfinished")
    try:
        yield temporary
    except BaseException:
        _discard(temporary)
        raise


def no_follow(path: str, flags: int) -> int:
    """Open a file for writing unless it is a symbolic link or a pipe; for ``open(..., opener=no_follow)``."""
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file")
    return descriptor


def replace_durably(path: Path, final: Path) -> None:
    """Flush a file or folder to the disk and give it its final name."""
    make_durable(path)
    with storage_errors(final):
        os.rename(path, final)
        _sync_folder(final.parent)


def replace_folder(new: Path, folder: Path) -> None:
    """Replace a folder with another; of several processes that do so at once, the last one wins.

    No system can swap two folders in one call everywhere. Between two renames the old one has a name that ends in
    ``.replaced``.
    """
    make_durable(new)
    replaced = []
    with storage_errors(folder):
        while True:
            replaced.append(_hidden(folder, "replaced"))
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder, replaced[-1])
            try:
                os.rename(new, folder)
                break
            except OSError:
                if not os.path.lexists(folder):  # otherwise another process was faster: replace its folder, too
                    raise
        _sync_folder(folder.parent)
    for path in replaced:
        _discard(path)


def remove_folder(folder: Path) -> None:
    """Delete a folder, renamed first: a half-deleted folder must not pass for a damaged one."""
    removed = _hidden(folder, "removed")
    with storage_errors(folder, "remove"):
        os.rename(folder, removed)
    _discard(removed)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left below a folder, as far as that works; the caller holds its lock."""
    with contextlib.suppress(OSError):
        replaced = [path for path in folder.rglob(".*.replaced") if path.with_name(_visible_name(path)).exists()]
        for path in [*folder.rglob(".*.unfinished"), *folder.rglob(".*.removed"), *replaced]:
            _discard(path)


def folders_replaced(folder: Path) -> list[Path]:
    """Return what :func:`replace_folder` renamed and had no time to remove, for a folder that is gone."""
    return [path for path in folder.parent.glob(".*.replaced") if _visible_name(path) == folder.name]


def make_durable(path: Path) -> None:
    """Wait until a file, or all files and folders below a folder, are on the disk."""
    with storage_errors(path):
        if not path.is_dir():
            _sync_file(path)
        for parent, _, names in os.walk(path):
            for name in names:
                _sync_file(Path(parent, name))
            _sync_folder(Path(parent))


def flush(descriptor: int) -> None:
    """Wait until an open file is on the disk. On macOS, fsync waits for the cache of the drive only."""
    try:
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]
    except (ImportError, AttributeError, OSError):  # Windows, Linux, network drives
        os.fsync(descriptor)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder until the block ends or the process dies; refuse one that another process has locked."""
    with storage_errors(folder, "lock"):
        descriptor = _open_for_lock(folder)
    try:
        with storage_errors(folder, "lock"):
            free = try_lock(descriptor)
        if not free:
            raise DataError(f"{folder} is being written by another process: wait for it to end")
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process has it.

    shared: allow other shared locks, where the system knows them; Windows does not. On a file system without locks,
    every file is free; an exclusive lock then logs a warning.
    """
    try:
        _lock(descriptor, shared)
    except OSError as error:
        if isinstance(error, BlockingIOError | PermissionError) or error.errno == errno.EDEADLK:
            return False
        if error.errno not in UNSUPPORTED:
            raise
        if not shared:
            _warn_once("the file system has no locks: make sure that only one process works in a folder at a time")
    return True


def _lock(descriptor: int, shared: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _open_for_lock(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows, where a folder cannot be renamed either while a file in it is open
        return os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT)


def _sync_file(path: Path) -> None:
    with storage_errors(path), open(path, "r+b") as file:
        flush(file.fileno())


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    with storage_errors(path):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except PermissionError:  # Windows
            return
        try:
            flush(descriptor)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            _warn_once("the file system cannot flush folders: a power cut may lose the newest files")
        finally:
            os.close(descriptor)


def _hidden(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.{suffix}")


def _visible_name(path: Path) -> str:
    """Return the name that :func:`_hidden` started from; earlier versions had nothing random in theirs."""
    return re.sub(r"(\.[0-9a-f]{12})?\.[a-z]+$", "", path.name).removeprefix(".")


def _discard(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that works."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
