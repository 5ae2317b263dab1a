"""The one orchestration of a fit, with a run directory or without."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from terafactor._checks import check_callbacks
from terafactor.runs.checkpoint import CheckpointPolicy
from terafactor.solver.callbacks import Callback
from terafactor.training.journal import FitJournal, Journal, TrainingSetup
from terafactor.training.run import RunJournal
from terafactor.training.signals import StopSignals
from terafactor.training.task import Task


class Trainer:
    """Opens the data, holds out, learns, and saves.

    Parameters
    ----------
    task : Task
        What is trained, with its estimator.
    journal : Journal, optional
        What is kept besides the model; by default the history, on the estimator.
    callbacks : sequence of Callback
        Called after every step, before those of the estimator.
    """

    def __init__(self, task: Task, journal: Journal | None = None, callbacks: Sequence[Callback] = ()) -> None:
        self.task = task
        self.journal = journal or FitJournal()
        for given in (task.estimator.callbacks, callbacks):
            check_callbacks(given)
        self.callbacks = [*callbacks, *task.estimator.callbacks]

    def fit(self, X: Any) -> None:
        """Fit the estimator to X in place; it stays as it was when that fails, but not when it is interrupted."""
        task, journal = self.task, self.journal
        with journal.opened():
            with unchanged_on_failure(task.estimator), StopSignals(in_run=journal.in_run) as signals:
                begun = journal.begin(task, X, task.open_data(X))
                task.prepare(begun.data, begun.start)
                signals.defer()
                self._learn(begun, signals)
                advice = [] if signals.received else task.review(begun.data)
            journal.end(task, signals, advice)

    def _learn(self, begun: TrainingSetup, signals: StopSignals) -> None:
        with self.journal.callbacks(self.task, begun, signals, self.callbacks) as ours:
            self.task.learn(begun.data, [*ours, *self.callbacks, signals])


def train(
    estimator: Any,
    X: Any,
    directory: Path | str,
    *,
    resume: bool = False,
    holdout: Any = None,
    checkpoints: CheckpointPolicy | None = None,
    callbacks: Sequence[Callback] = (),
    console: Console | None = None,
) -> Any:
    """Fit an estimator in a run directory: with checkpoints, metrics, a log, a report, and the model at the end.

    Parameters
    ----------
    estimator : estimator
        Fitted in place; left as it was when learning fails.
    X : data
        What its ``fit`` takes.
    directory : path
        The run directory. It must be new, or of a run that failed before its first step, unless ``resume``.
    resume : bool
        Go on from the newest checkpoint there, to the same bits as a run that was not interrupted. Data and
        parameters must be the same, except for n_epochs, max_time and tol, which say when to stop; fewer passes than
        are done are refused.
    holdout : int, float, or what the estimator takes, optional
        How much to keep aside for evaluation and never learn from: a number of rows, or a share of them; 0 for
        nothing. By default the smaller of 5 % and 2 000 rows.
    checkpoints : CheckpointPolicy, optional
        By default one a minute, of which the newest two are kept.
    callbacks : sequence of Callback
        Called after every step.
    console : rich.console.Console, optional
        Where to show the run while it goes on, and its warnings; by default only its log does.

    Returns
    -------
    estimator
        The same, fitted; its ``history_`` covers the whole run.

    Raises
    ------
    RunInterruptedError
        When a signal asked it to stop. A checkpoint was written.
    """
    journal = RunJournal(directory, resume=resume, holdout=holdout, checkpoints=checkpoints, console=console)
    Trainer(estimator._task(), journal, callbacks).fit(X)
    return estimator


@contextlib.contextmanager
def unchanged_on_failure(estimator: object) -> Generator[None, None, None]:
    """Restore the attributes of an estimator when the block raises; their arrays must not change in place."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
