"""``terafactor doctor``: what one asks first in a bug report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from terafactor.cli.options import Json

EXAMPLE = "Example: terafactor doctor --json"

PACKAGES = (
    "terafactor", "numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "zarr", "safetensors", "h5py", "dask",
    "anndata", "polars", "nilearn", "nibabel", "matplotlib", "jinja2",
)  # fmt: skip


def doctor(as_json: Json = False) -> None:
    """Tell versions, BLAS, threads, the cache of compiled kernels and free disk, and what is wrong with them."""
    facts = examine()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    from terafactor.cli.inspect import show

    show("terafactor doctor", facts)


def examine() -> dict[str, dict[str, Any]]:
    """Return what there is to know, as sections of names and values."""
    return {
        "machine": _machine(),
        "packages": {name: _version(name) for name in PACKAGES},
        "linear algebra": _blas(),
        "compiled kernels": _cache(),
        "free disk": {str(place): _free(place) for place in (Path.cwd(), Path(tempfile.gettempdir()))},
    }


def _machine() -> dict[str, Any]:
    from terafactor._threads import resolve_threads

    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "threads used": resolve_threads(None),
        "memory": _memory(),
    }


def _memory() -> str:
    try:
        n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return "not told by this system"
    return f"{n_bytes / 1e9:.1f} GB"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _blas() -> dict[str, Any]:
    import numpy  # noqa: F401  loads its BLAS, for threadpoolctl to find
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    from terafactor.kernels import blas  # noqa: F401

    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {
        f"library {number}": f"{library['internal_api']} {library['version']}, {library.get('architecture', '')}, "
        f"{library['num_threads']} threads"
        for number, library in enumerate(found, start=1)
    } or {"library": "none that threadpoolctl knows: threads of BLAS cannot be held"}


def _cache() -> dict[str, Any]:
    from terafactor.kernels.jit import cache_folder

    place = cache_folder()
    if place is None:
        return {"cache": "no writable place: kernels are compiled anew in each process; set NUMBA_CACHE_DIR"}
    files = list(place.glob("**/*.nbc")) if place.is_dir() else []
    return {"cache": str(place), "kernels kept": len(files)}


def _free(place: Path) -> str:
    return f"{shutil.disk_usage(place).free / 1e9:.1f} GB"
