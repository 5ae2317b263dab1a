"""The journal of a fit in a run directory, from which the fit can be resumed."""

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

from terafactor._format import printable
from terafactor.data.open import absolute_address
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.runs.artifact import Artifact, write_artifact
from terafactor.runs.checkpoint import Checkpointer, CheckpointPolicy, checkpoints, newest, step_of
from terafactor.runs.directory import RunDirectory, drop_none
from terafactor.runs.live import ConsoleWarnings, LiveView
from terafactor.runs.metrics import Metrics
from terafactor.runs.parameters import differences, plain_parameters
from terafactor.runs.report_writer import ReportWriter
from terafactor.solver.callbacks import Callback, Evaluation, Recorder, Snapshot
from terafactor.solver.loop import Elapsed
from terafactor.solver.progress import ENDS
from terafactor.solver.state_dict import StateDict
from terafactor.training.journal import Journal, TrainingSetup
from terafactor.training.signals import StopSignals
from terafactor.training.task import Start, Task

logger = logging.getLogger("terafactor")

CHANGEABLE = frozenset({"n_epochs", "max_time", "tol"})
"""Parameters that may change when a run is resumed: they do not change what a step does."""

SELECTIONS = {"columns": "with only", "drop": "without"}
"""Words for the selections of columns of a table."""

EVALUATION_SHARE = 0.008
"""Share of the time that evaluations on held-out data may take."""


