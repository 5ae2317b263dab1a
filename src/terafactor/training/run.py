"""Training that survives the process: the journal of a fit in a run directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from terafactor.data.open import from_anywhere
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.runs.artifact import Artifact, write_artifact
from terafactor.runs.checkpoint import Checkpointer, CheckpointPolicy, newest, step_of
from terafactor.runs.directory import RunDirectory, without_none
from terafactor.runs.live import ConsoleWarnings, LiveView
from terafactor.runs.metrics import Metrics
from terafactor.runs.parameters import differences, plain_parameters
from terafactor.runs.presenter import Presenter
from terafactor.solver.callbacks import Callback, Recorder, Snapshot
from terafactor.solver.loop import Elapsed
from terafactor.solver.state_dict import StateDict
from terafactor.training.journal import Journal, TrainingSetup
from terafactor.training.signals import StopSignals
from terafactor.training.task import Start, Task

logger = logging.getLogger("terafactor")

FREE = frozenset({"n_epochs", "max_time", "tol"})
"""Parameters that may change when a run resumes: they do not change what a step does."""

EVALUATION_SHARE = 0.008
"""Share of the time that evaluations on held-out data may take."""


class RunJournal(Journal):
    """Keeps configuration, log, metrics, checkpoints, report and model in a run directory: for ``train``.

    Parameters
    ----------
    directory, resume, holdout, checkpoints, console
        As :func:`terafactor.train` takes them.
    """

    in_run = True

    def __init__(
        self,
        directory: Path | str,
        *,
        resume: bool = False,
        holdout: Any = None,
        checkpoints: CheckpointPolicy | None = None,
        console: Console | None = None,
    ) -> None:
        self.run = RunDirectory(directory)
        self.resume = resume
        self.holdout = holdout
        self.policy = checkpoints or CheckpointPolicy()
        self.console = console
        self.metrics = Metrics(self.run.metrics_file)
        self.config: dict[str, Any] = {}
        self._identity = ""

    @contextlib.contextmanager
    def opened(self) -> Generator[None, None, None]:
        """Hold the directory and write the log, unless there is no run to resume, or one that must not be touched."""
        run = self.run
        shown = () if self.console is None else (ConsoleWarnings(self.console),)
        with run.locked(), run.logging(*shown):
            if self.resume:
                run.config()
            elif run.is_run and run.has_begun:
                raise ParameterError(f"{run.path} holds a run already: resume it, or choose another directory")
            yield

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        """Write the configuration of a new run, or check that of one to resume, and find its newest checkpoint."""
        found = newest(self.run.checkpoints) if self.resume else None
        self.config = self._resumed(task, X, data) if self.resume else self._started(task, X, data)
        self._identity = run_identity(self.run.config())
        seed = int(self.config["seed"])
        data, held_out, _ = task.hold_out(data, self.config.get("holdout", 0), seed)
        state_dict = self._position(task, found)
        return TrainingSetup(data, held_out, Start(seed, state_dict, None if state_dict is None else self._elapsed()))

    def _started(self, task: Task, X: Any, data: Any) -> dict[str, Any]:
        """Write the configuration of a new run, and return it."""
        seed = task.seed()
        _, _, held_out = task.hold_out(data, self.holdout, seed)
        config = {
            "kind": task.kind,
            "seed": seed,
            "data": {"source": source_name(X), **task.describe_data(data)},
            "holdout": held_out,
            "parameters": plain_parameters(task.estimator.get_params(deep=False)),
        }
        self.run.write_config(config)
        logger.info("run started: %s on %s, seed %d", task.kind, config["data"], seed)
        return config

    def _resumed(self, task: Task, X: Any, data: Any) -> dict[str, Any]:
        """Check that nothing changed that must not, write what may have changed, and return the configuration."""
        run, config = self.run, self.run.config()
        if config.get("kind") != task.kind:
            raise ParameterError(f"{run.path} is a run of {config.get('kind')}, not of {task.kind}")
        stored = {name: value for name, value in config["data"].items() if name != "source"}
        changes = differences(stored, without_none(task.describe_data(data)))
        if changes:
            raise DataError(
                f"the data of {run.path} changed: {'; '.join(changes)}. Give the data that it began with, "
                "large files under the names that they had if there are several, or start a new run"
            )
        parameters = without_none(plain_parameters(task.estimator.get_params(deep=False)))
        self._check_parameters(config, parameters)
        source = source_name(X)
        if source is not None:  # the data may have moved
            config = config | {"data": config["data"] | {"source": source}}
        run.write_config(config | {"parameters": parameters})
        return config

    def _check_parameters(self, config: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        changes = differences(config["parameters"], parameters, ignored=FREE | {"random_state"})
        if changes:
            raise ParameterError(f"parameters of {self.run.path} changed: {'; '.join(changes)}. Start a new run")
        seed = parameters.get("random_state")
        if seed is not None and seed != config["seed"]:
            raise ParameterError(f"random_state of {self.run.path} was {config['seed']}, now {seed!r}. Start a new run")

    def _position(self, task: Task, found: tuple[Path, Artifact] | None) -> StateDict | None:
        """Return the state_dict of a checkpoint, and drop the metrics that are newer."""
        if found is None:
            self.metrics.cut_back(-1)
            return None
        path, artifact = found
        if artifact.identity is None:
            raise DataError(
                f"{path} was written by an earlier terafactor, {artifact.versions.get('terafactor')}, whose unfinished "
                "runs cannot be resumed: load it with load_model, and pass it as init of a new run"
            )
        if artifact.identity != self._identity:
            raise DataError(
                f"{path} belongs to another run than {self.run.config_file} describes: kind, data, parameters, seed or "
                "held-out rows differ. Undo the change, or start a new run"
            )
        self.metrics.cut_back(step_of(path))
        logger.info("going on from %s", path)
        return artifact.state_dict

    def _elapsed(self) -> Elapsed | None:
        """Return what the run had used up at the checkpoint."""
        if not self.metrics.history:
            return None
        last = self.metrics.history[-1]
        return Elapsed(last.seconds, last.bytes_read)

    @property
    def _fingerprint(self) -> Any:
        return self.config["data"].get("fingerprint")

    @contextlib.contextmanager
    def callbacks(
        self, task: Task, begun: TrainingSetup, signals: StopSignals, others: Sequence[Callback]
    ) -> Generator[list[Callback], None, None]:
        objective = None if begun.held_out is None else task.objective(begun.held_out)
        self.recorder = Recorder(
            objective,
            history=self.metrics.history,
            record=self.metrics.add,
            share=EVALUATION_SHARE,
            audience=others,
        )
        self.checkpointer = Checkpointer(
            self.run.checkpoints,
            self.policy,
            lambda state_dict: self._artifact(task, state_dict),
            self._before_checkpoint,
        )
        shown = begun.data if begun.held_out is None else begun.held_out
        self.presenter = Presenter(
            lambda atoms: task.present(self.run.path, self.config, shown, self.metrics.history, atoms),
            self.checkpointer.wrote,
        )
        row_bytes = int(self.config["data"].get("row_bytes", 0))
        view = LiveView(self.recorder, self.checkpointer, signals.name, row_bytes, self.console)
        with contextlib.closing(view), super().callbacks(task, begun, signals, others) as bar:
            yield [self._check_goal, self.recorder, self.checkpointer, self.presenter, view, *bar]

    def _check_goal(self, snapshot: Snapshot) -> None:
        """Refuse to resume to fewer passes than are done, which only the loop can tell, and put n_epochs back."""
        if snapshot.batches_done > snapshot.batches_to_do:
            self.run.write_config(self.config)
            done, asked = (
                batches / snapshot.batches_per_epoch for batches in (snapshot.batches_done, snapshot.batches_to_do)
            )
            raise ParameterError(
                f"{self.run.path} is at {done:.6g} passes already, n_epochs asks for {asked:.6g}, and "
                "nothing was changed: ask for more, or load an earlier checkpoint"
            )

    def _artifact(self, task: Task, state_dict: StateDict | None = None) -> Artifact:
        artifact = task.artifact(state_dict)
        return replace(artifact, fingerprint=self._fingerprint, identity=self._identity)

    def _before_checkpoint(self, snapshot: Snapshot) -> None:
        self.recorder.note(snapshot)
        self.metrics.make_durable()

    def end(self, task: Task, signals: StopSignals, advice: Sequence[Any]) -> None:
        """Leave report, model and log in order; raise RunInterruptedError if a signal stopped the run."""
        for warning in advice:
            logger.warning("%s", warning.text)
        received, stopped_by = signals.received, self.recorder.stopped_by
        task.estimator.history_ = list(self.metrics.history)
        task.estimator.stopped_by_ = received or stopped_by
        self.presenter.finish()
        if received is not None and stopped_by == "callback":
            logger.warning("stopped by %s after step %s", received, self.checkpointer.last_step)
            raise RunInterruptedError(
                f"stopped by {received}; a checkpoint is in {self.run.checkpoints}: "
                f"go on with terafactor resume {self.run.path}"
            )
        write_artifact(self._artifact(task), self.run.model, overwrite=True)
        logger.info("run done, stopped by %s; model in %s", stopped_by, self.run.model)


def run_identity(config: Mapping[str, Any]) -> str:
    """Return a digest of what defines the result of a run: its configuration, except when to stop and where data lie.

    Equal configurations have equal identities, so that equal runs write equal files.
    """
    data = {name: value for name, value in config["data"].items() if name != "source"}
    free = FREE | {"random_state"}  # the seed stands for it
    parameters = {name: value for name, value in config["parameters"].items() if name not in free}
    fixed = {**config, "data": data, "parameters": parameters}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def source_name(X: Any) -> str | list[str] | dict[str, Any] | None:
    """Return how to open the data again, None when it was an object in memory.

    Several things by name, such as images and their confounds, stay as they are where all are texts or lists of texts.
    """
    if isinstance(X, Mapping) and "source" in X:  # a table and the columns to read
        return {**X, "source": source_name(X["source"])}
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
