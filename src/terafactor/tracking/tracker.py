"""Base class of tracking callbacks: what to log, and when."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import asdict

from terafactor.solver import Evaluation, Snapshot
from terafactor.solver.callbacks import evaluate


class Tracker(ABC):
    """Callback that logs every evaluation of the history, and makes one after ``interval`` seconds without any.

    Without held-out rows, the history has its last evaluation only. The evaluations made in between have no objective.

    Parameters
    ----------
    interval : float
        Seconds without an evaluation after which one is made.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._sent = -math.inf
        self._last_step = -1

    def __call__(self, snapshot: Snapshot) -> None:
        if snapshot.step != self._last_step and time.monotonic() - self._sent >= self.interval:
            self.evaluated(evaluate(snapshot))
        if snapshot.stopped_by is not None:
            self._last_step = -1
            self.close()

    def evaluated(self, evaluation: Evaluation) -> None:
        """Log one evaluation, unless its step is already logged and it adds no objective."""
        if evaluation.step == self._last_step and evaluation.objective is None:
            return
        self._sent, self._last_step = time.monotonic(), evaluation.step
        self.send(figures(evaluation), evaluation.step)

    @abstractmethod
    def send(self, figures: dict[str, float], step: int) -> None:
        """Log values by name."""

    def close(self) -> None:
        """Release resources; a later fit acquires them again."""
        return


def figures(evaluation: Evaluation) -> dict[str, float]:
    """Return the known values of an evaluation, by name."""
    values = {name: value for name, value in asdict(evaluation).items() if name != "step" and value is not None}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