class RunJournal(Journal):
    """Writes configuration, log, metrics, checkpoints, report and model to a run directory: for ``train``.

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
        self._has_stepped = False

    @contextlib.contextmanager
    def opened(self) -> Generator[None, None, None]:
        """Lock the directory and write the log. A failure without anything to resume removes what the run created.

        These are failures before the first step, and data errors before the first checkpoint.
        """
        run, created = self.run, self.run.missing()
        shown = () if self.console is None else (ConsoleWarnings(self.console),)
        with run.locked():
            try:
                with run.logging(*shown):
                    self._check_directory()
                    yield
            except BaseException as error:
                refused = isinstance(error, DataError) and not checkpoints(run.checkpoints)
                if refused or not self._has_stepped:
                    _remove(created)
                raise

    def _check_directory(self) -> None:
        """Refuse to resume a folder that is not a run, and to start a run in the folder of another."""
        run = self.run
        if self.resume:
            run.config()
        elif run.is_run and run.has_steps:
            raise ParameterError(
                f"{run.path} holds a run already: continue it with terafactor resume {run.path}, or choose another "
                "directory"
            )

    def begin(self, task: Task, X: Any, data: Any) -> TrainingSetup:
        """Write the configuration of a new run, or check that of one to resume and read its newest checkpoint."""
        found = newest(self.run.checkpoints) if self.resume else None
        self.config = self._check_config(task, X, data) if self.resume else self._write_config(task, X, data)
        self._identity = run_identity(self.run.config())
        state_dict = self._resume_from(found)
        seed, amount = self.config["seed"], self.config.get("holdout", 0)
        try:
            data, held_out, _ = task.hold_out(data, amount, seed)
        except LookupError as error:
            raise DataError(f"holdout of {self.run.config_file} lacks {error}: undo the change") from error
        return TrainingSetup(data, held_out, Start(seed, state_dict, None if state_dict is None else self._elapsed()))

    def _write_config(self, task: Task, X: Any, data: Any) -> dict[str, Any]:
        """Write and return the configuration of a new run."""
        seed = task.seed()
        _, _, held_out = task.hold_out(data, self.holdout, seed)
        config: dict[str, Any] = {
            "kind": task.kind,
            "seed": seed,
            "data": {"source": source_name(X), **task.describe_data(data)},
            "holdout": held_out,
            "parameters": plain_parameters(task.estimator.get_params(deep=False)),
        }
        self.run.write_config(config)
        shape = " x ".join(f"{length:,}" for length in config["data"].get("shape", ()))
        self._announce(f"new run: {task.kind} on {_in_words(config['data']['source'])} ({shape}), seed {seed}")
        return config

    def _announce(self, text: str) -> None:
        """Log what the run does next, and show it."""
        logger.info("%s", text)
        if self.console is not None:
            self.console.print(printable(text, lines=True), highlight=False, markup=False, soft_wrap=True)

    def _check_config(self, task: Task, X: Any, data: Any) -> dict[str, Any]:
        """Return the configuration of a run to resume; refuse other data or parameters, write allowed changes."""
        run, config = self.run, self.run.config()
        if config.get("kind") != task.kind:
            raise ParameterError(f"{run.path} is a run of {config.get('kind')}, not of {task.kind}")
        stored = {name: value for name, value in config["data"].items() if name != "source"}
        changes = differences(stored, drop_none(task.describe_data(data)))
        if changes:
            raise DataError(
                f"the data of {run.path} changed: {'; '.join(changes)}. Pass the data of the first call (several large "
                "files under their old names), or start a new run"
            )
        parameters = drop_none(plain_parameters(task.estimator.get_params(deep=False)))
        self._check_parameters(config, parameters)
        source = source_name(X)
        if source is not None:  # the data may have moved
            config = config | {"data": config["data"] | {"source": source}}
        run.write_config(config | {"parameters": parameters})
        return config

    def _check_parameters(self, config: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        changes = differences(config["parameters"], parameters, ignored=CHANGEABLE | {"random_state"})
        if changes:
            raise ParameterError(f"parameters of {self.run.path} changed: {'; '.join(changes)}. Start a new run")
        seed = parameters.get("random_state")
        if seed is not None and seed != config["seed"]:
            raise ParameterError(f"random_state of {self.run.path} was {config['seed']}, now {seed!r}. Start a new run")

    def _resume_from(self, found: tuple[Path, Artifact] | None) -> StateDict | None:
        """Return the state dict of a checkpoint that belongs to the run, and drop the metrics after it."""
        if found is None:
            self.metrics.truncate(-1)
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
        self.metrics.truncate(step_of(path))
        self._announce(f"resuming from {path}")
        return artifact.state_dict

    def _elapsed(self) -> Elapsed | None:
        """Return time and bytes that the run had used at the checkpoint."""
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
            record=self._record,
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
        self.report_writer = ReportWriter(
            lambda atoms: task.present(self.run.path, self.config, shown, self.metrics.history, atoms),
            self.checkpointer.has_written,
        )
        row_bytes = int(self.config["data"].get("row_bytes", 0))
        view = LiveView(
            self.recorder, self.checkpointer, signals.name, row_bytes, self.console, task.objective_name, task.row_name
        )
        with contextlib.closing(view), super().callbacks(task, begun, signals, others) as bar:
            yield [self._check_n_epochs, self.recorder, self.checkpointer, self.report_writer, view, *bar]

    def _check_n_epochs(self, snapshot: Snapshot) -> None:
        """Refuse fewer passes than are done, which only the loop knows, and restore n_epochs in the configuration."""
        self._has_stepped = True
        if snapshot.batches_done > snapshot.batches_to_do:
            self.run.write_config(self.config)
            done, asked = (
                batches / snapshot.batches_per_epoch for batches in (snapshot.batches_done, snapshot.batches_to_do)
            )
            raise ParameterError(
                f"n_epochs must be at least {done:.6g}, the passes done in {self.run.path}, got {asked:.6g}: "
                "raise it, or load an earlier checkpoint (nothing was changed)"
            )

    def _artifact(self, task: Task, state_dict: StateDict | None = None) -> Artifact:
        artifact = task.artifact(state_dict)
        return replace(artifact, fingerprint=self._fingerprint, identity=self._identity)

    def _record(self, evaluation: Evaluation) -> None:
        self.run.check_lock()
        self.metrics.add(evaluation)

    def _before_checkpoint(self, snapshot: Snapshot) -> None:
        self.run.check_lock()
        self.recorder.note(snapshot)
        self.metrics.make_durable()

    def end(self, task: Task, signals: StopSignals, advice: Sequence[Any]) -> None:
        """Write report, model and log; raise RunInterruptedError if a signal stopped the run."""
        self.run.check_lock()
        for warning in advice:
            logger.warning("%s", warning.text)
        received, stopped_by = signals.received, self.recorder.stopped_by
        task.estimator.history_ = list(self.metrics.history)
        task.estimator.stopped_by_ = received or stopped_by
        self.report_writer.finish()
        if received is not None and stopped_by == "callback":
            text = f"{ENDS.get(received, f'stopped by {received}')} after step {self.checkpointer.last_step or 0:,}"
            logger.info("%s", text)
            raise RunInterruptedError(f"{text}: continue with terafactor resume {self.run.path}")
        self.run.check_lock()  # the report takes a while
        write_artifact(self._artifact(task), self.run.model, overwrite=True)
        logger.info("run done; model in %s", self.run.model)


def run_identity(config: Mapping[str, Any]) -> str:
    """Return a digest of what defines the result of a run: its configuration, except when it stops and data paths.

    Equal configurations have equal identities: equal runs write equal files.
    """
    data = {name: value for name, value in config["data"].items() if name != "source"}
    excluded = CHANGEABLE | {"random_state"}  # the seed is in the configuration
    parameters = {name: value for name, value in config["parameters"].items() if name not in excluded}
    fixed = {**config, "data": data, "parameters": parameters}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def source_name(X: Any) -> str | list[str] | dict[str, Any] | None:
    """Return paths from which to open the data again, or None for an object in memory.

    A mapping, such as images and their confounds, is returned unchanged if it has paths or lists of paths only.
    """
    if isinstance(X, Mapping):
        given = {str(name): value for name, value in X.items() if value is not None}
        if "source" in given:
            given["source"] = source_name(given["source"])
        return given if all(_is_path(value) for value in given.values()) else None
    if isinstance(X, str | os.PathLike):
        return absolute_address(os.fspath(X))
    if isinstance(X, list | tuple) and all(isinstance(part, str | os.PathLike) for part in X):
        return [absolute_address(os.fspath(part)) for part in X]
    return None


def _in_words(source: Any) -> str:
    """Return the result of :func:`source_name` as text to show."""
    if not (isinstance(source, Mapping) and "source" in source):
        return str(source or "an array in memory")
    chosen = [f"{word} {', '.join(source[key])}" for key, word in SELECTIONS.items() if key in source]
    return " ".join([_in_words(source["source"]), *chosen])


def _is_path(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))


def _remove(created: Sequence[Path]) -> None:
    """Remove files, and folders that are empty."""
    for path in created:
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
