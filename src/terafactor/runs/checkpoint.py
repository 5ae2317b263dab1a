"""Checkpoints: when to write one, which to keep, and which to resume from."""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

from terafactor._durable import remove_folder, storage_errors
from terafactor._typing import is_number
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.runs.artifact import Artifact, read_artifact, verify_artifact, write_artifact
from terafactor.solver.callbacks import Snapshot, passes_multiple
from terafactor.solver.state_dict import StateDict

logger = logging.getLogger("terafactor")


@dataclass(frozen=True)
class CheckpointPolicy:
    """When checkpoints are written, and which are kept.

    Examples
    --------
    Write one every 100 steps; keep the newest two, and one every 500 steps:

    >>> from terafactor import CheckpointPolicy
    >>> policy = CheckpointPolicy(seconds=None, steps=100, keep_every=5)
    """

    seconds: float | None = 60.0
    """Time between two checkpoints; None counts steps only."""

    steps: int | None = None
    """Steps between two checkpoints; None counts time only."""

    keep: int = 2
    """Number of most recent checkpoints to keep."""

    keep_every: int | None = None
    """Also keep the first checkpoint at or after each multiple of ``keep_every * steps`` steps; None keeps none."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("keep", 1), ("keep_every", 1)):
            value = getattr(self, name)
            if not (name != "keep" and value is None) and not (is_number(value, Integral) and value >= least):
                raise ParameterError(f"{name} of checkpoints must be an integer >= {least}, got {value!r}")
        if self.keep_every is not None and self.steps is None:
            raise ParameterError(
                f"keep_every of checkpoints counts those by steps, got {self.keep_every} without steps: "
                "pass steps (--checkpoint-steps), too"
            )
        if self.seconds is not None and not (is_number(self.seconds, Real) and 0 < self.seconds < math.inf):
            raise ParameterError(f"seconds between checkpoints must be a number > 0 or None, got {self.seconds!r}")


class Checkpointer:
    """Callback that writes checkpoints, the last one at the end.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    policy : CheckpointPolicy
    make_artifact : callable taking a StateDict and returning an Artifact
        Returns the content of a checkpoint.
    before : callable taking a Snapshot
        Called before each checkpoint, to write files that must be at least as new.
    """

    def __init__(
        self,
        folder: Path,
        policy: CheckpointPolicy,
        make_artifact: Callable[[StateDict], Artifact],
        before: Callable[[Snapshot], None],
    ) -> None:
        self.folder = folder
        self.policy = policy
        self.make_artifact = make_artifact
        self.before = before
        self.written_at = time.monotonic()
        self.last_step: int | None = None
        self.seconds_spent = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        if not self.has_written(snapshot) and (snapshot.stopped_by is not None or self._is_due(snapshot)):
            started = time.monotonic()
            self.before(snapshot)
            self.write(snapshot.step, snapshot.state_dict())
            self.written_at = time.monotonic()
            self.seconds_spent += self.written_at - started

    def has_written(self, snapshot: Snapshot) -> bool:
        """Return whether the newest checkpoint is of this step."""
        return snapshot.step == self.last_step

    def _is_due(self, snapshot: Snapshot) -> bool:
        policy = self.policy
        by_steps = policy.steps is not None and passes_multiple(snapshot.step, snapshot.advance, policy.steps)
        return by_steps or (policy.seconds is not None and time.monotonic() - self.written_at >= policy.seconds)

    def write(self, step: int, state_dict: StateDict) -> None:
        """Write and verify a checkpoint, then remove older ones."""
        path = self.folder / f"step-{step:09d}"
        if os.path.lexists(path):  # of a run whose later checkpoint was damaged
            remove_folder(path)
        write_artifact(self.make_artifact(state_dict), path)
        verify_artifact(path)
        self.last_step = step
        self._prune(step)

    def _prune(self, newest_step: int) -> None:
        """Remove old checkpoints. A failure is only logged, since it does not affect the run."""
        written = [path for path in checkpoints(self.folder) if step_of(path) <= newest_step]  # later ones are damaged
        steps = itertools.pairwise([0, *map(step_of, written)])
        for path, (before, step) in zip(written[: -self.policy.keep], steps, strict=False):
            if not self._is_kept(step, before):
                try:
                    remove_folder(path)
                except StorageError as error:
                    logger.warning("an old checkpoint was not removed: %s", error)

    def _is_kept(self, step: int, before: int) -> bool:
        """Return whether keep_every keeps a checkpoint, given the step of the one before it."""
        policy = self.policy
        if policy.steps is None or policy.keep_every is None:
            return False
        return passes_multiple(step, step - before, policy.keep_every * policy.steps)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first. Symbolic links are ignored."""
    with storage_errors(folder, "read"):
        if not folder.is_dir():
            return []
        named = (path for path in folder.iterdir() if re.fullmatch(r"step-\d{9,18}", path.name, re.ASCII))
        return sorted((path for path in named if not path.is_symlink()), key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the step of a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> tuple[Path, Artifact] | None:
    """Return the newest undamaged checkpoint, or None before the first. Damaged ones are skipped with a warning."""
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            return path, read_artifact(path)
        except DataError as error:
            logger.warning("skipping a damaged checkpoint: %s", error)
    if found:
        raise DataError(f"all checkpoints in {folder} are damaged ({len(found)}): start a new run")
    return None
