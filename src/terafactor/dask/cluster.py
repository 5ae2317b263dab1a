"""Checks of a cluster, and tasks that are repeated if workers are lost."""

from __future__ import annotations

import logging
import platform
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from terafactor._format import data_size
from terafactor.data.sources.formats import require
from terafactor.errors import ClusterError, ParameterError

logger = logging.getLogger("terafactor")

T = TypeVar("T")

TIMEOUT = 300.0
"""Seconds to wait for a scheduler, or for the first worker, before giving up."""

MAX_ATTEMPTS = 20
"""Attempts after which lost tasks are an error: then the tasks are the likely cause, for example their memory."""

PROBE_SECONDS = 3.0
"""Seconds to wait for a direct connection to a worker."""

POLL_SECONDS = 0.5
"""Seconds between two checks of a cluster."""


def find_client(client: Any = None) -> Any:
    """Return a client of a Dask cluster: the given one, or the default one of this process."""
    distributed = require("distributed", extra="dask", purpose="learning on a cluster")
    if client is None:
        try:
            return distributed.default_client()
        except ValueError as error:
            raise ParameterError(
                "no Dask client is active: pass client=, or create one first, such as dask.distributed.Client() for "
                "this machine or Client('tcp://host:8786') for a cluster"
            ) from error
    if not isinstance(client, distributed.Client):
        raise ParameterError(f"client must be a dask.distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise ParameterError("client is asynchronous: pass one created with asynchronous=False")
    return client


def environment() -> dict[str, str]:
    """Return the software and hardware of this process on which the last bits of results depend."""
    import llvmlite.binding
    import numba
    import numpy
    import scipy

    from terafactor import __version__

    return {
        "terafactor": __version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "processor": llvmlite.binding.get_host_cpu_name(),
    }


def check_workers(client: Any, timeout: float = TIMEOUT) -> None:
    """Compare the software and processors of all workers with those of this process.

    Another version of terafactor is an error; any other difference is a warning, since only last bits may differ.
    """
    wait_for_workers(client, timeout)
    found: Mapping[str, Mapping[str, str]]
    try:
        found = repeat_if_lost(client, timeout, lambda: client.run(environment))
    except ImportError as error:
        raise ClusterError(
            f"a worker cannot import terafactor or its dependencies ({error}): install them on all workers"
        ) from error
    ours = environment()
    for name, version in ours.items():
        others = {worker: theirs[name] for worker, theirs in found.items() if theirs[name] != version}
        if not others:
            continue
        worker, theirs = next(iter(others.items()))
        there = f"{len(others)} of {len(found)} workers, such as {worker}"
        difference = f"{name} {theirs} on {there}, but {version} in this process"
        if name == "terafactor":
            raise ClusterError(f"{difference}: install the same version everywhere")
        logger.warning("%s: results may differ in their last bits from those on one machine", difference)


def wait_for_workers(client: Any, timeout: float = TIMEOUT) -> None:
    """Return as soon as the scheduler answers and has a worker; raise ClusterError after ``timeout`` seconds."""
    given_up, announced = time.monotonic() + timeout, False
    while True:
        problem = _what_is_missing(client)
        if problem is None:
            return
        if client.status == "closed" or time.monotonic() > given_up:
            raise ClusterError(
                f"{problem}: start workers, or connect to another cluster; a run resumes from its last checkpoint, on "
                "any cluster or on one machine, with the same result"
            )
        if not announced:
            announced = True
            logger.warning("%s; waiting up to %g s", problem, timeout)
        time.sleep(POLL_SECONDS)


def _what_is_missing(client: Any) -> str | None:
    if client.status != "running":
        return f"the scheduler at {address_of(client)} does not answer"
    try:
        workers = client.nthreads()
        states = {worker: facts.get("status") for worker, facts in workers_of(client).items()}
    except (OSError, TimeoutError, RuntimeError):  # connections closed while asking
        return f"the scheduler at {address_of(client)} does not answer"
    if not workers:
        return f"the cluster at {address_of(client)} has no workers"
    if all(states.get(worker) == "paused" for worker in workers):
        return f"all workers of the cluster at {address_of(client)} are paused, because they are short of memory"
    return None


class LostError(Exception):
    """Data on the cluster is lost, such as a result on a worker that died."""


def repeat_if_lost(client: Any, timeout: float, attempt: Callable[[], T]) -> T:
    """Return the result of ``attempt``, repeated if workers and the data on them are lost."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    for _ in range(MAX_ATTEMPTS):
        try:
            return attempt()
        except (LostError, CancelledError, KilledWorker, CommClosedError, TimeoutError) as error:
            logger.warning("tasks were lost (%s: %s): sending them again", type(error).__name__, error)
            last = error
        wait_for_workers(client, timeout)
    raise ClusterError(
        f"tasks were lost {MAX_ATTEMPTS} times, the last time with {last!r}: check that workers have enough memory; "
        "terafactor plan --workers N shows how much they need"
    )


def result_of(client: Any, future: Any, timeout: float, *, direct: bool = False) -> Any:
    """Return the result of a task; raise ClusterError if the cluster has no workers for ``timeout`` seconds.

    direct: whether to fetch it from the worker; otherwise it passes through the scheduler, which takes longer.
    """
    distributed = require("distributed", extra="dask", purpose="a cluster")
    while not future.done():
        try:
            distributed.wait(future, timeout=4 * POLL_SECONDS)
        except TimeoutError:
            wait_for_workers(client, timeout)
    if future.status != "finished":
        return future.result()  # raises the error of the task
    try:
        return client.gather(future, direct=direct)
    except Exception as error:  # any error is possible if the worker disappears meanwhile
        raise LostError(f"the result of a finished task: {error!r}") from error


def reaches_workers(client: Any) -> bool:
    """Return whether this process can connect to the workers; it may be outside of their network."""
    from distributed.comm.addressing import get_address_host_port

    worker = next(iter(client.nthreads()), None)
    if worker is None or not worker.startswith("tcp://"):
        return worker is not None and worker.startswith("inproc://")
    try:
        socket.create_connection(get_address_host_port(worker), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def send(client: Any, value: Any, timeout: float) -> Any:
    """Copy a value to all workers; return its future. Raise TimeoutError if there are none for ``timeout`` seconds."""
    try:
        return client.scatter(value, broadcast=True, hash=False, timeout=timeout)
    except (KeyError, OSError, RuntimeError) as error:  # raised by Dask if a worker disappears meanwhile
        raise LostError(f"{type(value).__name__} on its way to the workers: {error!r}") from error


def compute_all(
    client: Any,
    name: str,
    function: Callable[[Any, Any], Any],
    common: Any,
    items: Sequence[Any],
    timeout: float = TIMEOUT,
) -> list[Any]:
    """Return ``function(common, item)`` for each item, one task each; ``common`` is sent to the workers once."""
    results: dict[int, Any] = {}

    def attempt() -> None:
        token, shared = uuid.uuid4().hex, send(client, common, timeout)
        futures = {
            number: client.submit(function, shared, item, key=f"{name}-{token}-{number}", pure=False)
            for number, item in enumerate(items)
            if number not in results
        }
        for number, future in futures.items():
            results[number] = result_of(client, future, timeout)

    wait_for_workers(client, timeout)
    repeat_if_lost(client, timeout, attempt)
    return [results[number] for number in range(len(items))]


def address_of(client: Any) -> str:
    """Return the address of the scheduler, for messages."""
    return str(client.scheduler.address) if client.scheduler is not None else "an unknown address"


def workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """Return the scheduler's information on each worker, by address."""
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def n_threads_of(client: Any, timeout: float = TIMEOUT) -> int:
    """Return the number of threads of all workers, at least 1."""
    wait_for_workers(client, timeout)
    return max(1, sum(client.nthreads().values()))


def check_memory(client: Any, n_bytes: int, what: str, advice: str) -> None:
    """Raise ParameterError if ``n_bytes`` exceed the memory limit of some worker; at least one must exist."""
    limits = [worker.get("memory_limit") or 0 for worker in workers_of(client).values()]
    least = min((limit for limit in limits if limit), default=0)
    if least and n_bytes > least:
        raise ParameterError(
            f"{what} takes {data_size(n_bytes)}, but the memory limit of a worker is {data_size(least)}: {advice}"
        )
