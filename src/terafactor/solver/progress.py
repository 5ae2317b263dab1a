"""Progress: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from terafactor._format import counted
from terafactor.solver.callbacks import Snapshot

LINE_EVERY = 5.0
"""Seconds between plain lines."""

SHOW_AFTER = 2.0
"""Seconds before progress is shown."""

ENDS = {
    "n_epochs": "all passes over the data are done (n_epochs)",
    "tol": "converged (tol)",
    "max_time": "the time limit was reached (max_time)",
    "callback": "stopped by a callback",
    "cluster": "the cluster was lost",
    "SIGINT": "interrupted by Ctrl-C",
}
"""What ended a fit; anything else is the name of another signal."""


class RowsProgress:
    """Shows how many rows are done, once the work has taken two seconds. Thread-safe.

    Parameters
    ----------
    what : str
        The work, such as "packing".
    n_rows : int
    """

    def __init__(self, what: str, n_rows: int) -> None:
        self.what, self.n_rows, self.done = what, n_rows, 0
        self.console = Console(stderr=True)
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._next_line = self._started + SHOW_AFTER
        columns = (TextColumn(self.what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self.console)
        self._task = self._bar.add_task(self.what, total=self.n_rows)
        return self

    def __call__(self, n_rows: int) -> None:
        """Count ``n_rows`` more rows as done."""
        with self._lock:
            self.done += n_rows
            self._bar.update(self._task, completed=self.done)
            if time.monotonic() < self._next_line:
                return
            if self.console.is_terminal:
                self._bar.start()
            else:
                self._next_line = time.monotonic() + LINE_EVERY
                self.console.print(self._line(), highlight=False, markup=False, soft_wrap=True)

    def __exit__(self, *exception: Any) -> None:
        if self.console.is_terminal:
            self._bar.stop()

    def _line(self) -> str:
        left = (time.monotonic() - self._started) * (self.n_rows / max(self.done, 1) - 1)
        return f"terafactor: {self.what}, {self.done:,} of {self.n_rows:,} rows, {left:.0f} s left"


class ProgressBar:
    """Callback that shows the steps done, rows per second and the time left.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to show it; standard error by default.
    row_name : str
        What rows are.
    """

    def __init__(self, console: Console | None = None, row_name: str = "rows") -> None:
        self.console = console or Console(stderr=True)
        self.row_name = row_name
        self._bar: Progress | None = None
        self._started = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._next_line = self._started + LINE_EVERY

    def __call__(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._first = (snapshot.n_samples, snapshot.seconds)
        finished = snapshot.stopped_by is not None
        if self.console.is_terminal:
            self._show_bar(snapshot, finished)
        elif finished or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            self.console.print(self._line(snapshot), highlight=False, markup=False, soft_wrap=True)

    def _speed(self, snapshot: Snapshot) -> float:
        """Return rows per second since the first step; of the first step itself, since the start."""
        rows, seconds = self._first or (0, 0.0)
        if snapshot.n_samples == rows:
            rows, seconds = 0, 0.0
        return (snapshot.n_samples - rows) / max(snapshot.seconds - seconds, 1e-9)

    def _line(self, snapshot: Snapshot) -> str:
        speed = self._speed(snapshot)
        left = snapshot.seconds * (snapshot.batches_to_do / max(snapshot.batches_done, 1) - 1)
        bound = "at most " if snapshot.may_converge else ""
        end = f"{bound}{left:.0f} s left" if snapshot.stopped_by is None else ENDS[snapshot.stopped_by]
        steps = f"{snapshot.batches_done:,} of {bound}{counted(snapshot.batches_to_do, 'step')}"
        return f"terafactor: {steps}, {speed:,.0f} {self.row_name} per second, {end}"

    def _show_bar(self, snapshot: Snapshot, finished: bool) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("learning until converged, at most" if snapshot.may_converge else "learning"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn(f"{{task.fields[speed]}} {self.row_name} per second"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.add_task("fit", total=snapshot.batches_to_do, speed="0")
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0],
            completed=snapshot.batches_done,
            speed=f"{self._speed(snapshot):,.0f}",
        )
        if finished:
            self.close()

    def close(self) -> None:
        """Release the terminal, also after a failed fit."""
        if self._bar is not None:
            self._bar.stop()
