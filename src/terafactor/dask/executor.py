"""Rounds on the workers of a Dask cluster.

Every task is a pure function of its arguments, so a task that is lost with its worker can be repeated anywhere, with
the same bits. The state of a round is sent to the workers once; the driver receives one merged state back. If something
that Dask cannot repeat is lost, such as the state itself, the driver sends the whole round again.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from terafactor._format import data_size
from terafactor.dask.chunks import ChunkedRows, chunked
from terafactor.dask.cluster import TIMEOUT, check_workers, reaches_workers, repeat_if_lost, result_of, send
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.describe import open_description
from terafactor.problem import Problem
from terafactor.solver.fit import make_stream
from terafactor.solver.options import SolverOptions
from terafactor.solver.rounds import Shard, ShardResult, merge_results, reduce_in_pairs
from terafactor.solver.state import State

logger = logging.getLogger("terafactor")


@dataclass(frozen=True)
class Job:
    """Data, problem and options that all shards of a fit share."""

    key: str
    """Unique, so that workers open the data of a fit once."""

    data: Any
    """Description of a source, or the source itself."""

    problem: Problem
    options: SolverOptions
    mask_offset: int

    def open(self) -> MatrixSource:
        """Return the source."""
        return self.data if isinstance(self.data, MatrixSource) else open_description(self.data)


_local = threading.local()
"""The last shard of each thread of a worker, kept because its data are open."""


def advance_shard(job: Job, state: State, numbers: range, blocks: dict[int, Any] | None = None) -> ShardResult:
    """Run the steps of one shard in one round. blocks: the chunks of a Dask array that it needs."""
    if getattr(_local, "key", None) != job.key or blocks is not None:
        source = job.open()
        if blocks is not None:
            source = ChunkedRows.with_blocks(source, blocks)
        _local.shard, _local.key = (
            Shard(make_stream(source, job.options, job.mask_offset), job.problem, job.options),
            job.key,
        )
    return _local.shard.advance(state, numbers)


class DaskExecutor:
    """Runs shards on the workers of a cluster.

    Parameters
    ----------
    client : dask.distributed.Client
    timeout : float
        Seconds to wait for a scheduler that does not answer, or a cluster without workers, before giving up.

    Examples
    --------
    >>> from terafactor.dask import DaskExecutor
    >>> import numpy as np
    >>> from dask.distributed import Client
    >>> from terafactor.data import ArraySource
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions, fit
    >>> source = ArraySource(np.random.default_rng(0).standard_normal((200, 10)))
    >>> options = SolverOptions(n_components=3, shards=2, round_steps=2)
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
    ...     fit(source, Problem(0.1), options, executor=DaskExecutor(client)).n_batches
    5
    """

    def __init__(self, client: Any, timeout: float = TIMEOUT) -> None:
        self.client = client
        self.timeout = timeout

    def start(self, stream: BatchStream, problem: Problem, options: SolverOptions) -> None:
        """Check the workers, and describe the data to them."""
        check_workers(self.client, self.timeout)
        self._stream, self._problem, self._sent = stream, problem, None
        self._direct = reaches_workers(self.client)
        self._chunks = chunked(stream.source, self.client)
        source = stream.source if self._chunks is None else self._chunks.template
        data = source.describe() if self._chunks is None else source
        if data is None:
            n_bytes = source.shape[0] * source.shape[1] * source.dtype.itemsize * source.stored_share
            logger.warning(
                "X is in the memory of this process, so its %s are copied to every worker: pass a path that workers "
                "can open, or a Dask array",
                data_size(int(n_bytes)),
            )
        self._job = Job(
            uuid.uuid4().hex,
            source if data is None else data,
            problem,
            replace(options, n_threads=1),
            stream.mask_offset,
        )

    def advance(self, state: State, parts: Sequence[range]) -> ShardResult:
        """Run one round; see :class:`~terafactor.solver.rounds.Executor`."""
        merged = repeat_if_lost(self.client, self.timeout, lambda: self._advance(state, parts))
        # Arrays from the network may be read-only, and not aligned as kernels need them for identical bits.
        return ShardResult(merged.state.copy(), merged.evidence)

    def _advance(self, state: State, parts: Sequence[range]) -> ShardResult:
        client, token, numbers = self.client, uuid.uuid4().hex, itertools.count()
        job, self._sent = self._sent or send(client, self._job, self.timeout), None
        before = send(client, state, self.timeout)

        def submit(name: str, function: Any, *arguments: Any) -> Any:
            return client.submit(function, *arguments, key=f"{name}-{token}-{next(numbers)}", pure=False)

        shards = [submit("advance-shard", advance_shard, job, before, part, self._blocks(part)) for part in parts]
        merged = reduce_in_pairs(partial(submit, "merge-shards", merge_results, self._problem, before), shards)
        advanced: ShardResult = result_of(client, merged, self.timeout, direct=self._direct)
        self._sent = job  # otherwise it may be lost, and is sent again
        return advanced

    def _blocks(self, part: range) -> dict[int, Any] | None:
        if self._chunks is None:
            return None
        return self._chunks.futures([row for number in part for row in self._stream.rows(number).tolist()])

    def close(self) -> None:
        """Release the data that workers hold for the fit."""
        self._sent = self._chunks = None
