"""What the benchmarks share: bars, timing, the machine they ran on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Bar:
    """One figure and the bound it has to meet."""

    name: str
    """Which bar of which table."""

    figure: float
    """What was measured."""

    bound: float
    """What is asked."""

    at_most: bool = True
    """Whether the figure must stay below the bound; False: above."""

    unit: str = "x"
    """Unit of figure and bound."""

    details: dict[str, float | str] = field(default_factory=dict)
    """The times behind the figure."""

    @property
    def holds(self) -> bool:
        return self.figure <= self.bound if self.at_most else self.figure >= self.bound


@dataclass(frozen=True)
class Skipped:
    """A bar that could not be measured here."""

    name: str
    reason: str


Result = Bar | Skipped
Benchmark = Callable[[bool], Iterator[Result]]


def best_times(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each contestant in seconds; they take turns, so that a slow spell hits all.

    Every contestant runs once before, untimed: compilation, imports and first touches of memory are left out.
    """
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    return {name: min(taken) for name, taken in times.items()}


def machine() -> dict[str, str]:
    """Return what a reader needs to compare figures with his own."""
    packages = ["terafactor", "numpy", "scipy", "numba", "scikit-learn", "polars", "nilearn", "spams-bin", "cmfrec",
                "implicit", "scikit-surprise"]  # fmt: skip
    found = {name: _version(name) for name in packages}
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: number for name, number in found.items() if number},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
