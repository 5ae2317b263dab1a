"""Signals that ask a run to stop: SIGTERM, SIGUSR1 (the warning of SLURM) and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from terafactor.errors import RunInterruptedError
from terafactor.solver.callbacks import Snapshot

NAMES = ("SIGTERM", "SIGUSR1", "SIGINT")


class StopSignals:
    """Callback and ``with`` block that turn these signals into a stop after the current step.

    A second Ctrl-C interrupts at once. Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in NAMES:
                if hasattr(signal, name):  # Windows lacks SIGUSR1
                    number = getattr(signal, name)
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __call__(self, snapshot: Snapshot) -> bool:
        return self.received is not None

    def name(self, stopped_by: str) -> str:
        """Return what ended a fit by its name: to the fit, a signal is a callback like any other."""
        return self.received if self.received is not None and stopped_by == "callback" else stopped_by

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


class StopAtOnce(StopSignals):
    """``with`` block that these signals leave at once, by :class:`RunInterruptedError`.

    For what comes before the first step, such as packing, which leaves nothing half done.
    """

    def _receive(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        raise RunInterruptedError(f"stopped by {name} before the first step; to go on, give the same command again")
