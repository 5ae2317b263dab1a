"""The one way to compile a kernel, and to know when that happens."""

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

logger = logging.getLogger("terafactor")

# Sums may be reassociated (SIMD) and fused; NaN and infinities keep their meaning.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}
# Kernels are inlined in those that call them. A copy of its own in each caller's machine code would be optimized by its
# surroundings, and the loader would take whichever copy came first: bits would depend on what a process ran before.
OPTIONS = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy", "forceinline": True}

PACKAGE = Path(__file__).parent.parent

_kernels: list[Any] = []
_uncached_reported = False


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call, without the interpreter lock, and cache the machine code on disk.

    Where no cache folder is writable the kernel is compiled in every process; a warning says so once.
    """
    global _uncached_reported
    try:
        kernel = numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:  # Numba raises it at decoration when it finds nowhere to write
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
    """Remove the machine code of one kernel file if that file, or one that it imports from, has changed since.

    Numba looks only at the file of a kernel, not at those it calls into: after a change there it would run old code.
    """
    stamp = folder / f"{file.stem}.sha256"  # one for each file: processes that start together do not undo each other's
    with contextlib.suppress(OSError):  # read-only: then what is there was compiled from these files
        folder.mkdir(parents=True, exist_ok=True)
        digest = source_digest(file)
        if not stamp.exists() or stamp.read_bytes() != digest.encode():
            for stale in [*folder.glob(f"{file.stem}.*.nbi"), *folder.glob(f"{file.stem}.*.nbc")]:
                stale.unlink(missing_ok=True)
            temporary = stamp.with_name(f".{stamp.name}.{os.getpid()}")
            temporary.write_text(digest)
            os.replace(temporary, stamp)  # never half written


def source_digest(file: Path) -> str:
    """Return a digest of a file and of all files of the package that it imports from, directly or through others."""
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
    """Return the folder of compiled kernels, None where no folder is writable."""
    return next((Path(kernel.stats.cache_path) for kernel in _kernels if kernel.stats.cache_path), None)


class _Compilation(event.Listener):
    """Notices the first compilation and announces it."""

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        self.announced = False

    def on_start(self, started: Any) -> None:
        if not self.announced:
            self.announced = True
            logger.warning("compiling kernels for %s, once on this machine ...", self.purpose)

    def on_end(self, ended: Any) -> None:
        pass


@contextlib.contextmanager
def announcing_compilation(purpose: str) -> Generator[None, None, None]:
    """Log a line when the block has to compile something, and another one with the time it took."""
    listener, started = _Compilation(purpose), time.perf_counter()
    with event.install_listener("numba:compile", listener):
        yield
    if listener.announced:
        logger.warning("compiled kernels for %s in %.1f s", purpose, time.perf_counter() - started)
