"""Training that survives: a fit with a run directory around it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from terafactor._checks import check_callbacks
from terafactor._random import resolve_seed
from terafactor._typing import Array
from terafactor.data.open import from_anywhere
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.runs.artifact import Artifact, write_artifact
from terafactor.runs.checkpoint import Checkpointer, CheckpointPolicy, newest, step_of
from terafactor.runs.directory import RunDirectory, without_none
from terafactor.runs.failure import unless_it_fails
from terafactor.runs.live import ConsoleWarnings, LiveView
from terafactor.runs.metrics import Metrics
from terafactor.runs.parameters import differences, plain_parameters
from terafactor.runs.presenter import Presenter
from terafactor.runs.signals import StopAtOnce, StopSignals
from terafactor.solver.callbacks import Callback, Evaluation, Recorder, Snapshot
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.position import Position

logger = logging.getLogger("terafactor")

FREE = frozenset({"n_epochs", "max_time", "tol"})
"""Parameters that may change when a run resumes: they do not change what a step does."""

EVALUATION_SHARE = 0.008
"""Share of the time that evaluations on held-out data may take."""


class Trainable(Protocol):
    """What an estimator implements so that its fit can run in a run directory.

    ``data`` is whatever the estimator reads: :func:`train` only hands it on.
    """

    kind: str
    """Its name in the table of model files."""

    history_: list[Evaluation]
    """How the fit went; set by :func:`train`."""

    stopped_by_: str | None
    """What ended it; set by :func:`train`."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters."""

    def open_data(self, X: Any) -> Any:
        """Return what ``learn`` reads, opened and validated once."""

    def describe_data(self, data: Any) -> dict[str, Any]:
        """Return shape and the like, with ``fingerprint``, which tells this data from any other.

        ``row_bytes``, the bytes of a full row, lets the run tell how much less it reads.
        """

    def hold_out(self, data: Any, amount: Any, seed: int) -> tuple[Any, Any, Any]:
        """Return data to learn from, data to evaluate on (or None) and what was held out, as plain values.

        amount: what the user asked for, None for the default, or what an earlier call told was held out.
        """

    def held_out_objective(self, held_out: Any) -> Callable[[Learner], float]:
        """Return what evaluates a learner on held-out data."""

    def learn(
        self, data: Any, *, seed: int, callbacks: Sequence[Callback], start: Position | None, elapsed: Elapsed | None
    ) -> Any:
        """Fit, from the beginning or from a position, and set the learned attributes, whatever ended it.

        Parameters
        ----------
        data : data
            What ``open_data`` or ``hold_out`` returned.
        seed : int
            What ``random_state`` stands for.
        callbacks : sequence of Callback
            Called before those of the estimator, which thus find the history written.
        start : Position or None
            Where an interrupted fit stood.
        elapsed : Elapsed or None
            Time and bytes that it had used up.
        """

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model at this moment, or at a position of the fit that is running."""

    def present(
        self,
        directory: Path,
        config: Mapping[str, Any],
        data: Any,
        history: Sequence[Evaluation],
        atoms: Array | None = None,
    ) -> None:
        """Write what people look at: the run so far, which has come to these ``atoms``, or without them its end."""


def train(
    estimator: Trainable,
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
    for given in (getattr(estimator, "callbacks", ()), callbacks):
        check_callbacks(given)
    run = RunDirectory(directory)
    policy = checkpoints or CheckpointPolicy()
    shown = () if console is None else (ConsoleWarnings(console),)
    with run.locked(), run.logging(*shown):
        if resume:
            run.config()
        elif run.is_run and run.has_begun:
            raise ParameterError(f"{run.path} holds a run already: resume it, or choose another directory")
        with unless_it_fails(estimator):
            with StopAtOnce():
                data = estimator.open_data(X)
            found = newest(run.checkpoints) if resume else None
            settings = _resume(run, estimator, X, data) if resume else _start(run, estimator, X, data, holdout)
            training = _Training(run, estimator, data, settings, policy, found)
            training.learn(callbacks, console)
        training.finish()
    return estimator


def _start(run: RunDirectory, estimator: Trainable, X: Any, data: Any, holdout: Any) -> dict[str, Any]:
    """Write the configuration of a new run, and return it."""
    parameters = estimator.get_params(deep=False)
    seed = resolve_seed(parameters.get("random_state"))
    _, _, held_out = estimator.hold_out(data, holdout, seed)
    description = estimator.describe_data(data)
    config = {
        "kind": estimator.kind,
        "seed": seed,
        "data": {"source": source_name(X), **description},
        "holdout": held_out,
        "parameters": plain_parameters(parameters),
    }
    run.write_config(config)
    logger.info("run started: %s on %s, seed %d", estimator.kind, config["data"], seed)
    return config


def _resume(run: RunDirectory, estimator: Trainable, X: Any, data: Any) -> dict[str, Any]:
    """Check that nothing changed that must not, write what may have changed, and return the configuration."""
    config = run.config()
    if config.get("kind") != estimator.kind:
        raise ParameterError(f"{run.path} is a run of {config.get('kind')}, not of {estimator.kind}")
    description = without_none(estimator.describe_data(data))
    stored = {name: value for name, value in config["data"].items() if name != "source"}
    changes = differences(stored, description)
    if changes:
        raise DataError(
            f"the data of {run.path} changed: {'; '.join(changes)}. Give the data that it began with, "
            "large files under the names that they had if there are several, or start a new run"
        )
    parameters = without_none(plain_parameters(estimator.get_params(deep=False)))
    changes = differences(config["parameters"], parameters, ignored=FREE | {"random_state"})
    if changes:
        raise ParameterError(f"parameters of {run.path} changed: {'; '.join(changes)}. Start a new run")
    given = parameters.get("random_state")
    if given is not None and given != config["seed"]:
        raise ParameterError(f"random_state of {run.path} was {config['seed']}, now {given!r}. Start a new run")
    source = source_name(X)
    if source is not None:  # the data may have moved
        config = config | {"data": config["data"] | {"source": source}}
    run.write_config(config | {"parameters": parameters})
    return config


def source_name(X: Any) -> str | list[str] | dict[str, Any] | None:
    """Return how to open the data again, None when it was an object in memory.

    Several things by name, such as images and their confounds, stay as they are where all are texts or lists of texts.
    """
    if isinstance(X, Mapping):
        given = {str(name): value for name, value in X.items() if value is not None}
        return given if all(_is_text(value) for value in given.values()) else None
    if isinstance(X, str | os.PathLike):
        return from_anywhere(os.fspath(X))
    if isinstance(X, list | tuple) and all(isinstance(part, str | os.PathLike) for part in X):
        return [from_anywhere(os.fspath(part)) for part in X]
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))


class _Training:
    """One call of :func:`train`: ties the callbacks together."""

    def __init__(
        self,
        run: RunDirectory,
        estimator: Trainable,
        data: Any,
        settings: Mapping[str, Any],
        policy: CheckpointPolicy,
        found: tuple[Path, Artifact] | None,
    ) -> None:
        self.run_directory = run
        self.estimator = estimator
        self.settings = settings
        self.seed = int(settings["seed"])
        self.fingerprint = settings["data"].get("fingerprint")
        self.data, held_out, _ = estimator.hold_out(data, settings.get("holdout", 0), self.seed)
        shown = self.data if held_out is None else held_out
        self.row_bytes = int(settings["data"].get("row_bytes", 0))
        self.metrics = Metrics(run.metrics_file)
        self.start = self._take_up(found)
        objective = None if held_out is None else estimator.held_out_objective(held_out)
        self.recorder = Recorder(
            objective, history=self.metrics.history, record=self.metrics.add, share=EVALUATION_SHARE
        )
        self.checkpointer = Checkpointer(run.checkpoints, policy, self._artifact, self._before_checkpoint)
        self.presenter = Presenter(
            lambda atoms: estimator.present(run.path, settings, shown, self.metrics.history, atoms),
            self.checkpointer.wrote,
        )
        self.signals = StopSignals()

    def learn(self, callbacks: Sequence[Callback], console: Console | None) -> None:
        """Learn, be it until a signal stops it."""
        self.recorder.audience = [*getattr(self.estimator, "callbacks", ()), *callbacks]
        ours: list[Callback] = [self.recorder, self.checkpointer, self.presenter, self.signals]
        view = LiveView(self.recorder, self.checkpointer, self.signals, self.row_bytes, console)
        with self.signals, contextlib.closing(view):
            self.estimator.learn(
                self.data,
                seed=self.seed,
                callbacks=[self._check_goal, *ours, *callbacks, view],
                start=self.start,
                elapsed=self._elapsed(),
            )

    def _check_goal(self, snapshot: Snapshot) -> None:
        """Refuse to resume to fewer passes than are done, which only the loop can tell, and put n_epochs back."""
        if snapshot.batches_done > snapshot.batches_to_do:
            self.run_directory.write_config(self.settings)
            done, asked = (
                batches / snapshot.batches_per_epoch for batches in (snapshot.batches_done, snapshot.batches_to_do)
            )
            raise ParameterError(
                f"{self.run_directory.path} is at {done:.6g} passes already, n_epochs asks for {asked:.6g}, and "
                "nothing was changed: ask for more, or load an earlier checkpoint"
            )

    def _take_up(self, found: tuple[Path, Artifact] | None) -> Position | None:
        """Return the position of a checkpoint, and take up the metrics where it left them."""
        if found is None:
            self.metrics.cut_back(-1)
            return None
        path, artifact = found
        if artifact.kind != self.estimator.kind or artifact.fingerprint != self.fingerprint:
            raise DataError(f"{path} is of another run: of {artifact.kind}, data {artifact.fingerprint}")
        self.metrics.cut_back(step_of(path))
        logger.info("going on from %s", path)
        return artifact.position

    def _elapsed(self) -> Elapsed | None:
        """Return what the run had used up at the checkpoint."""
        if self.start is None or not self.metrics.history:
            return None
        last = self.metrics.history[-1]
        return Elapsed(last.seconds, last.bytes_read)

    def _artifact(self, position: Position | None = None) -> Artifact:
        artifact = self.estimator.to_artifact(position)
        return Artifact(artifact.kind, artifact.parameters, artifact.position, self.fingerprint, artifact.versions)

    def _before_checkpoint(self, snapshot: Snapshot) -> None:
        self.recorder.note(snapshot)
        self.metrics.make_durable()

    def finish(self) -> None:
        """Leave model, metrics and log in order, and say so if a signal stopped it."""
        received = self.signals.received
        self.estimator.history_ = list(self.metrics.history)
        self.estimator.stopped_by_ = received or self.recorder.stopped_by
        self.presenter.finish()
        if received is not None and self.recorder.stopped_by == "callback":
            logger.warning("stopped by %s after step %s", received, self.checkpointer.last_step)
            raise RunInterruptedError(
                f"stopped by {received}; a checkpoint is in {self.run_directory.checkpoints}: "
                f"go on with terafactor resume {self.run_directory.path}"
            )
        write_artifact(self._artifact(), self.run_directory.model, overwrite=True)
        logger.info("run done, stopped by %s; model in %s", self.recorder.stopped_by, self.run_directory.model)
