"""The one way to compile a kernel."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

logger = logging.getLogger(__name__)

# Sums may be reassociated (SIMD) and fused; NaN and infinities keep their meaning.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}
# Kernels are inlined in those that call them. A copy of its own in each caller's machine code would be optimised by its
# surroundings, and the loader would take whichever copy came first: bits would depend on what a process ran before.
OPTIONS = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy", "forceinline": True}

_kernels: list[Any] = []
_uncached_reported = False


def drop_stale_cache(cache: Path) -> None:
    """Remove machine code compiled from an earlier state of these files.

    Numba looks only at the file of a kernel, not at those it calls into: after a change there, it would run the old
    code, with whatever arguments the new one passes.
    """
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for file in (*sorted(folder.glob("*.py")), folder.parent / "_threads.py"):
        digest.update(file.read_bytes())
    stamp = cache / "kernels.sha256"
    with contextlib.suppress(OSError):  # read-only: then what is there was compiled for these files
        if not stamp.exists() or stamp.read_text() != digest.hexdigest():
            for pattern in ("*.nbi", "*.nbc"):
                for file in stamp.parent.glob(pattern):
                    file.unlink(missing_ok=True)
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(digest.hexdigest())


def cache_place() -> Path | None:
    """Return where compiled kernels are kept, None where no place is writable."""
    return next((Path(kernel.stats.cache_path) for kernel in _kernels if kernel.stats.cache_path), None)


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call, without the interpreter lock, and keep the machine code on disk.

    Where no place for the cache is writable the kernel is compiled in every process; this is said once.
    """
    global _uncached_reported
    try:
        kernel = numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:  # Numba raises it at decoration when it finds nowhere to write
        if not _uncached_reported:
            _uncached_reported = True
            logger.warning(
                "no writable place for compiled kernels, so each process compiles them anew (about 10 s): "
                "set NUMBA_CACHE_DIR to a writable folder (%s)",
                error,
            )
        kernel = numba.njit(**OPTIONS)(function)
    if kernel.stats.cache_path and cache_place() is None:
        drop_stale_cache(Path(kernel.stats.cache_path))
    _kernels.append(kernel)
    return kernel


def compiled_now() -> int:
    """Return how many kernel signatures this process had to compile, because no cache held them."""
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in _kernels)
