"""The Trainer, which orchestrates every fit, and ``train``, a fit in a run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from terafactor._checks import check_callbacks
from terafactor.runs.checkpoint import CheckpointPolicy
from terafactor.solver.callbacks import Callback
from terafactor.training.journal import FitJournal, Journal
from terafactor.training.run import RunJournal
from terafactor.training.signals import StopSignals
from terafactor.training.task import Task


class Trainer:
    """Opens the data, holds out rows, learns and saves.

    Parameters
    ----------
    task : Task
        What the estimator contributes.
    journal : Journal, optional
        Records the fit; by default its history only.
    callbacks : sequence of Callback
        Called after every advance, before those of the estimator.

    Examples
    --------
    >>> from terafactor.training import Trainer
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> model = MaskedDictionaryLearning(3, alpha=0.1)
    >>> Trainer(model._task()).fit(np.random.default_rng(0).standard_normal((200, 10)))  # as model.fit does
    >>> model.components_.shape
    (3, 10)
    """

    def __init__(self, task: Task, journal: Journal | None = None, callbacks: Sequence[Callback] = ()) -> None:
        self.task = task
        self.journal = journal or FitJournal()
        for given in (task.estimator.callbacks, callbacks):
            check_callbacks(given)
        self.callbacks = [*callbacks, *task.estimator.callbacks]

    def fit(self, X: Any) -> None:
        """Fit the estimator to X. A failure leaves it unchanged; an interruption leaves the model learned so far."""
        task, journal = self.task, self.journal
        with journal.opened():
            with unchanged_on_failure(task.estimator), StopSignals(in_run=journal.in_run) as signals:
                task.estimator._advice = []
                begun = journal.begin(task, X, task.open_data(X))
                task.prepare(begun.data, begun.start)
                signals.deferred = True
                with journal.callbacks(task, begun, signals, self.callbacks) as ours:
                    task.learn(begun.data, [*ours, *self.callbacks, signals])
                advice = [] if signals.received else task.review(begun.data)
                task.estimator._advice = [warning.text for warning in advice]
            task.commit()
            journal.end(task, signals, advice)


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
        Fitted in place; unchanged if learning fails.
    X : data
        Anything that its ``fit`` accepts.
    directory : path
        The run directory. It must be new, or of a run that failed before its first step, unless ``resume``.
    resume : bool
        Resume from the newest checkpoint, with the same result, bit for bit, as an uninterrupted run. Data and
        parameters must be the same, except for n_epochs, max_time and tol, which only decide when to stop. n_epochs
        must not be less than the passes already done.
    holdout : int, float, or what the estimator takes, optional
        Rows to evaluate on and never learn from: a number or a share of them, 0 for none. By default the smaller of
        5 % and 2 000 rows.
    checkpoints : CheckpointPolicy, optional
        By default one per minute, of which the newest two are kept.
    callbacks : sequence of Callback
        Called after every advance.
    console : rich.console.Console, optional
        Console for a live view of the run and its warnings; by default they go to the log only.

    Returns
    -------
    estimator
        The same object, fitted; its ``history_`` covers the whole run.

    Raises
    ------
    RunInterruptedError
        If a signal stopped the run. A checkpoint was written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning, load_model, train
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = train(MaskedDictionaryLearning(3, alpha=0.1), X, f"{folder}/run", holdout=20)
    ...     same = load_model(f"{folder}/run")
    >>> np.array_equal(model.components_, same.components_)
    True
    """
    journal = RunJournal(directory, resume=resume, holdout=holdout, checkpoints=checkpoints, console=console)
    Trainer(estimator._task(), journal, callbacks).fit(X)
    return estimator


@contextlib.contextmanager
def unchanged_on_failure(estimator: object) -> Generator[None, None, None]:
    """Restore the attributes of an estimator if the block raises. Arrays must not have changed in place."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
