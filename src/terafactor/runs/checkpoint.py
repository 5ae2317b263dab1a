"""Checkpoints: when to write one, which to keep, and which to go on from."""

from __future__ import annotations

import itertools
import logging
import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

from terafactor._durable import naming
from terafactor._typing import is_number
from terafactor.errors import DataError, ParameterError
from terafactor.runs.artifact import Artifact, read_artifact, verify_artifact, write_artifact
from terafactor.solver.callbacks import Snapshot, passes_multiple
from terafactor.solver.state_dict import StateDict

logger = logging.getLogger("terafactor")


@dataclass(frozen=True)
class CheckpointPolicy:
    """When checkpoints are written, and which are kept."""

    seconds: float | None = 60.0
    """Time between two, None: by steps only."""

    steps: int | None = None
    """Steps between two, None: by time only."""

    keep: int = 2
    """How many of the newest stay."""

    keep_every: int | None = None
    """Every so many of those by steps stay for good; None: none but the newest.

    Which ones: the first at or past each multiple of ``keep_every * steps`` steps.
    """

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("keep", 1), ("keep_every", 1)):
            value = getattr(self, name)
            if not (name != "keep" and value is None) and not (is_number(value, Integral) and value >= least):
                raise ParameterError(f"{name} of checkpoints must be an integer >= {least}, got {value!r}")
        if self.keep_every is not None and self.steps is None:
            raise ParameterError(
                f"keep_every of checkpoints counts those by steps, got {self.keep_every} without steps: "
                "say steps (--checkpoint-steps), too"
            )
        if self.seconds is not None and not (is_number(self.seconds, Real) and 0 < self.seconds < math.inf):
            raise ParameterError(f"seconds between checkpoints must be a number > 0 or None, got {self.seconds!r}")


class Checkpointer:
    """Callback that writes checkpoints, one at the end included.

    Parameters
    ----------
    folder : Path
        Where checkpoints live.
    policy : CheckpointPolicy
    make_artifact : callable taking a StateDict and returning an Artifact
        Adds to a state_dict what makes it a file to go on from.
    before : callable taking a Snapshot
        Called before each is written, to put down what must not be newer than it.
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
        if not self.wrote(snapshot) and (snapshot.stopped_by is not None or self._is_due(snapshot)):
            started = time.monotonic()
            self.before(snapshot)
            self.write(snapshot.step, snapshot.state_dict())
            self.written_at = time.monotonic()
            self.seconds_spent += self.written_at - started

    def wrote(self, snapshot: Snapshot) -> bool:
        """Whether the newest is of this moment."""
        return snapshot.step == self.last_step

    def _is_due(self, snapshot: Snapshot) -> bool:
        policy = self.policy
        by_steps = policy.steps is not None and passes_multiple(snapshot.step, snapshot.advance, policy.steps)
        return by_steps or (policy.seconds is not None and time.monotonic() - self.written_at >= policy.seconds)

    def write(self, step: int, state_dict: StateDict) -> None:
        """Write and verify one, then let older ones go."""
        place = self.folder / f"step-{step:09d}"
        if place.exists():  # of a run whose later checkpoint was damaged
            remove(place)
        write_artifact(self.make_artifact(state_dict), place)
        verify_artifact(place)
        self.last_step = step
        self._prune()

    def _prune(self) -> None:
        written = checkpoints(self.folder)
        steps = itertools.pairwise([0, *map(step_of, written)])
        for place, (before, step) in zip(written[: -self.policy.keep], steps, strict=False):
            if not self._stays(step, before):
                remove(place)

    def _stays(self, step: int, before: int) -> bool:
        """Whether one stays for good, given the step of the one before it."""
        policy = self.policy
        if policy.steps is None or policy.keep_every is None:
            return False
        return passes_multiple(step, step - before, policy.keep_every * policy.steps)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"step-\d{9,}", path.name))


def step_of(checkpoint: Path) -> int:
    """Return the step that a checkpoint is of."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> tuple[Path, Artifact] | None:
    """Return the newest checkpoint that is whole, None when there is none yet. Damaged ones are passed over, aloud."""
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            return path, read_artifact(path)
        except DataError as error:
            logger.warning("passing over a checkpoint: %s", error)
    if found:
        raise DataError(f"none of the {len(found)} checkpoints in {folder} is whole: the run has to start anew")
    return None


def remove(place: Path) -> None:
    """Delete a checkpoint: out of sight first, so that a half-deleted one is never taken for one."""
    with naming(place, "remove"):
        hidden = place.with_name(f".{place.name}.removed")
        shutil.rmtree(hidden, ignore_errors=True)
        place.rename(hidden)
        shutil.rmtree(hidden)
