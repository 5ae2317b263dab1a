"""Packing, codes and objectives of sources that workers can open: one task per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.dask.cluster import TIMEOUT, compute_all, find_client
from terafactor.data import MatrixSource, open_source
from terafactor.data.describe import open_description
from terafactor.data.output import open_matrix, shared_matrix
from terafactor.data.packed.records import write_records
from terafactor.data.packed.writer import unfinished_store
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.solver.encode import encode_rows_into, mean_loss, sum_losses
from terafactor.solver.parts import row_tasks


@dataclass(frozen=True)
class Encoding:
    """Source, atoms and options with which every task encodes rows."""

    data: dict[str, Any]
    """Description of the source."""

    atoms: Array
    """The atoms (k, p)."""

    problem: Problem
    missing: bool

    def arguments(self) -> tuple[MatrixSource, Array, Problem]:
        """Return source, atoms and problem; atoms from the network may not be aligned as kernels need them."""
        return open_description(self.data), np.array(self.atoms, order="K"), self.problem


def distributed_objective(client: Any, encoding: Encoding, source: MatrixSource) -> float:
    """Return the objective of the rows of a source; the bits are those of one machine."""
    found = compute_all(client, "sum-losses", _sum_losses, encoding, _tasks(encoding, source))
    return mean_loss(each for task in found for each in task)


def distributed_codes(client: Any, encoding: Encoding, source: MatrixSource, out: str | Path) -> Any:
    """Write the codes of the rows of a source to a new file, which all workers must see; return it, opened."""
    shape, dtype = (source.shape[0], len(encoding.atoms)), encoding.atoms.dtype
    with shared_matrix(out, shape, dtype) as scratch:
        tasks = [(str(scratch), parts) for parts in _tasks(encoding, source)]
        compute_all(client, "encode-record", _encode, encoding, tasks)
    return open_matrix(out)


def pack(source: Any, out: str | Path, *, client: Any = None, timeout: float = TIMEOUT, **options: Any) -> Path:
    """Copy a matrix into a packed store, one task per record, on the workers of a cluster.

    Workers must see the source and the folder of the store. After an interruption, call it again to continue.

    Parameters
    ----------
    source : path, list of paths or MatrixSource
    out : path
        Folder of the store; must not exist.
    client : dask.distributed.Client, optional
        By default the one created last in this process.
    timeout : float
        Seconds to wait for workers, before giving up.
    **options
        ``block_rows``, ``dtype``, ``standardize`` and ``seed`` of :func:`terafactor.pack`.

    Returns
    -------
    Path
        The store, with the same bytes as one that :func:`terafactor.pack` writes.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dask.distributed import Client
    >>> from terafactor.dask import pack
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/X.npy", np.eye(6))
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
    ...     pack(f"{folder}/X.npy", f"{folder}/store", client=client).name
    'store'
    """
    opened, client = open_source(source), find_client(client)
    description = opened.describe()
    if description is None:
        raise DataError(
            f"{opened.record_name(0)} is in the memory of this process, so workers cannot read it: use terafactor.pack"
        )
    with unfinished_store(opened, out, **options) as (store, numbers):
        compute_all(client, "pack-record", _pack, (description, str(store)), list(numbers), timeout)
    return Path(out)


def _tasks(encoding: Encoding, source: MatrixSource) -> list[list[range]]:
    return row_tasks(source, len(encoding.atoms), missing=encoding.missing)


def _sum_losses(encoding: Encoding, parts: Sequence[range]) -> list[tuple[float, int]]:
    return sum_losses(*encoding.arguments(), parts, missing=encoding.missing)


def _encode(encoding: Encoding, task: tuple[str, Sequence[range]]) -> None:
    scratch, parts = task
    encode_rows_into(scratch, *encoding.arguments(), parts, missing=encoding.missing)


def _pack(common: tuple[dict[str, Any], str], number: int) -> None:
    description, store = common
    write_records(open_description(description), store, [number])
