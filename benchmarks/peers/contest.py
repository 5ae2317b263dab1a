"""A contest: fits of growing length, timed and scored by the same code."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from threadpoolctl import threadpool_limits

Fit = Callable[[float], Any]
"""Takes the number of passes over the data; returns what the judge of the contest scores."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work."""

    name: str
    fit: Fit
    amounts: Sequence[float]
    """Passes over the data, one fit from scratch for each."""

    module: str = "terafactor"
    package: str = "terafactor"

    @property
    def is_ours(self) -> bool:
        return self.package == "terafactor"


@dataclass(frozen=True)
class Contest:
    """Same data, same threads, one judge."""

    name: str
    title: str
    explanation: str
    """Data, settings and what is timed."""

    contestants: Sequence[Contestant]
    judge: Callable[[Any], float]
    measure: str
    """Name of the score."""

    lower_is_better: bool = True
    n_threads: int = 1


def hold(contest: Contest) -> dict[str, Any]:
    """Run a contest.

    Contestants take turns. Each runs once untimed before, for imports and compilation, and is scored outside its time.
    Packages that are not installed are listed as skipped.
    """
    present = [contestant for contestant in contest.contestants if find_spec(contestant.module) is not None]
    curves: dict[str, dict[str, Any]] = {
        c.name: {"ours": c.is_ours, "version": version_of(c.package), "amounts": [], "seconds": [], "score": []}
        for c in present
    }
    with warnings.catch_warnings(), threadpool_limits(contest.n_threads):
        warnings.simplefilter("ignore")  # thousands of warnings that a lasso stopped early
        for contestant in present:
            contestant.fit(min(contestant.amounts))
        for turn in range(max(len(contestant.amounts) for contestant in present)):
            for contestant in present:
                if turn < len(contestant.amounts):
                    _run(contestant, contestant.amounts[turn], contest, curves[contestant.name])
    skipped = sorted({c.package for c in contest.contestants if find_spec(c.module) is None})
    return {
        "title": contest.title, "explanation": contest.explanation, "measure": contest.measure,
        "lower_is_better": contest.lower_is_better, "n_threads": contest.n_threads, "curves": curves,
        "skipped": skipped,
    }  # fmt: skip


def _run(contestant: Contestant, amount: float, contest: Contest, curve: dict[str, Any]) -> None:
    clock = time.process_time if contest.n_threads == 1 else time.perf_counter  # CPU time: other load matters less
    started = clock()
    model = contestant.fit(amount)
    seconds = clock() - started
    curve["amounts"].append(amount)
    curve["seconds"].append(seconds)
    curve["score"].append(float(contest.judge(model)))


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "here"  # a baseline in this repository


def best(curve: dict[str, Any], lower: bool) -> float:
    """Return the best score of a curve."""
    return min(curve["score"]) if lower else max(curve["score"])


def time_to(curve: dict[str, Any], target: float, lower: bool) -> float | None:
    """Return the time of the fastest fit that reaches a target, None if none does."""
    times = [
        seconds
        for seconds, score in zip(curve["seconds"], curve["score"], strict=True)
        if (score <= target if lower else score >= target)
    ]
    return min(times) if times else None
