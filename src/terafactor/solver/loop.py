"""The training loop: advance, notify callbacks, until something stops it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from terafactor._typing import Array
from terafactor.errors import ClusterError
from terafactor.solver.callbacks import Callback, Snapshot, asks_to_stop
from terafactor.solver.maintain import Evidence
from terafactor.solver.state_dict import StateDict


class Counters(Protocol):
    """The part of a state that every fit counts."""

    n_steps: int
    """Steps done, including those before an interruption."""

    n_samples: int
    """Rows seen."""

    n_reseeded: int
    """Atoms re-initialized."""


class RunningFit(Protocol):
    """A fit in progress, as the loop and callbacks see it."""

    may_converge: bool
    """Whether it may end before its last batch."""

    @property
    def state(self) -> Counters:
        """What the steps change."""

    def steps(self, numbers: range) -> Generator[Evidence, None, None]:
        """Do one step per batch number; yield after each step or group of steps. Closing it leaves a usable model."""

    def has_converged(self) -> bool:
        """Return whether further steps would change little. Also valid right after resuming."""

    def surrogate(self) -> float:
        """Compute the value of the surrogate, which the steps minimize."""

    def atoms(self) -> Array:
        """Return the atoms (k, p); do not modify them."""

    def state_dict(self) -> StateDict:
        """Return the state, from which another fit can continue."""


@dataclass(frozen=True)
class Elapsed:
    """Time and bytes that a fit had used before it was interrupted."""

    seconds: float = 0.0
    bytes_read: int = 0


def run_loop(
    fit: RunningFit,
    numbers: range,
    batches_per_epoch: int,
    callbacks: Sequence[Callback] = (),
    *,
    max_time: float | None = None,
    elapsed: Elapsed | None = None,
    started: float | None = None,
) -> None:
    """Run a fit over batches, and call the callbacks after every advance and at the end.

    Parameters
    ----------
    fit : RunningFit
    numbers : range
        Numbers of the batches to learn from, counted over all epochs.
    batches_per_epoch : int
    callbacks : sequence of Callback
        Called in this order; one that returns True stops the loop.
    max_time : float, optional
        Seconds after which the loop stops, including callbacks and ``elapsed``.
    elapsed : Elapsed, optional
        What an interrupted fit had used; counted in the snapshots.
    started : float, optional
        Value of ``time.perf_counter()`` at the start of the fit; now by default.
    """
    before = elapsed or Elapsed()
    origin = (time.perf_counter() if started is None else started) - before.seconds
    bytes_read, batches_done, in_callbacks = before.bytes_read, numbers.start, 0.0
    # A resumed fit may have converged just before it was interrupted.
    stopped_by = "tol" if fit.has_converged() else None

    def notify(advance: int, end_of_epoch: bool, stopped_by: str | None) -> bool:
        nonlocal in_callbacks
        paused = time.perf_counter()
        snapshot = Snapshot(
            step=fit.state.n_steps,
            n_samples=fit.state.n_samples,
            batches_done=batches_done,
            advance=advance,
            batches_to_do=numbers.stop,
            batches_per_epoch=batches_per_epoch,
            seconds=paused - origin - in_callbacks,
            bytes_read=bytes_read,
            n_reseeded=fit.state.n_reseeded,
            end_of_epoch=end_of_epoch,
            stopped_by=stopped_by,
            _fit=fit,
        )
        stop = any([asks_to_stop(callback, snapshot) for callback in callbacks])  # call all of them
        in_callbacks += time.perf_counter() - paused
        return stop

    with contextlib.closing(fit.steps(numbers if stopped_by is None else numbers[:0])) as steps:
        try:
            for evidence in steps:
                bytes_read += evidence.n_bytes
                batches_done += evidence.n_batches
                if fit.has_converged():
                    stopped_by = "tol"
                if notify(evidence.n_batches, batches_done % batches_per_epoch == 0, None):
                    stopped_by = stopped_by or "callback"
                if max_time is not None and time.perf_counter() - origin > max_time:
                    stopped_by = stopped_by or "max_time"
                if stopped_by is not None:
                    break
        except ClusterError:
            if fit.state.n_steps:  # the state is that of the last advance, and worth a checkpoint
                notify(0, False, "cluster")
            raise
        notify(0, True, stopped_by or "n_epochs")
