"""What a run shows while it goes on: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from terafactor._format import data_size, duration
from terafactor.runs.checkpoint import Checkpointer
from terafactor.solver.callbacks import Recorder, Snapshot

logger = logging.getLogger("terafactor")

REFRESH = 0.25
"""Seconds between two drawings in a terminal."""

LINE_EVERY = 30.0
"""Seconds between two lines in the log."""


class ConsoleWarnings(logging.Handler):
    """Shows on a console the warnings that a run logs, without the traces that the log has.

    Parameters
    ----------
    console : rich.console.Console
    """

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = f"warning: {record.getMessage()}"
        self.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


class LiveView:
    """Callback that shows rows/s, MB/s, bytes against full rows, held-out objective, time left, age of the checkpoint.

    Parameters
    ----------
    recorder, checkpointer : Recorder, Checkpointer
        Know the last objective and the last checkpoint.
    name : callable taking and returning a str
        Names what ended the run, given what ended the loop.
    row_bytes : int
        Bytes of a full row; 0 when that means nothing.
    console : rich.console.Console or None
        Where to show it; None: the log only.
    """

    def __init__(
        self,
        recorder: Recorder,
        checkpointer: Checkpointer,
        name: Callable[[str], str],
        row_bytes: int,
        console: Console | None,
    ) -> None:
        self.recorder = recorder
        self.checkpointer = checkpointer
        self.name = name
        self.row_bytes = row_bytes
        self.console = console
        self._first: Snapshot | None = None
        self._drawn = 0.0
        self._logged = time.monotonic()
        self._live: Live | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        self._first = self._first or snapshot
        now = time.monotonic()
        finished = snapshot.stopped_by is not None
        if finished or now - self._logged >= LINE_EVERY:
            self._logged = now
            self._log(snapshot)
        if self.console is not None and self.console.is_terminal and (finished or now - self._drawn >= REFRESH):
            self._drawn = now
            self._draw(snapshot)

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()

    def _log(self, snapshot: Snapshot) -> None:
        text = ", ".join(f"{name} {value}" for name, value in self.facts(snapshot))
        logger.info("%s", text)
        if self.console is not None and not self.console.is_terminal:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _draw(self, snapshot: Snapshot) -> None:
        bar = Progress(TextColumn("learning"), BarColumn(None), TaskProgressColumn(), console=self.console)
        bar.add_task("fit", total=snapshot.batches_to_do, completed=snapshot.batches_done)
        table = Table.grid(padding=(0, 2))
        for name, value in self.facts(snapshot):
            table.add_row(f"[dim]{name}[/dim]", value)
        shown = Table.grid()
        shown.add_row(bar)
        shown.add_row(table)
        if self._live is None:
            self._live = Live(shown, console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(shown, refresh=True)

    def facts(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Return what is shown, as names and values."""
        batches_left = snapshot.batches_to_do - snapshot.batches_done
        speed = self._rate(snapshot, "batches_done")
        bound = "at most " if snapshot.may_converge else ""
        facts = [
            ("steps", f"{snapshot.step:,} of {bound}{snapshot.batches_to_do:,}"),
            ("rows/s", f"{self._rate(snapshot, 'n_samples'):,.0f}"),
            ("MB/s", f"{self._rate(snapshot, 'bytes_read') / 1e6:,.0f}"),
            ("read", self._bytes(snapshot)),
            ("held-out objective", self._objective()),
            ("time left", f"{bound}{duration(batches_left / speed)}" if speed > 0 else "..."),
            ("checkpoint", self._checkpoint()),
        ]
        if snapshot.stopped_by is not None:
            facts[5] = ("stopped by", self.name(snapshot.stopped_by))
        return facts

    def _rate(self, snapshot: Snapshot, name: str) -> float:
        """Return a count per second since the first step, which may have had to wait for compilation."""
        first = self._first or snapshot
        seconds = snapshot.seconds - first.seconds
        return (getattr(snapshot, name) - getattr(first, name)) / seconds if seconds > 0 else 0.0

    def _bytes(self, snapshot: Snapshot) -> str:
        full = snapshot.n_samples * self.row_bytes
        share = f" ({snapshot.bytes_read / full:.0%} of full rows)" if full else ""
        return f"{data_size(snapshot.bytes_read)}{share}"

    def _objective(self) -> str:
        known = [line.objective for line in self.recorder.history if line.objective is not None]
        if known:
            return f"{known[-1]:.6g}"
        return "none" if self.recorder.objective is None else "none yet"

    def _checkpoint(self) -> str:
        if self.checkpointer.last_step is None:
            return "none yet"
        return f"{duration(time.monotonic() - self.checkpointer.written_at)} ago, step {self.checkpointer.last_step:,}"
