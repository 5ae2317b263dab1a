"""What a fit needs to know about a cluster: whether it can compute, and whether it will give the same bits."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping
from typing import Any

from terafactor._format import data_size
from terafactor.data.sources.formats import require
from terafactor.errors import ClusterError, ParameterError

logger = logging.getLogger("terafactor")

TIMEOUT = 300.0
"""Seconds to wait for a scheduler, or for the first worker, before giving up."""

POLL = 0.5
"""Seconds between two looks at a cluster."""


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
    """Return what the last bits of a result depend on, in this process."""
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


def check_workers(client: Any) -> None:
    """Compare the software and processors of all workers with those of this process.

    Another version of terafactor is an error; any other difference is a warning, since only last bits may differ.
    """
    wait_for_workers(client)
    try:
        found: Mapping[str, Mapping[str, str]] = client.run(environment)
    except ImportError as error:
        raise ClusterError(
            f"a worker cannot import what terafactor needs ({error}): install it on all workers"
        ) from error
    ours = environment()
    for name, version in ours.items():
        others = {worker: theirs[name] for worker, theirs in found.items() if theirs[name] != version}
        if not others:
            continue
        worker, theirs = next(iter(others.items()))
        difference = f"{name} {theirs} on {len(others)} of {len(found)} workers, such as {worker}, but {version} here"
        if name == "terafactor":
            raise ClusterError(f"{difference}: install the same version everywhere")
        logger.warning("%s: last bits may differ from those of a fit on one machine", difference)


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
        time.sleep(POLL)


def _what_is_missing(client: Any) -> str | None:
    if client.status != "running":
        return f"the scheduler at {address_of(client)} does not answer"
    try:
        return None if client.nthreads() else f"the cluster at {address_of(client)} has no workers"
    except (OSError, TimeoutError, RuntimeError):  # connections closed while asking
        return f"the scheduler at {address_of(client)} does not answer"


def address_of(client: Any) -> str:
    """Return the address of the scheduler, for messages."""
    return str(client.scheduler.address) if client.scheduler is not None else "an unknown address"


def n_threads_of(client: Any) -> int:
    """Return the number of threads of all workers, at least 1."""
    wait_for_workers(client)
    return max(1, sum(client.nthreads().values()))


def check_memory(client: Any, n_bytes: int, what: str, advice: str) -> None:
    """Raise ParameterError if ``n_bytes`` exceed the memory limit of some worker."""
    limits = [worker.get("memory_limit") or 0 for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    least = min((limit for limit in limits if limit), default=0)
    if least and n_bytes > least:
        raise ParameterError(
            f"{what} takes {data_size(n_bytes)}, but the memory limit of a worker is {data_size(least)}: {advice}"
        )
