"""Predict the memory, bytes read and time of a fit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from terafactor._format import counted, data_size, duration
from terafactor._memory import available_memory
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.prefetch import DEPTH, N_READERS
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver.callbacks import Snapshot
from terafactor.solver.cluster_plan import ClusterPlan
from terafactor.solver.fit import fit, make_stream
from terafactor.solver.options import SolverOptions

RESERVE = 100_000_000
"""Bytes reserved for libraries and small arrays."""

WORKER_BYTES = 300_000_000
"""Bytes of a worker of a cluster before it has any data: Python, Dask, libraries, compiled kernels."""

SAMPLES = 64
"""Batches sampled to estimate the bytes read."""

SKIPPED_STEPS = DEPTH + 2
"""Steps that the probe does not time: they may use rows that were prefetched during setup."""

TIMED_STEPS, TIMED_SECONDS, MOST_SECONDS = 30, 2.0, 15.0
"""The probe ends after this many timed steps, timed seconds, or seconds in total."""


@dataclass(frozen=True)
class Memory:
    """Memory of a fit in bytes, without the data themselves if they are in memory.

    Examples
    --------
    >>> from terafactor.solver import Memory
    >>> Memory(model=400, statistics=500, start=300, work=100).peak
    1200
    """

    model: int
    """The atoms, k x p."""

    statistics: int
    """B (k x p), C (k x k) and the counts of features."""

    start: int
    """Rows from which the atoms are initialized, freed when learning begins; none with ``init``."""

    work: int
    """Prefetched rows, and copies of the part of the model that a step works on."""

    @property
    def peak(self) -> int:
        """Largest sum of the parts that exist at the same time."""
        return self.model + self.statistics + max(self.start, self.work)


@dataclass(frozen=True)
class Plan:
    """Memory, bytes read and time that a fit needs.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions, make_plan
    >>> plan = make_plan(open_source(np.ones((200, 10))), Problem(), SolverOptions(n_components=3, reduction=2))
    >>> plan.n_observed, plan.steps_per_epoch
    (5, 5)
    """

    n_samples: int
    n_features: int
    dtype: str
    n_components: int
    reduction: float
    batch_size: int
    statistics: str
    n_epochs: float

    n_observed: int
    """Features per step."""

    memory: Memory

    available_bytes: int | None
    """Memory that this process may still use; None if unknown."""

    bytes_per_epoch: int
    """Bytes read per epoch."""

    full_bytes_per_epoch: int
    """Bytes per epoch if whole rows were read."""

    steps_per_epoch: int

    seconds_per_step: float
    """Time of a step, including reading, measured on a few steps."""

    cluster: ClusterPlan | None = None
    """Plan of the same fit on a cluster; None unless ``workers`` was given."""

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers, including the computed ones, as plain values."""
        names = ("seconds_per_epoch", "seconds")
        computed = {name: getattr(self, name) for name in names}
        cluster = None if self.cluster is None else self.cluster.as_dict()
        return (
            asdict(self) | computed | {"memory": asdict(self.memory) | {"peak": self.memory.peak}, "cluster": cluster}
        )

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the plan as people read it: lines of a name, a figure and a remark."""
        memory, size = self.memory, f"{self.n_components} x {self.n_features:,}"
        free = "" if self.available_bytes is None else f"{data_size(self.available_bytes)} available"
        masked = f", {self.statistics} statistics" if self.reduction > 1 else ""
        return [
            ("matrix", f"{self.n_samples:,} x {self.n_features:,}", f"rows x features, {self.dtype}"),
            ("step", f"{self.batch_size:,} x {self.n_observed:,}", f"rows x features{masked}"),
            ("memory", data_size(memory.peak), free),
            ("  atoms", data_size(memory.model), size),
            ("  statistics", data_size(memory.statistics), ""),
            ("  start", data_size(memory.start), "initial rows, freed before the first step"),
            ("  work", data_size(memory.work), "prefetched rows, copies for a step"),
            ("read per epoch", data_size(self.bytes_per_epoch), self._reading()),
            ("time per step", duration(self.seconds_per_step), f"{counted(self.steps_per_epoch, 'step')} per epoch"),
            ("time per epoch", duration(self.seconds_per_epoch), ""),
            (
                "total time",
                duration(self.seconds),
                f"{self.n_epochs:g} epoch{'s' * (self.n_epochs != 1)} at this speed",
            ),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<15}{figure:>15}  {remark}".rstrip() for name, figure, remark in self.lines())

    def _reading(self) -> str:
        """Compare the bytes read per epoch with those of whole rows, and recommend packing if it helps."""
        less, possible = self.full_bytes_per_epoch / max(self.bytes_per_epoch, 1), math.ceil(self.reduction)
        if less >= 1.05:
            return f"{less:.1f} times less than whole rows, {data_size(self.full_bytes_per_epoch)}"
        packed = self.statistics == "masked" and possible > 1
        return f"whole rows; {possible} times less if packed" if packed else "whole rows"

    @property
    def seconds_per_epoch(self) -> float:
        """Time of one pass over the data."""
        return self.steps_per_epoch * self.seconds_per_step

    @property
    def seconds(self) -> float:
        """Time of the whole fit."""
        return self.n_epochs * self.seconds_per_epoch


def make_plan(
    source: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    *,
    from_rows: bool = True,
    workers: int | None = None,
    bandwidth: float = 1.25e9,
    resolve: Callable[[Problem], Problem] | None = None,
) -> Plan:
    """Predict what ``fit`` needs. Raise ParameterError, before allocating anything large, if it exceeds the memory.

    from_rows: whether atoms are initialized from rows of the source rather than given. workers, bandwidth: threads of a
    cluster, and bytes per second between its machines, if the plan should include one. resolve: completes the problem
    from rows of the source, which are read once the memory is known to suffice.

    Examples
    --------
    >>> from terafactor.solver import make_plan
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions
    >>> plan = make_plan(open_source(np.ones((200, 10))), Problem(), SolverOptions(n_components=3))
    >>> plan.memory.model  # bytes of 3 atoms of 10 values in float64
    240
    """
    stream = make_stream(source, options)

    def memory_of(n_components: int) -> Memory:
        return _memory(source, stream.values_at_once, replace(options, n_components=n_components), from_rows)

    plan = Plan(
        n_samples=source.shape[0],
        n_features=source.shape[1],
        dtype=source.dtype.name,
        n_components=options.n_components,
        reduction=options.reduction,
        batch_size=options.batch_size,
        statistics=options.statistics,
        n_epochs=options.n_epochs,
        n_observed=math.ceil(source.shape[1] / math.ceil(options.reduction)),
        memory=memory_of(options.n_components),
        available_bytes=available_memory(),
        bytes_per_epoch=_bytes_per_epoch(stream),
        full_bytes_per_epoch=_bytes_per_epoch(make_stream(source, replace(options, reduction=1))),
        steps_per_epoch=stream.batches_per_epoch,
        seconds_per_step=0.0,
    )
    _refuse_too_large(plan, memory_of)
    problem = problem if resolve is None else resolve(problem)
    alone = replace(options, shards=1)
    plan = replace(plan, seconds_per_step=_probe(source, problem, alone))
    if workers is None:
        return plan
    state_bytes = plan.memory.model + plan.memory.statistics
    cluster = ClusterPlan(
        shards=options.shards,
        round_steps=options.round_steps,
        workers=workers,
        bandwidth=bandwidth,
        state_bytes=state_bytes,
        step_seconds=_probe(source, problem, replace(alone, n_threads=1)),
        local_step_seconds=plan.seconds_per_step,
        worker_bytes=4 * state_bytes + plan.memory.work + WORKER_BYTES,
    )
    return replace(plan, cluster=cluster)


def _memory(source: MatrixSource, values_at_once: int, options: SolverOptions, from_rows: bool) -> Memory:
    size, n_components, n_features = source.dtype.itemsize, options.n_components, source.shape[1]
    matrix = n_components * n_features * size
    share = 1 / math.ceil(options.reduction)
    n_waiting = 2 if source.in_memory else DEPTH + 2 + N_READERS
    of_model = 3 * share + (options.statistics == "full") + options.exact
    if options.shards > 1:  # a copy of the state for each shard, of which two are merged into a third
        of_model = 2 * (options.shards + 1) + of_model * min(options.shards, options.n_threads)
    return Memory(
        model=matrix,
        statistics=matrix + 8 * (n_features + n_components**2),
        start=matrix if from_rows else 0,
        work=round(of_model * matrix + n_waiting * values_at_once * size),
    )


def _bytes_per_epoch(stream: BatchStream) -> int:
    """Estimate the bytes read per epoch from a sample of batches."""
    numbers = np.unique(np.linspace(0, stream.batches_per_epoch - 1, SAMPLES).astype(int))
    sampled = [stream.n_bytes(int(number)) for number in numbers]
    return round(sum(sampled) / len(numbers) * stream.batches_per_epoch)


def _refuse_too_large(plan: Plan, memory_of: Callable[[int], Memory]) -> None:
    """Raise ParameterError if the plan exceeds the memory. memory_of: memory as a function of the number of atoms."""
    memory, available = plan.memory, plan.available_bytes
    if available is None or memory.peak + RESERVE <= available:
        return
    most = bisect_right(range(1, plan.n_components), available - RESERVE, key=lambda k: memory_of(k).peak)
    ways = [f"at most {most} components fit"] if most else ["not even one component fits"]
    if memory.work > memory.start:
        ways.append("a higher reduction or a smaller batch_size needs less")
    if plan.dtype == "float64":
        ways.append("float32 needs half (terafactor pack --dtype float32)")
    parts = {
        "atoms": memory.model,
        "statistics": memory.statistics,
        "start": memory.start,
        "rows and work": memory.work,
    }
    made_of = ", ".join(f"{name} {data_size(n_bytes)}" for name, n_bytes in parts.items())
    needed, left = data_size(memory.peak + RESERVE), data_size(available)
    raise ParameterError(
        f"learning {plan.n_components} atoms of {plan.n_features:,} features needs {needed} of memory ({made_of}), "
        f"but only {left} are available: {'; '.join(ways)}"
    )


def _probe(source: MatrixSource, problem: Problem, options: SolverOptions) -> float:
    """Return the seconds per step, measured on a few steps."""
    finished: list[float] = []
    per_step: list[float] = []

    def enough(snapshot: Snapshot) -> bool:
        if snapshot.stopped_by is None:
            per_step.append((snapshot.seconds - (finished[-1] if finished else 0.0)) / snapshot.advance)
            finished.append(snapshot.seconds)
        timed = finished[SKIPPED_STEPS:]
        long_enough = len(timed) > 1 and (len(timed) > TIMED_STEPS or timed[-1] - timed[0] > TIMED_SECONDS)
        return long_enough or (len(finished) > 2 and finished[-1] - finished[0] > MOST_SECONDS)

    endless = replace(options, n_epochs=SKIPPED_STEPS + TIMED_STEPS + 2, tol=0.0, max_time=None)
    fit(source, problem, endless, callbacks=[enough])
    return median(per_step[SKIPPED_STEPS + 1 :] or per_step[1:] or per_step)
