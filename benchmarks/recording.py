"""Curves of fits against CPU time, which other load on the machine hardly affects."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from terafactor.solver.callbacks import Recorder, Snapshot
from terafactor.solver.loop import RunningFit
from terafactor.training import Start


class CpuRecorder(Recorder):
    """Recorder of the CPU seconds spent learning, without evaluations.

    It evaluates at steps that are powers of two, and twenty times over the fit.

    Parameters
    ----------
    objective : callable taking a RunningFit, optional
    most : float, optional
        Seconds after which it stops the fit.
    """

    def __init__(self, objective: Callable[[RunningFit], float] | None = None, most: float = float("inf")) -> None:
        super().__init__(objective)
        self.most = most
        self.cpu_seconds: list[float] = []
        self._spent = 0.0
        self._mark = time.process_time()

    def __call__(self, snapshot: Snapshot) -> bool:  # type: ignore[override]
        self._spent += time.process_time() - self._mark
        super().__call__(snapshot)
        self.cpu_seconds += [self._spent] * (len(self.history) - len(self.cpu_seconds))
        self._mark = time.process_time()
        return self._spent > self.most

    def _is_due(self, snapshot: Snapshot) -> bool:
        done, interval = snapshot.batches_done, max(1, snapshot.batches_to_do // 20)
        return done & (done - 1) == 0 or done % interval == 0


def recorded(estimator: Any, data: Any, recorder: CpuRecorder) -> CpuRecorder:
    """Fit an estimator with a recorder."""
    recorder._mark = time.process_time()
    task = estimator._task()
    task.prepare(data, Start(seed=0))
    task.learn(data, [recorder, *estimator.callbacks])
    return recorder
