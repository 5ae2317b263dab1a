"""A progress bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from terafactor.solver.callbacks import Snapshot

SURROGATE_SHARE = 0.02
"""Share of the time that computing the surrogate for display may take."""

LINE_EVERY = 5.0
"""Seconds between plain lines."""


class ProgressBar:
    """Callback that shows rows per second, the surrogate and the time left.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to show it; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._started = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._surrogate = "..."
        self._surrogate_cost = 0.0
        self._next_line = self._started + LINE_EVERY

    def __call__(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._first = self._position(snapshot)
        finished = snapshot.stopped_by is not None
        self._update_surrogate(snapshot, finished)
        if self.console.is_terminal:
            self._show_bar(snapshot, finished)
        elif finished or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            self.console.print(self._line(snapshot), highlight=False, markup=False, soft_wrap=True)

    def _update_surrogate(self, snapshot: Snapshot, finished: bool) -> None:
        started = time.monotonic()
        if finished or self._surrogate_cost <= SURROGATE_SHARE * (started - self._started):
            self._surrogate = f"{snapshot.surrogate():.5g}"
            self._surrogate_cost += time.monotonic() - started

    def _speed(self, snapshot: Snapshot) -> float:
        """Return rows per second since the first step, which may have had to wait for compilation."""
        rows, seconds = (
            now - then for now, then in zip(self._position(snapshot), self._first or (0, 0.0), strict=True)
        )
        return rows / seconds if seconds > 0 else 0.0

    def _position(self, snapshot: Snapshot) -> tuple[int, float]:
        return snapshot.n_samples, snapshot.seconds

    def _line(self, snapshot: Snapshot) -> str:
        speed = self._speed(snapshot)
        left = snapshot.seconds * (snapshot.batches_to_do / max(snapshot.batches_done, 1) - 1)
        ending = f"done, stopped by {snapshot.stopped_by}" if snapshot.stopped_by else f"{left:.0f} s left"
        return (
            f"terafactor: {snapshot.batches_done} of {snapshot.batches_to_do} batches, {speed:.0f} rows/s, "
            f"surrogate {self._surrogate}, {ending}"
        )

    def _show_bar(self, snapshot: Snapshot, finished: bool) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("learning"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[speed]} rows/s, surrogate {task.fields[surrogate]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.add_task("fit", total=snapshot.batches_to_do, speed="0", surrogate="...")
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0],
            completed=snapshot.batches_done,
            speed=f"{self._speed(snapshot):,.0f}",
            surrogate=self._surrogate,
        )
        if finished:
            self.close()

    def close(self) -> None:
        """Give the terminal back, also when the fit failed."""
        if self._bar is not None:
            self._bar.stop()
