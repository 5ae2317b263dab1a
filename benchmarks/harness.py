"""What the benchmarks share: bars, timing, the description of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from terafactor.report.software import PACKAGES, software

PEERS = ("polars", "spams-bin", "cmfrec", "implicit", "scikit-surprise", "nilearn")
"""Packages besides our dependencies whose versions affect figures."""


@dataclass(frozen=True)
class Bar:
    """One figure and the bound that it has to satisfy."""

    name: str
    """Name of the bar."""

    figure: float
    """The measured value."""

    bound: float
    """The required value."""

    at_most: bool = True
    """Whether the figure must stay below the bound; False: above."""

    unit: str = "x"
    """Unit of figure and bound."""

    details: dict[str, float | str] = field(default_factory=dict)
    """The times that the figure comes from."""

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


def best_times(
    contestants: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the shortest time of each contestant in seconds.

    Contestants take turns, so that other load on the machine affects all of them. Each runs once untimed before:
    compilation, imports and first touches of memory are not measured.
    """
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            started = clock()
            run()
            times[name].append(clock() - started)
    return {name: min(taken) for name, taken in times.items()}


def machine() -> dict[str, str]:
    """Return versions and processor, which a reader needs to compare figures."""
    return software(*PACKAGES, *PEERS)
