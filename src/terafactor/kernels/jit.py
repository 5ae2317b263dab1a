"""Compiling kernels: the decorator that all of them use, its cache on disk, and the announcement in the log."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from terafactor._format import NOTICE

logger = logging.getLogger("terafactor")

# Sums may be reassociated (SIMD) and fused; NaN and infinities keep their meaning.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}
# Kernels are inlined in their callers. Otherwise each caller's machine code would contain its own copy of a kernel,
# optimized differently, and the loader would use the first one loaded: bits would depend on what a process ran before.
OPTIONS = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy", "forceinline": True}

PACKAGE = Path(__file__).parent.parent

_kernels: list[Any] = []
_uncached_reported = False
_announcing = False


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call, without the interpreter lock, and cache the machine code on disk.

    Without a writable cache folder every process compiles the kernel; a warning is logged once. A variable that starts
    as a literal and is passed to another kernel compiles that kernel twice, for the literal first: start it as
    ``np.int64(0)``.
    """
    global _uncached_reported
    try:
        kernel = numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:  # raised by Numba, when decorating, if no folder is writable
        if not _uncached_reported:
            _uncached_reported = True
            logger.warning(
                "no writable folder for compiled kernels, so every process compiles them again: "
                "set NUMBA_CACHE_DIR to a writable folder (%s)",
                error,
            )
        kernel = numba.njit(**OPTIONS)(function)
    if kernel.stats.cache_path:
        drop_stale_cache(Path(kernel.stats.cache_path), Path(function.__code__.co_filename))
    _kernels.append(kernel)
    return kernel


@cache
def drop_stale_cache(folder: Path, file: Path) -> None:
    """Remove the machine code of a kernel file if that file, or one that it imports from, has changed.

    Numba checks only the file of the kernel itself, not the files of kernels that it calls: it would run stale code.
    """
    stamp = folder / f"{file.stem}.sha256"  # one for each file: processes that start together do not undo each other's
    with contextlib.suppress(OSError):  # a read-only cache was compiled from these files
        folder.mkdir(parents=True, exist_ok=True)
        digest = source_digest(file)
        if not stamp.exists() or stamp.read_bytes() != digest.encode():
            for stale in [*folder.glob(f"{file.stem}.*.nbi"), *folder.glob(f"{file.stem}.*.nbc")]:
                stale.unlink(missing_ok=True)
            temporary = stamp.with_name(f".{stamp.name}.{os.getpid()}")
            temporary.write_text(digest)
            os.replace(temporary, stamp)  # never half written


def source_digest(file: Path) -> str:
    """Return a digest of a file and of all files of the package that it imports from, directly or indirectly."""
    found, waiting = set[Path](), [file]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            modules = re.findall(r"^from terafactor\.([\w.]+) import", current.read_text(), re.MULTILINE)
            paths = [PACKAGE / f"{module.replace('.', '/')}.py" for module in modules]
            waiting += [path for path in paths if path.exists()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(found))).hexdigest()


def cache_folder() -> Path | None:
    """Return the folder of the compiled kernels imported so far; None if no folder is writable."""
    return next((Path(kernel.stats.cache_path) for kernel in _kernels if kernel.stats.cache_path), None)


class _Compilation(event.Listener):
    """Announces the first compilation, and adds up the time of all."""

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        self.announced = False
        self.seconds = 0.0
        self._depth = 0  # compiling a kernel compiles those that it calls

    def on_start(self, started: Any) -> None:
        if not self.announced:
            self.announced = True
            logger.warning("compiling kernels for %s, once on this machine ...", self.purpose, extra=NOTICE)
        if self._depth == 0:
            self._started = time.perf_counter()
        self._depth += 1

    def on_end(self, ended: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._started


@contextlib.contextmanager
def announcing_compilation(purpose: str) -> Generator[None, None, None]:
    """Log a line when the block starts to compile something, and one with the time that compiling took.

    An inner block does nothing: what it compiles is announced by the outer one.
    """
    global _announcing
    if _announcing:
        yield
        return
    listener, _announcing = _Compilation(purpose), True
    try:
        with event.install_listener("numba:compile", listener):
            yield
    finally:
        _announcing = False
    if listener.announced:
        logger.warning("compiled kernels for %s in %.1f s", purpose, listener.seconds, extra=NOTICE)
