"""Bars of the report: size and opening time of large pages, and the cost of writing them during a run."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bar, Result, Skipped
from terafactor import MaskedDictionaryLearning, PatchSource, train
from terafactor.dictionary.task import DictionaryTask
from terafactor.report import ReportContext, write_report


def pages(quick: bool) -> Iterator[Result]:
    """Yield size and opening time in a browser of the largest supported pages."""
    with tempfile.TemporaryDirectory() as folder:
        for name, context in large_contexts().items():
            path = write_report(Path(folder) / "report.html", context)
            yield Bar(f"page of {name}", path.stat().st_size / 1e6, 10, unit="MB", details=_writing(path, context))
            seconds = _opening(path, repeats=3 if quick else 9)
            yield seconds if isinstance(seconds, Skipped) else Bar(f"opening {name}", seconds, 2, unit="s")


def large_contexts() -> dict[str, ReportContext]:
    """Return contexts of large pages: a thousand atoms as pictures or curves, a history of many lines."""
    patches = PatchSource([np.random.default_rng(0).random((100, 100, 3))], (32, 32))
    estimator = MaskedDictionaryLearning(1000, alpha=1.0, n_epochs=0.2, random_state=0).fit(patches)
    atoms = estimator._report_context(patches)
    last = atoms.history[-1]
    lines = [replace(last, step=i, n_samples=40 * i, seconds=i / 100, objective=3 + 100 / i) for i in range(1, 100_001)]
    return {
        "1 000 atoms of 32 x 32 x 3": atoms,
        "1 000 atoms as curves": replace(atoms, geometry=None),
        "100 000 metric lines": replace(atoms, components=atoms.components[:50], sample=None, history=lines),
    }


def cost(quick: bool) -> Iterator[Result]:
    """Yield the share of a run that is spent on its report, live pages and final page together."""
    X = np.random.default_rng(0).standard_normal((20_000, 4096), np.float32)
    estimator = Watched(100, alpha=5.0, n_epochs=1000, max_time=45 if quick else 120, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        train(estimator, X, Path(folder) / "run")
        total = time.perf_counter() - started
    spent = sum(estimator.times)
    details: dict[str, float | str] = {"run s": total, "report s": spent, "pages": len(estimator.times)}
    yield Bar("share of a run spent on its report", 100 * spent / total, 1, unit="%", details=details)


class Watched(MaskedDictionaryLearning):
    """Estimator that records how long it takes to write its report."""

    def _task(self) -> DictionaryTask:
        return WatchedTask(self)


class WatchedTask(DictionaryTask):
    """Task of :class:`Watched`."""

    def present(self, *given: Any) -> None:
        started = time.perf_counter()
        super().present(*given)
        self.estimator.times = [*getattr(self.estimator, "times", []), time.perf_counter() - started]


def _writing(path: Path, context: ReportContext) -> dict[str, float | str]:
    started = time.perf_counter()
    write_report(path, context)
    return {"written in s": time.perf_counter() - started}


def _opening(path: Path, repeats: int) -> float | Skipped:
    """Return the median time from requesting a page until it is fully drawn."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return Skipped(f"opening {path.name}", "playwright is not installed")
    if executable is None:
        return Skipped(f"opening {path.name}", "chromium is not installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        times = [_open_once(browser, path) for _ in range(repeats)]
        browser.close()
    return statistics.median(times)


def _open_once(browser: Any, path: Path) -> float:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    started = time.perf_counter()
    page.goto(path.as_uri())
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    taken = time.perf_counter() - started
    page.close()
    return taken


BENCHMARKS = {"pages": pages, "cost": cost}
