"""The only loop: advance, tell, until something stops it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from terafactor._typing import Array
from terafactor.solver.callbacks import Callback, Snapshot, asks_to_stop
from terafactor.solver.state_dict import StateDict


class Advance(NamedTuple):
    """What a fit has done since it told last."""

    n_batches: int
    """Batches learned from, of one epoch."""

    n_bytes: int
    """Bytes read."""


class RunningFit(Protocol):
    """What the loop drives: a fit that goes on step by step, and whose state_dict is known after each."""

    @property
    def n_steps(self) -> int:
        """Steps done since the beginning."""

    @property
    def n_samples(self) -> int:
        """Rows seen."""

    @property
    def n_reseeded(self) -> int:
        """Atoms started anew."""

    def steps(self, numbers: range) -> Generator[Advance, None, None]:
        """Do one step per batch number, and tell after one or some; closing it leaves a usable model."""

    def has_converged(self) -> bool:
        """Whether the last step, be it one before an interruption, showed that going on changes little."""

    def surrogate(self) -> float:
        """Compute the value of what the steps minimise."""

    def atoms(self) -> Array:
        """Return the atoms (k, p); not to be changed."""

    def state_dict(self) -> StateDict:
        """Return what another fit needs to go on from here."""


@dataclass(frozen=True)
class Elapsed:
    """What a fit had used up before it was interrupted."""

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
    """Let a fit do one step per number, and call back whenever it tells of some.

    Parameters
    ----------
    fit : RunningFit
    numbers : range
        Numbers of the batches to learn from, counted over all epochs.
    batches_per_epoch : int
    callbacks : sequence of Callback
        Called at every advance and at the end, in this order; one that returns True stops the loop.
    max_time : float, optional
        Seconds after which the loop stops, callbacks and what had elapsed before included.
    elapsed : Elapsed, optional
        What an interrupted fit had used up, counted in what callbacks are told.
    started : float, optional
        Reading of ``time.perf_counter`` at which the fit began; by default now.
    """
    before = elapsed or Elapsed()
    started = (time.perf_counter() if started is None else started) - before.seconds
    bytes_read, idle = before.bytes_read, 0.0
    stopped_by = "tol" if fit.has_converged() else None  # and then interrupted before its end was written

    def tell(advance: int, end_of_epoch: bool, stopped_by: str | None) -> bool:
        nonlocal idle
        paused = time.perf_counter()
        snapshot = Snapshot(
            step=fit.n_steps,
            n_samples=fit.n_samples,
            batches_done=batches_done,
            advance=advance,
            batches_to_do=numbers.stop,
            batches_per_epoch=batches_per_epoch,
            seconds=paused - started - idle,
            bytes_read=bytes_read,
            n_reseeded=fit.n_reseeded,
            end_of_epoch=end_of_epoch,
            stopped_by=stopped_by,
            _fit=fit,
        )
        stop = any([asks_to_stop(callback, snapshot) for callback in callbacks])  # all of them, whatever one says
        idle += time.perf_counter() - paused
        return stop

    batches_done = numbers.start
    with contextlib.closing(fit.steps(numbers if stopped_by is None else numbers[:0])) as steps:
        for advance in steps:
            bytes_read += advance.n_bytes
            batches_done += advance.n_batches
            if fit.has_converged():
                stopped_by = "tol"
            if tell(advance.n_batches, batches_done % batches_per_epoch == 0, None):
                stopped_by = stopped_by or "callback"
            if max_time is not None and time.perf_counter() - started > max_time:
                stopped_by = stopped_by or "max_time"
            if stopped_by is not None:
                break
        tell(0, True, stopped_by or "n_epochs")
