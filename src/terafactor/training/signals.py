"""Signals that stop a fit: Ctrl-C and, in a run directory, SIGTERM and SIGUSR1 (the warning of SLURM)."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from terafactor.errors import RunInterruptedError
from terafactor.solver.callbacks import Snapshot
from terafactor.solver.progress import ENDS

FIT_SIGNALS = ("SIGINT",)
RUN_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGINT")


class StopSignals:
    """Callback and ``with`` block that turn signals into a stop: at once, or between steps once ``deferred``.

    An exception raised inside a step would leave the statistics half updated. A second Ctrl-C interrupts at once.
    Outside the main thread, where Python delivers no signals, this class does nothing.

    Parameters
    ----------
    in_run : bool
        Whether to handle all of ``RUN_SIGNALS``, replacing any other handler. If False, handle Ctrl-C only, and only
        if Python's own handler is installed.
    """

    def __init__(self, *, in_run: bool = False) -> None:
        self.in_run = in_run
        self.received: str | None = None
        self.deferred = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in RUN_SIGNALS if self.in_run else FIT_SIGNALS:
                number = getattr(signal, name, None)  # Windows lacks SIGUSR1
                if number and (self.in_run or signal.getsignal(number) is signal.default_int_handler):
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __call__(self, snapshot: Snapshot) -> bool:
        return self.received is not None

    def name(self, stopped_by: str) -> str:
        """Return the name of the signal that ended a fit, to which signals are callbacks; otherwise ``stopped_by``."""
        return self.received if self.received is not None and stopped_by == "callback" else stopped_by

    def _receive(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.in_run and not self.deferred:
            end = ENDS.get(name, f"stopped by {name}")
            raise RunInterruptedError(f"{end} before the first step: run the same command again")
        if not self.deferred or name == self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = name
