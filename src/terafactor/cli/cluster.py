"""Connect to the cluster that options such as ``--scheduler`` name."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import typer

from terafactor.cli.options import Values
from terafactor.errors import ClusterError, DataError

CONNECT_SECONDS = 30
"""Seconds to wait for a scheduler to answer."""


@contextlib.contextmanager
def connected(cluster: Values) -> Generator[Any, None, None]:
    """Yield a client of the cluster that the options name; None if they name none."""
    given = {name: value for name, value in cluster.items() if value is not None}
    if not given:
        yield None
        return
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise typer.BadParameter(f"{names} cannot be combined: pass one of them")
    from terafactor.data.sources.formats import require

    distributed = require("distributed", extra="dask", purpose="a cluster")
    with contextlib.ExitStack() as stack:
        yield _connect(distributed, stack, **given)


def _connect(
    distributed: Any,
    stack: contextlib.ExitStack,
    scheduler: str | None = None,
    scheduler_file: Path | None = None,
    local_cluster: int | None = None,
) -> Any:
    if local_cluster is not None:
        workers = distributed.LocalCluster(
            n_workers=local_cluster, threads_per_worker=1, dashboard_address=":0", silence_logs=40
        )
        return stack.enter_context(distributed.Client(stack.enter_context(workers)))
    if scheduler_file is not None and not scheduler_file.is_file():
        raise DataError(
            f"{scheduler_file} does not exist: start a scheduler with dask scheduler --scheduler-file {scheduler_file}"
        )
    address = {"address": scheduler} if scheduler else {"scheduler_file": str(scheduler_file)}
    try:
        return stack.enter_context(distributed.Client(**address, timeout=CONNECT_SECONDS))
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler or scheduler_file} ({error}): check the address and the network"
        ) from error
