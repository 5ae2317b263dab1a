"""A contest: fits of growing length, timed by us, judged by us."""

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
"""Takes the number of passes over the data, returns whatever the judge of the contest takes."""


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
    """Data, settings, what is timed."""

    contestants: Sequence[Contestant]
    judge: Callable[[Any], float]
    measure: str
    """What the judge computes."""

    lower_is_better: bool = True
    n_threads: int = 1


def hold(contest: Contest) -> dict[str, Any]:
    """Run a contest; contestants take turns, and each runs once before, untimed: imports and compilation are left out.

    What a contestant makes is judged outside its time. Those that are not installed are named with the reason.
    """
    present = [contestant for contestant in contest.contestants if find_spec(contestant.module) is not None]
    curves: dict[str, dict[str, Any]] = {
        c.name: {"ours": c.is_ours, "version": version_of(c.package), "amounts": [], "seconds": [], "score": []}
        for c in present
    }
    with warnings.catch_warnings(), threadpool_limits(contest.n_threads):
        warnings.simplefilter("ignore")  # peers tell of lassos that stop early, a thousand times
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
    clock = time.process_time if contest.n_threads == 1 else time.perf_counter  # less disturbed by other work
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
        return "here"  # a baseline of ours


def best(curve: dict[str, Any], lower: bool) -> float:
    """Return the best score of a curve."""
    return min(curve["score"]) if lower else max(curve["score"])


def time_to(curve: dict[str, Any], target: float, lower: bool) -> float | None:
    """Return the time of the shortest fit that reaches a target, None when none does."""
    times = [
        seconds
        for seconds, score in zip(curve["seconds"], curve["score"], strict=True)
        if (score <= target if lower else score >= target)
    ]
    return min(times) if times else None
