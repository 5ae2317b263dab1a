"""The folder of a run::

run/
  config.toml       what was asked, with every default and the seed filled in
  metrics.jsonl     one evaluation per line
  log.txt           what happened, with times
  report.html       what people look at, kept fresh while the run goes on
  checkpoints/      step-000000120/ and so on: each a file like a model, to go on from
  model/            what was learned, once the run is done
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import tomllib
from collections.abc import Iterator, Mapping
from logging import Handler
from pathlib import Path
from typing import IO, Any

from terafactor._durable import naming, no_follow, remove_unfinished, try_lock, write_durably
from terafactor.errors import DataError, ParameterError
from terafactor.runs.artifact import place_of, read_manifest
from terafactor.runs.checkpoint import checkpoints, step_of

logger = logging.getLogger("terafactor")

LOOK = 0.1
"""Seconds that a process which looks whether a run is in use holds its lock at most."""


class RunDirectory:
    """Names and settings of a run directory.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.metrics_file = self.path / "metrics.jsonl"
        self.log_file = self.path / "log.txt"
        self.lock_file = self.path / ".lock"
        self.report_file = self.path / "report.html"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return self.config_file.is_file()

    @property
    def has_begun(self) -> bool:
        """Whether a run has made a step here that is on the disk; one that has not may be started anew."""
        counted = self.metrics_file.is_file() and self.metrics_file.stat().st_size > 0
        return counted or bool(checkpoints(self.checkpoints)) or place_of(self.model).exists()

    def config(self) -> dict[str, Any]:
        """Read the configuration."""
        if not self.is_run:
            raise DataError(f"{self.path} is not a run directory: it has no config.toml")
        with naming(self.config_file, "read"):
            content = self.config_file.read_bytes()
        try:
            return tomllib.loads(content.decode())
        except ValueError as error:
            raise DataError(f"{self.config_file} is not TOML: {error}") from error

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the configuration; settings that are None are left out, as TOML has no word for them."""
        import tomli_w

        write_durably(self.config_file, tomli_w.dumps(without_none(config)).encode())

    def latest(self) -> tuple[Path | None, bool]:
        """Return the newest of checkpoints and model, None before the first, and whether it is the model.

        A checkpoint is newer than the model where a run that was done has been resumed for more epochs since.
        """
        model, written = place_of(self.model), checkpoints(self.checkpoints)
        done = model.is_dir()
        end = read_manifest(model)["numbers"].get("n_steps", math.inf) if done else -1
        if written and step_of(written[-1]) > end:
            return written[-1], False
        return (model, True) if done else (None, False)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, made if need be, against other processes. A process that dies lets go of it."""
        with naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.lock_file, "ab", opener=no_follow)  # noqa: SIM115
        with file:
            if not (try_lock(file.fileno()) or _try_again(file)):
                raise ParameterError(
                    f"another process is working in {self.path}: wait for it, or choose another directory"
                )
            remove_unfinished(self.path)
            yield

    @property
    def in_use(self) -> bool:
        """Whether a process is working there; looking changes nothing."""
        if not self.lock_file.is_file():
            return False
        with naming(self.lock_file, "read"), open(self.lock_file, "rb") as file:
            return not try_lock(file.fileno(), shared=True)

    @contextlib.contextmanager
    def logging(self, *others: Handler) -> Iterator[None]:
        """Write what the package logs to log.txt as well, and hand it to others."""
        with naming(self.log_file):
            handler = LogFile(self.log_file, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        level = logger.level
        for each in (handler, *others):
            logger.addHandler(each)
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
        try:
            yield
        finally:
            logger.setLevel(level)
            for each in (handler, *others):
                logger.removeHandler(each)
            handler.close()


class LogFile(logging.FileHandler):
    """Appends to a log, unless it is a link to somewhere else."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=no_follow)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings without those that are None."""
    return {
        name: without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def _try_again(file: IO[bytes]) -> bool:
    """Lock a file after a moment, in case somebody only looked."""
    time.sleep(LOOK)
    return try_lock(file.fileno())
