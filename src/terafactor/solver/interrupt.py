"""Ctrl-C between steps, never inside one."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from terafactor.solver.callbacks import Snapshot


class InterruptGuard:
    """Callback and ``with`` block that turn Ctrl-C into a stop after the current step.

    An exception raised inside a step would leave the statistics half updated. A second Ctrl-C interrupts at once.
    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._previous)

    def __call__(self, snapshot: Snapshot) -> bool:
        return self.requested

    def raise_if_requested(self) -> None:
        """Raise the KeyboardInterrupt that was held back, now that the model is in order."""
        if self.requested:
            raise KeyboardInterrupt

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
