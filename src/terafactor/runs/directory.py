"""The folder of a run::

run/
  config.toml       parameters with every default filled in, seed, description of the data
  metrics.jsonl     one evaluation per line
  log.txt           events, with times
  report.html       the report, updated while the run continues
  checkpoints/      step-000000120/ and so on: each a model file to resume from
  model/            the model, once the run is done
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from logging import Handler
from pathlib import Path
from typing import Any

from terafactor._checks import check_regular
from terafactor._durable import no_follow, remove_leftovers, storage_errors, try_lock, write_durably
from terafactor._format import LogFormatter
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.runs.artifact import find_artifact, read_manifest
from terafactor.runs.checkpoint import checkpoints, step_of
from terafactor.runs.schema import COUNT, SHAPE, SOURCE, TABLE, TEXT, Rule, Schema, check_document, is_count

logger = logging.getLogger("terafactor")

RETRY_SECONDS = 0.1
"""Seconds before locking is tried again: another process may have checked whether the run is in use."""

MAX_CONFIG_BYTES = 2**26
"""Larger configurations are refused without being read."""

CONFIG: Schema = {
    "kind": TEXT,
    "seed": Rule("an integer >= 0", lambda value: type(value) is int and value >= 0),
    "data": {
        "source": SOURCE.optional(),
        "shape": SHAPE.optional(),
        "row_bytes": COUNT.optional(),
        "fingerprint": TEXT.optional(),
    },
    "holdout": TABLE.optional(),
    "parameters": TABLE,
}
HOLDOUT: Schema = {"rows": COUNT.optional()}
"""Fields that every task writes; the task that held out the rows checks its own."""


class RunDirectory:
    """Names and settings of a run directory.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> from terafactor.runs import RunDirectory
    >>> run = RunDirectory("does-not-exist")
    >>> run.is_run, run.model.name
    (False, 'model')
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
        self._lock: os.stat_result | None = None

    @property
    def is_run(self) -> bool:
        """Whether a run was started in this directory."""
        with storage_errors(self.config_file, "read"):
            return self.config_file.is_file()

    @property
    def has_steps(self) -> bool:
        """Whether an evaluation, a checkpoint or a model is on the disk; a run without any may be started again."""
        evaluated = self.metrics_file.is_file() and self.metrics_file.stat().st_size > 0
        return evaluated or bool(checkpoints(self.checkpoints)) or find_artifact(self.model).exists()

    def missing(self) -> list[Path]:
        """Return the paths that a run creates before its first step and that do not exist, innermost first."""
        files = (self.config_file, self.metrics_file, self.log_file, self.report_file, self.lock_file)
        folders = (self.checkpoints, self.path, *self.path.absolute().parents)
        return [path for path in (*files, *folders) if not os.path.lexists(path)]

    def config(self) -> dict[str, Any]:
        """Read the configuration."""
        if not self.is_run:
            raise DataError(f"{self.path} is not a run directory: it has no config.toml")
        config = read_toml(self.config_file)
        check_document(config, CONFIG, str(self.config_file))
        if "holdout" in config:
            check_document(config["holdout"], HOLDOUT, f"holdout of {self.config_file}")
        return config

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the configuration; settings that are None are left out, as TOML has no null."""
        import tomli_w

        write_durably(self.config_file, tomli_w.dumps(drop_none(config)).encode())

    def latest(self) -> tuple[Path | None, bool]:
        """Return the newest of checkpoints and model (None before the first), and whether it is the model.

        A checkpoint is newer than the model if a finished run was resumed for more epochs.
        """
        model, written = find_artifact(self.model), checkpoints(self.checkpoints)
        finished = model.is_dir()
        last_step = _n_steps(model) if finished else -1
        if written and step_of(written[-1]) > last_step:
            return written[-1], False
        return (model, True) if finished else (None, False)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory if needed, and lock it until the block ends or the process dies."""
        if self.path.is_file():
            raise ParameterError(f"{self.path} is a file, not a run directory: choose another name")
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if self.checkpoints.is_symlink():
                raise StorageError(OSError(errno.ELOOP, "it is a symbolic link"), self.checkpoints)
        with storage_errors(self.lock_file):
            file = open(self.lock_file, "ab", opener=no_follow)  # noqa: SIM115
        with file:
            with storage_errors(self.lock_file, "lock"):
                free = try_lock(file.fileno())
                if not free:
                    time.sleep(RETRY_SECONDS)
                    free = try_lock(file.fileno())
            if not free:
                raise ParameterError(
                    f"another process is working in {self.path}: wait for it, or choose another directory"
                )
            self._lock = os.fstat(file.fileno())
            self.check_lock()  # the process that had it may have removed it
            remove_leftovers(self.path)
            yield

    def check_lock(self) -> None:
        """Raise an error if the directory was deleted or moved since it was locked; another run may be there now."""
        found = None
        with storage_errors(self.lock_file, "read"), contextlib.suppress(FileNotFoundError):
            found = os.stat(self.lock_file, follow_symlinks=False)
        if found is None or self._lock is None or not os.path.samestat(found, self._lock):
            reason = "it was deleted or moved while this run was working in it, and another run may be there now"
            raise StorageError(OSError(errno.ESTALE, reason), self.path)

    @property
    def in_use(self) -> bool:
        """Whether a process is working in the directory; the check changes nothing."""
        if not self.lock_file.is_file():
            return False
        with storage_errors(self.lock_file, "read"), open(self.lock_file, "rb") as file:
            return not try_lock(file.fileno(), shared=True)

    @contextlib.contextmanager
    def logging(self, *others: Handler) -> Iterator[None]:
        """Send the log of the package to log.txt, and to other handlers."""
        with storage_errors(self.log_file):
            handler = LogFile(self.log_file, encoding="utf-8")
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
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
    """Handler that appends to a file, unless it is a symbolic link."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=no_follow)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration that may come from someone else."""
    with storage_errors(path, "read"):
        check_regular(path)
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise DataError(
                f"{path} has {size:,} bytes, but a configuration has at most {MAX_CONFIG_BYTES:,}: "
                "it was not written by terafactor"
            )
        content = path.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not TOML: {error}") from error


def drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings without those that are None."""
    return {
        name: drop_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def _n_steps(model: Path) -> float:
    """Return the steps of a model, infinity if its manifest does not state them."""
    n_steps = read_manifest(model)["numbers"].get("n_steps", math.inf)
    if n_steps != math.inf and not is_count(n_steps):
        raise DataError(f"n_steps of {model} must be an integer >= 0, got {n_steps!r}: the model is damaged")
    return n_steps
