"""Progress of a run: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from terafactor._format import ConsoleFormatter, data_size, duration, number, printable
from terafactor.runs.checkpoint import Checkpointer
from terafactor.solver.callbacks import Recorder, Snapshot
from terafactor.solver.progress import ENDS

logger = logging.getLogger("terafactor")

REFRESH = 0.25
"""Seconds between two updates of a terminal."""

LOG_EVERY = 30.0
"""Seconds between two lines in the log."""


class ConsoleWarnings(logging.Handler):
    """Handler that shows the warnings of a run on a console, without the tracebacks that the log has.

    Parameters
    ----------
    console : rich.console.Console
    """

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console
        self.setFormatter(ConsoleFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(self.format(record), style="yellow", highlight=False, markup=False, soft_wrap=True)


class LiveView:
    """Callback that shows progress: steps, speed, bytes read, held-out objective, time left, last checkpoint.

    Parameters
    ----------
    recorder, checkpointer : Recorder, Checkpointer
        Provide the last objective and the last checkpoint.
    name : callable taking and returning a str
        Returns what ended the run, given what ended the loop.
    row_bytes : int
        Bytes of a whole row; 0 if unknown.
    console : rich.console.Console or None
        Where to show it; None writes to the log only.
    objective_name : str
        Name of what is evaluated.
    row_name : str
        What rows are.
    """

    def __init__(
        self,
        recorder: Recorder,
        checkpointer: Checkpointer,
        name: Callable[[str], str],
        row_bytes: int,
        console: Console | None,
        objective_name: str,
        row_name: str = "rows",
    ) -> None:
        self.recorder = recorder
        self.checkpointer = checkpointer
        self.name = name
        self.row_bytes = row_bytes
        self.objective_name = objective_name
        self.row_name = row_name
        self.console = console
        self._first: Snapshot | None = None
        self._drawn = 0.0
        self._logged = time.monotonic()
        self._live: Live | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        self._first = self._first or snapshot
        now = time.monotonic()
        finished = snapshot.stopped_by is not None
        if finished or now - self._logged >= LOG_EVERY:
            self._logged = now
            self._log(snapshot)
        if self.console is not None and self.console.is_terminal and (finished or now - self._drawn >= REFRESH):
            self._drawn = now
            self._draw(snapshot)

    def close(self) -> None:
        """Release the terminal."""
        if self._live is not None:
            self._live.stop()

    def _log(self, snapshot: Snapshot) -> None:
        text = "; ".join(f"{name}: {value}" for name, value in self.facts(snapshot).items())
        logger.info("%s", text)
        if self.console is not None and not self.console.is_terminal:
            self.console.print(printable(text, lines=True), highlight=False, markup=False, soft_wrap=True)

    def _draw(self, snapshot: Snapshot) -> None:
        label = "learning until converged" if snapshot.may_converge else "learning"
        bar = Progress(TextColumn(label), BarColumn(None), TaskProgressColumn(), console=self.console)
        all_done = snapshot.stopped_by == "tol"  # the number of batches was a bound
        total = snapshot.batches_done if all_done else snapshot.batches_to_do
        bar.add_task("fit", total=total, completed=snapshot.batches_done)
        table = Table.grid(padding=(0, 2))
        for name, value in self.facts(snapshot).items():
            table.add_row(f"[dim]{name}[/dim]", value)
        shown = Group(bar, table)  # the last line must not fill the width, or the ^C of a terminal would wrap
        if self._live is None:
            self._live = Live(shown, console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(shown, refresh=True)

    def facts(self, snapshot: Snapshot) -> dict[str, str]:
        """Return the known facts about the run, by name."""
        facts = {
            "steps": self._steps(snapshot),
            "speed": self._speed(snapshot),
            "data read": self._bytes(snapshot),
            self.objective_name: self._objective(),
            "time left": self._time_left(snapshot),
            "last checkpoint": self._checkpoint(),
        }
        if snapshot.stopped_by is not None:
            reason = self.name(snapshot.stopped_by)
            facts |= {"time left": "", "end": ENDS.get(reason, f"stopped by {reason}")}
        return {name: value for name, value in facts.items() if value}

    def _steps(self, snapshot: Snapshot) -> str:
        bound = "at most " if snapshot.may_converge else ""
        current, last = (
            math.ceil(batches / snapshot.batches_per_epoch)
            for batches in (snapshot.batches_done, snapshot.batches_to_do)
        )
        passes = f" (pass {current:,} of {bound}{last:,} over the data)" if last > 1 else ""
        return f"{snapshot.step:,} of {bound}{snapshot.batches_to_do:,}{passes}"

    def _speed(self, snapshot: Snapshot) -> str:
        rows, n_bytes = self._rate(snapshot, "n_samples"), self._rate(snapshot, "bytes_read")
        return f"{number(rows)} {self.row_name} per second, {data_size(n_bytes)} per second" if rows > 0 else ""

    def _rate(self, snapshot: Snapshot, name: str) -> float:
        """Return a count per second since the first step, which may include compilation."""
        first = self._first or snapshot
        seconds = snapshot.seconds - first.seconds
        return (getattr(snapshot, name) - getattr(first, name)) / seconds if seconds > 0 else 0.0

    def _bytes(self, snapshot: Snapshot) -> str:
        """Return the bytes read, and those of dense whole rows if masks or sparsity saved some."""
        whole = snapshot.n_samples * self.row_bytes
        saved = f" ({data_size(whole)} as a dense matrix)" if snapshot.bytes_read < 0.99 * whole else ""
        return f"{data_size(snapshot.bytes_read)}{saved}" if snapshot.bytes_read else ""

    def _objective(self) -> str:
        known = [line.objective for line in self.recorder.history if line.objective is not None]
        return f"{known[-1]:.6g} (lower is better)" if known else ""

    def _time_left(self, snapshot: Snapshot) -> str:
        speed = self._rate(snapshot, "batches_done")
        if speed <= 0:
            return ""
        seconds = (snapshot.batches_to_do - snapshot.batches_done) / speed
        bound = "at most " if snapshot.may_converge else "about "
        return f"{bound}{duration(math.ceil(seconds))}"

    def _checkpoint(self) -> str:
        if self.checkpointer.last_step is None:
            return ""
        seconds = round(time.monotonic() - self.checkpointer.written_at)
        age = f"{duration(seconds)} ago" if seconds >= 1 else "just now"
        return f"{age}, at step {self.checkpointer.last_step:,}"
