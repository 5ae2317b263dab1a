"""Callbacks, snapshots of a running fit, and its history."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from terafactor._typing import Array
from terafactor.errors import ParameterError
from terafactor.problem.constraints.norm_ball import atom_sizes
from terafactor.solver.state_dict import StateDict

if TYPE_CHECKING:
    from terafactor.solver.loop import RunningFit


GRACE = 0.25
"""Seconds that evaluations may always take, so that short fits have a curve too."""


@dataclass(frozen=True)
class Snapshot:
    """The progress of a fit after a step. Changing it does not change the fit.

    Its numbers are fixed; :attr:`components` and :meth:`surrogate` are computed on access, so use them inside the
    callback.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> def check_atoms(snapshot):
    ...     if not np.isfinite(snapshot.components).all():
    ...         raise FloatingPointError(f"step {snapshot.step}")
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> MaskedDictionaryLearning(3, alpha=0.1, callbacks=[check_atoms]).fit(X).components_.shape
    (3, 10)
    """

    step: int
    """Steps done."""

    n_samples: int
    """Rows seen."""

    batches_done: int
    """Batches read, including those before an interruption."""

    advance: int
    """Batches since the previous snapshot; more than one if the learner does several steps at once."""

    batches_to_do: int
    """Batches read at the end, unless the fit stops earlier."""

    batches_per_epoch: int
    """Batches per pass over the data."""

    seconds: float
    """Time spent reading, learning and checking convergence, without callbacks."""

    bytes_read: int
    """Bytes read from the source."""

    n_reseeded: int
    """Atoms re-initialized so far."""

    end_of_epoch: bool
    """Whether this step ends a pass over the data or the fit."""

    stopped_by: str | None
    """None while the fit runs, then "n_epochs", "tol", "max_time", "callback" or "cluster"."""

    _fit: RunningFit

    @property
    def may_converge(self) -> bool:
        """Whether the fit stops when it has converged, so that :attr:`batches_to_do` is an upper bound."""
        return self._fit.may_converge

    @property
    def components(self) -> Array:
        """A copy of the atoms (k, p)."""
        return self._fit.atoms().copy()

    def surrogate(self) -> float:
        """Compute the surrogate, at the cost of one product of the dictionary with itself."""
        return self._fit.surrogate()

    def state_dict(self) -> StateDict:
        """Return what another fit needs to continue from here. Use it inside the callback: arrays are not copied."""
        return self._fit.state_dict()


def passes_multiple(count: int, advance: int, interval: int) -> bool:
    """Return whether a count that has just grown by ``advance`` reached or passed a multiple of ``interval``."""
    return count // interval > (count - advance) // interval


class Callback(Protocol):
    """Called after every advance and once at the end. Returning True stops the fit; the model stays usable.

    On sparse rows, one advance may be several steps: see :attr:`Snapshot.advance`. A callback that has a method
    ``evaluated(evaluation)`` also receives every entry of the history.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> def stop_after_two(snapshot):
    ...     return snapshot.step == 2
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> MaskedDictionaryLearning(3, alpha=0.1, callbacks=[stop_after_two]).fit(X).n_steps_
    2
    """

    def __call__(self, snapshot: Snapshot) -> bool | None: ...


def asks_to_stop(callback: Callback, snapshot: Snapshot) -> bool:
    """Call a callback; return whether it asks to stop. Raise ParameterError if its answer has no truth value."""
    answer = callback(snapshot)
    try:
        return bool(answer)
    except (TypeError, ValueError) as error:
        name = getattr(callback, "__qualname__", callback)
        raise ParameterError(
            f"callback {name} returned {type(answer).__name__}, which is neither true nor false: "
            "return True to stop the fit, False or None to continue"
        ) from error


@dataclass(frozen=True)
class Evaluation:
    """One entry of the history of a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> history = MaskedDictionaryLearning(3, alpha=0.1).fit(X).history_
    >>> history[-1].n_samples >= 200
    True
    """

    step: int
    """Steps done."""

    n_samples: int
    """Rows seen."""

    seconds: float
    """Time spent reading, learning and checking convergence, without evaluations and other callbacks."""

    bytes_read: int
    """Bytes read from the source."""

    surrogate: float
    """Value of the surrogate: the objective on the rows seen, up to a constant."""

    objective: float | None
    """Objective on held-out rows, if there are any."""

    sparsity: float
    """Mean over atoms of l1 norm / l2 norm, the paper's measure: small for sparse atoms."""

    memory: int
    """Peak resident memory of the process, in bytes; 0 if unknown."""

    n_reseeded: int
    """Unused atoms re-initialized so far."""


