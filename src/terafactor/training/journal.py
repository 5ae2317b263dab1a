"""Journals record a fit: nothing, its history or, in :mod:`terafactor.training.run`, a whole run directory."""

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
    """Data and starting point of a training."""

    data: Any
    """Training data."""

    held_out: Any
    """Held-out data, or None."""

    start: Start


class Journal:
    """Records nothing. Used by ``partial_fit``."""

    in_run = False
    """Whether SIGTERM and SIGUSR1 are handled as well as Ctrl-C."""

    console: Console | None = None
    """Console of the live view; None shows a progress bar if the estimator is verbose."""

    def opened(self) -> AbstractContextManager[Any]:
        """Return a context manager around the training."""
        return contextlib.nullcontext()

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        """Split the data and find the starting point."""
        return TrainingSetup(data, None, Start(task.seed()))

    @contextlib.contextmanager
    def callbacks(
        self, task: Task, begun: TrainingSetup, signals: StopSignals, others: Sequence[Callback]
    ) -> Generator[list[Callback], None, None]:
        """Yield the callbacks to call before ``others``, those of the user."""
        if not task.estimator.verbose or self.console is not None:
            yield []
            return
        with contextlib.closing(ProgressBar(row_name=task.row_name)) as bar:
            yield [bar]

    def end(self, task: Task, signals: StopSignals, advice: Sequence[Any]) -> None:
        """Finish; raise KeyboardInterrupt if Ctrl-C stopped the fit."""
        if signals.received is not None:
            raise KeyboardInterrupt


class FitJournal(Journal):
    """Records the history on the estimator. Used by ``fit``.

    Parameters
    ----------
    validation : data, optional
        Data on which the objective is recorded.
    """

    def __init__(self, validation: Any = None) -> None:
        self.validation = validation

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        held_out = None if self.validation is None else task.open_validation(self.validation, data)
        return TrainingSetup(data, held_out, Start(task.seed()))

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
        super().end(task, signals, advice)
        for warning in advice:
            warnings.warn(warning.text, warning.category, stacklevel=4)  # the line that calls ``fit``
