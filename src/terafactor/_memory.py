"""Memory that is available to this process, and the limit on data that are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from terafactor.errors import DataError, ParameterError

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")

LIMIT_VARIABLE = "TERAFACTOR_MAX_BYTES"
"""Environment variable that sets the limit on data that are loaded."""


def available_memory() -> int | None:
    """Return the bytes that this process may still allocate, None if unknown.

    The minimum of what the machine, the address space limit (``ulimit -v``) and the control groups of the process
    (containers, batch systems) leave. Memory in use is known on Linux only: elsewhere it is the memory of the machine,
    or the address space limit.
    """
    bounds = [_machine(), _address_space(), *_control_groups()]
    return min((max(bound, 0) for bound in bounds if bound is not None), default=None)


def max_bytes() -> int | None:
    """Return how much memory loading data may take: the environment variable, otherwise what is available."""
    text = os.environ.get(LIMIT_VARIABLE)
    if text is None:
        return available_memory()
    if not text.strip().isdecimal():
        raise ParameterError(f"{LIMIT_VARIABLE} must be a number of bytes, got {text!r}")
    return int(text)


def check_size(n_bytes: int, name: str, limit: int | None) -> None:
    """Refuse data that take more than ``limit`` bytes of memory, from :func:`max_bytes`, before they are loaded."""
    if limit is not None and n_bytes > limit:
        raise DataError(
            f"{name} would take at least {n_bytes:,} bytes of memory, more than the {limit:,} bytes that are available "
            f"or allowed: use a larger machine or a smaller file, or set {LIMIT_VARIABLE} to raise the limit"
        )


def _machine() -> int | None:
    found = _fields(PROC / "meminfo").get("MemAvailable")
    if found is not None:
        return found * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _fields(PROC / "self" / "status").get("VmSize", 0) * 1024
    return None if limit == resource.RLIM_INFINITY else limit - used


def _control_groups() -> Iterator[int | None]:
    """Yield what each control group leaves, from that of the process up to the root; versions 1 and 2."""
    for line in _lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, limit, used, total = (
            (GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            if controllers
            else (GROUPS, "memory.max", "memory.current", "")
        )
        inside = Path(path.strip("/"))
        for folder in (root / group for group in (inside, *inside.parents)):
            left = _difference(folder / limit, folder / used)
            yield None if left is None else left + _page_cache(folder, total)


def _page_cache(folder: Path, total: str) -> int:
    """Return the bytes of a group's page cache, which the system frees when memory is needed."""
    found = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat") if " " in line)
    return sum(int(found.get(f"{total}{name}", 0)) for name in ("inactive_file", "active_file"))


def _difference(limit: Path, used: Path) -> int | None:
    values = [line for path in (limit, used) for line in _lines(path)]
    return int(values[0]) - int(values[1]) if len(values) == 2 and all(map(str.isdigit, values)) else None


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers in lines such as ``VmSize:  1234 kB``."""
    pairs = (line.split(":", 1) for line in _lines(path) if ":" in line)
    return {name: int(rest.split()[0]) for name, rest in pairs if rest.split() and rest.split()[0].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
