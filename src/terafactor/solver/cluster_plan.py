r"""Predict the time of a round on a cluster, and whether the cluster pays.

A round of W shards with H steps each, on M workers, takes

.. math:: T = H \lceil W / M \rceil \, t_{step} + (2 + 2 \lceil \log_2 M \rceil) \, S / v + t_{merge} + t_{tasks}

where S, 2 k p values, is the size of the state, and v the bandwidth between two machines. The driver sends the state to
one worker, from which it spreads to the others, doubling their number each time; merged states come back the same way.
t_merge is the time of the merges and of the sweep on the driver, t_tasks that of Dask itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MERGE_BANDWIDTH = 2e9
"""Bytes of state that a worker merges per second: three passes over two states."""

SECONDS_PER_TASK = 0.004
"""Time that Dask takes to run a task."""


@dataclass(frozen=True)
class ClusterPlan:
    """Time and memory of rounds on a cluster.

    Examples
    --------
    >>> plan = ClusterPlan(
    ...     shards=8,
    ...     round_steps=5,
    ...     workers=8,
    ...     bandwidth=1.25e9,
    ...     state_bytes=112_000_000,
    ...     step_seconds=0.4,
    ...     local_step_seconds=0.1,
    ...     worker_bytes=600_000_000,
    ... )
    >>> round(plan.round_seconds, 1), round(plan.speedup, 1)
    (3.0, 1.3)
    """

    shards: int
    round_steps: int
    workers: int
    """Threads of all workers; each runs one shard at a time."""

    bandwidth: float
    """Bytes per second between two machines."""

    state_bytes: int
    """Size of atoms and statistics."""

    step_seconds: float
    """Time of a step on one thread, including reading."""

    local_step_seconds: float
    """Time of a step on this machine, with all of its threads."""

    worker_bytes: int
    """Memory of a worker: four states, of which two are merged into a third, and rows."""

    @property
    def computing_seconds(self) -> float:
        """Time of the steps of a round."""
        return self.round_steps * math.ceil(self.shards / self.workers) * self.step_seconds

    @property
    def sending_seconds(self) -> float:
        """Time to send the state to the workers and back."""
        return (2 + 2 * math.ceil(math.log2(self.workers))) * self.state_bytes / self.bandwidth

    @property
    def merging_seconds(self) -> float:
        """Time of merges, of the sweep after them, and of Dask's tasks."""
        depth = math.ceil(math.log2(self.shards)) if self.shards > 1 else 0
        tasks = 2 * self.shards * SECONDS_PER_TASK
        return depth * self.state_bytes / MERGE_BANDWIDTH + self.local_step_seconds / 3 + tasks

    @property
    def round_seconds(self) -> float:
        """Time of a round."""
        return self.computing_seconds + self.sending_seconds + self.merging_seconds

    @property
    def speedup(self) -> float:
        """Time of the same number of steps on this machine, divided by the time on the cluster."""
        return self.shards * self.round_steps * self.local_step_seconds / self.round_seconds

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        names = ("computing_seconds", "sending_seconds", "merging_seconds", "round_seconds", "speedup")
        return vars(self) | {name: getattr(self, name) for name in names}
