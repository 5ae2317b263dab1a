"""What is kept of a training besides the model: nothing, its history, or (:mod:`terafactor.training.run`) all."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from terafactor.solver.callbacks import Callback, Recorder
from terafactor.solver.progress import ProgressBar
from terafactor.training.signals import StopSignals
from terafactor.training.task import Start, Task


@dataclass(frozen=True)
class TrainingSetup:
    """What a training begins with."""

    data: Any
    """To learn from."""

    held_out: Any
    """To evaluate on, or None."""

    start: Start


class Journal:
    """Keeps nothing: for ``partial_fit``."""

    in_run = False
    """Whether all signals that end a run are handled, not only Ctrl-C."""

    console: Console | None = None
    """Where the training is shown in place of a progress bar."""

    def opened(self) -> AbstractContextManager[Any]:
        """Return a ``with`` block around the training."""
        return contextlib.nullcontext()

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        """Return what to learn from, what to evaluate on, and where to start."""
        return TrainingSetup(data, None, Start(task.seed()))

    @contextlib.contextmanager
    def callbacks(
        self, task: Task, begun: TrainingSetup, signals: StopSignals, others: Sequence[Callback]
    ) -> Generator[list[Callback], None, None]:
        """Give the callbacks that come before the ``others``, those of the user."""
        if not task.estimator.verbose or self.console is not None:
            yield []
            return
        with contextlib.closing(ProgressBar()) as bar:
            yield [bar]

    def end(self, task: Task, signals: StopSignals, advice: Sequence[Any]) -> None:
        """Finish, and raise the interruption where there was one."""
        signals.raise_if_received()


class FitJournal(Journal):
    """Keeps the history in memory: for ``fit``.

    Parameters
    ----------
    validation : data, optional
        What the history evaluates on.
    """

    def __init__(self, validation: Any = None) -> None:
        self.validation = validation

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        held_out = None if self.validation is None else task.open_validation(self.validation, data)
        return TrainingSetup(data, held_out, Start(task.seed(), validation=held_out))

    @contextlib.contextmanager
    def callbacks(
        self, task: Task, begun: TrainingSetup, signals: StopSignals, others: Sequence[Callback]
    ) -> Generator[list[Callback], None, None]:
        objective = None if begun.held_out is None else task.objective(begun.held_out)
        self.recorder = Recorder(objective, audience=others)
        with super().callbacks(task, begun, signals, others) as shown:
            yield [self.recorder, *shown]

    def end(self, task: Task, signals: StopSignals, advice: Sequence[Any]) -> None:
        task.estimator.history_ = self.recorder.history
        task.estimator.stopped_by_ = self.recorder.stopped_by if signals.received is None else "interrupt"
        signals.raise_if_received()
        for warning in advice:
            warnings.warn(warning.text, warning.category, stacklevel=4)  # at the line that calls ``fit``
