"""Versions of packages, and the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("terafactor", "numpy", "scipy", "numba", "scikit-learn")


def software(*packages: str) -> dict[str, str]:
    """Return versions of packages (by default :data:`PACKAGES`), processor and system, without host or user names."""
    return {
        **{name: found for name in packages or PACKAGES if (found := _version(name))},
        "Python": platform.python_version(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