class Recorder:
    """Callback that records the history: often at the beginning, when much changes, then ten times per epoch.

    Parameters
    ----------
    objective : callable taking a RunningFit and returning a float, or None
        Computes the objective on held-out rows.
    history : list of Evaluation, optional
        The list to append to.
    record : callable taking an Evaluation, optional
        Called with each evaluation instead of appending it to ``history``.
    share : float
        Share of the time that evaluations may take, in addition to ``GRACE`` and the final one.
    audience : sequence of Callback
        Callbacks that receive each evaluation if they have a method ``evaluated``.
    """

    def __init__(
        self,
        objective: Callable[[RunningFit], float] | None = None,
        *,
        history: list[Evaluation] | None = None,
        record: Callable[[Evaluation], None] | None = None,
        share: float = math.inf,
        audience: Sequence[Callback] = (),
    ) -> None:
        self.objective = objective
        self.history: list[Evaluation] = [] if history is None else history
        self.record = record or self.history.append
        self.share = share
        self.audience = audience
        self.stopped_by: str | None = None
        self.seconds_spent = 0.0
        self._last_cost = 0.0
        self._started = time.monotonic()

    def __call__(self, snapshot: Snapshot) -> None:
        self.stopped_by = snapshot.stopped_by
        wanted = self.objective is not None and self._is_due(snapshot) and self._is_affordable()
        if wanted or snapshot.stopped_by is not None:
            self.note(snapshot, with_objective=True)

    def note(self, snapshot: Snapshot, *, with_objective: bool = False) -> None:
        """Record the present step once, with the held-out objective if ``with_objective``."""
        objective = self.objective if with_objective else None
        last = self.history[-1] if self.history else None
        if last is not None and last.step == snapshot.step and (objective is None or last.objective is not None):
            return
        started = time.monotonic()
        evaluation = evaluate(snapshot, objective)
        self.record(evaluation)
        self._last_cost = time.monotonic() - started
        self.seconds_spent += self._last_cost
        for callback in self.audience:
            if hasattr(callback, "evaluated"):
                callback.evaluated(evaluation)

    def _is_due(self, snapshot: Snapshot) -> bool:
        done, advance = snapshot.batches_done, snapshot.advance
        interval = max(1, snapshot.batches_per_epoch // 10)
        early = done < interval and done.bit_length() > (done - advance).bit_length()  # 1, 2, 4, 8, ...
        return early or passes_multiple(done, advance, interval) or snapshot.end_of_epoch

    def _is_affordable(self) -> bool:
        """Return whether another evaluation, as long as the last one, stays within the share."""
        return self.seconds_spent + self._last_cost <= GRACE + self.share * (time.monotonic() - self._started)


def evaluate(snapshot: Snapshot, objective: Callable[[RunningFit], float] | None = None) -> Evaluation:
    """Return the entry of the history for a snapshot. objective: computes the held-out objective of a running fit."""
    running = snapshot._fit
    return Evaluation(
        step=snapshot.step,
        n_samples=snapshot.n_samples,
        seconds=snapshot.seconds,
        bytes_read=snapshot.bytes_read,
        surrogate=running.surrogate(),
        objective=None if objective is None else objective(running),
        sparsity=sparsity(running.atoms()),
        memory=peak_memory(),
        n_reseeded=snapshot.n_reseeded,
    )


def sparsity(dictionary: Array) -> float:
    """Return the mean over nonzero atoms of l1 norm / l2 norm; 0 if all are zero."""
    l1 = atom_sizes(dictionary, 1.0, 0.0)
    l2 = np.sqrt(atom_sizes(dictionary, 0.0, 2.0))
    nonzero = l2 > 0
    return float(np.mean(l1[nonzero] / l2[nonzero])) if nonzero.any() else 0.0


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes, 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
