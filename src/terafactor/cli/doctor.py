"""``terafactor doctor``: the facts that a bug report needs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from terafactor._format import counted, data_size
from terafactor.cli.options import Json

EXAMPLE = "Example: terafactor doctor --json"

CHECKED_PACKAGES = (
    "terafactor", "numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "zarr", "safetensors", "h5py", "dask",
    "anndata", "polars", "nilearn", "nibabel", "matplotlib", "jinja2",
)  # fmt: skip


def doctor(as_json: Json = False) -> None:
    """Show versions, BLAS libraries, threads, the kernel cache and free disk space, for bug reports."""
    facts = examine()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    from terafactor.cli.inspect import show

    show("terafactor doctor", facts)


def examine() -> dict[str, dict[str, Any]]:
    """Return sections of names and values."""
    return {
        "machine": _machine(),
        "packages": {name: _version(name) for name in CHECKED_PACKAGES},
        "linear algebra": _blas(),
        "compiled kernels": _cache(),
        "free disk": {str(place): _free(place) for place in (Path.cwd(), Path(tempfile.gettempdir()))},
    }


def _machine() -> dict[str, Any]:
    from terafactor._threads import resolve_threads
    from terafactor.report.software import software

    return {
        "system": platform.platform(),
        "processor": software()["processor"],
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "threads used": resolve_threads(None),
        "memory": _memory(),
    }


def _memory() -> str:
    try:
        n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return "unknown"
    return data_size(n_bytes)


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _blas() -> dict[str, Any]:
    import numpy  # noqa: F401  loads its BLAS, so that threadpoolctl finds it
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    from terafactor.kernels import blas  # noqa: F401

    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {
        f"library {number}": f"{library['internal_api']} {library['version']}, {library.get('architecture', '')}, "
        f"{counted(library['num_threads'], 'thread')}"
        for number, library in enumerate(found, start=1)
    } or {"library": "none known to threadpoolctl: BLAS may use more threads than --threads"}


def _cache() -> dict[str, Any]:
    import terafactor.kernels.atoms  # noqa: F401  the folder is known once a kernel is imported
    from terafactor.kernels.jit import cache_folder

    place = cache_folder()
    if place is None:
        return {"cache": "no writable folder: every process compiles the kernels again; set NUMBA_CACHE_DIR"}
    files = list(place.glob("**/*.nbc")) if place.is_dir() else []
    return {"cache": str(place), "kernels kept": len(files)}


def _free(place: Path) -> str:
    return data_size(shutil.disk_usage(place).free)
