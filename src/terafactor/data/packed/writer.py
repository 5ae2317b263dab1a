"""Writer of packed stores."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._durable import locked, remove_leftovers, replace_durably, storage_errors, write_durably
from terafactor._memory import check_size, max_bytes
from terafactor._threads import resolve_threads
from terafactor._typing import is_number
from terafactor.data.fingerprint import fingerprint
from terafactor.data.open import open_source
from terafactor.data.packed.layout import (
    N_PERMUTATIONS,
    STORED_DTYPES,
    PackedLayout,
    array_document,
    encode,
    group_document,
    permutations_document,
    plan_of,
    read_metadata,
    read_statistics,
    read_store_document,
    record_path,
    scales_path,
    store_document,
)
from terafactor.data.packed.records import Progress, RecordWriter, feature_order
from terafactor.data.packed.shard import append_checksum, checksum
from terafactor.data.source import MatrixSource
from terafactor.errors import DataError, ParameterError


def pack(
    source: Any,
    out: str | Path,
    *,
    block_rows: int = 40,
    dtype: Any = None,
    standardize: bool = False,
    seed: int = 0,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a source as a packed store, of which a step with ``reduction=r`` reads 1 / r.

    Several threads write records at the same time, each holding a few blocks of rows. A finished record appears
    immediately and stays; the store itself appears under its name when all are finished. Until then it is
    ``<out>.partial``, and the same call resumes an interrupted one. The bytes depend on data and parameters only.

    Parameters
    ----------
    source : anything that open_source takes
        Fewer than 16 records are split, so that there are as many orders of features as possible.
    out : path
        Folder of the store; must not exist.
    block_rows : int, default=40
        Rows that are read together: the ``batch_size`` of the fits to come.
    dtype : float32, float64 or int16, optional
        Stored type; by default that of the source. int16 takes half the space of float32, and a second pass over every
        record: the values of each feature of a record become multiples of a scale, its largest magnitude / 32 767, and
        are read as float32. :attr:`PackedSource.statistics` holds the quantization errors.
    standardize : bool, default=False
        Whether to scale each feature of each record to mean zero and variance one; constant ones become zero. Takes a
        second pass over every record.
    seed : int, default=0
        Seed of the orders of features.
    n_threads : int or None, default=None
        Records written at the same time; None: one per core.
    progress : callable, optional
        Called with the number of rows of each finished part, from several threads.

    Returns
    -------
    Path
        The store; :func:`terafactor.open_source` opens it.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from terafactor import pack
    >>> import tempfile
    >>> from terafactor import open_source
    >>> store = pack(np.eye(6), Path(tempfile.mkdtemp()) / "store", block_rows=2)
    >>> open_source(store).shape
    (6, 6)
    """
    opened = open_source(source)
    with unfinished_store(opened, out, block_rows=block_rows, dtype=dtype, standardize=standardize, seed=seed) as (
        store,
        numbers,
    ):
        writer = RecordWriter(opened, store, progress or _ignore)
        with ThreadPoolExecutor(resolve_threads(n_threads), "terafactor-pack") as pool:
            try:
                list(pool.map(writer.write, numbers))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return Path(out)


@contextlib.contextmanager
def unfinished_store(
    source: MatrixSource,
    out: str | Path,
    *,
    block_rows: int = 40,
    dtype: Any = None,
    standardize: bool = False,
    seed: int = 0,
) -> Generator[tuple[Path, range], None, None]:
    """Begin a store, or resume one, in a ``with`` block that writes its records in any way and order.

    The block receives the folder of the unfinished store and the numbers of its records; threads share a
    :class:`RecordWriter`, other processes call :func:`write_records`. The store is complete after the block. An error
    in it leaves the records that were written for the next call. Parameters: see :func:`pack`.
    """
    out = Path(out)
    if os.path.lexists(out):
        raise DataError(f"{out} exists and is not overwritten: choose another name, or remove it")
    if not (is_number(block_rows, int) and block_rows >= 1):
        raise ParameterError(f"block_rows must be an integer >= 1, got {block_rows!r} (the batch_size of fits)")
    plan = plan_of(
        PackedLayout.of(source.shape[1], block_rows, _stored_dtype(source, dtype)),
        standardize=bool(standardize),
        seed=seed,
        fingerprint=fingerprint(source),
        records=_split_records(source, block_rows),
    )
    partial = out.absolute().with_name(f"{out.name}.partial")
    with _partial_store(partial, plan):
        if (partial / "zarr.json").exists():
            yield partial, range(0)
        else:
            yield partial, range(len(plan["records"]))
            _finish(partial, plan)
        (partial / "plan.json").unlink(missing_ok=True)
        replace_durably(partial, out)


def _finish(store: Path, plan: dict[str, Any]) -> None:
    """Write everything except the records; the metadata of the store come last."""
    layout, n_records = PackedLayout.from_document(plan), len(plan["records"])
    statistics = [read_statistics(record_path(store, number)) for number in range(n_records)]
    orders = [feature_order(plan, number) for number in range(N_PERMUTATIONS)]
    for number, order in enumerate(orders):
        write_durably(store / "permutations" / "c" / str(number) / "0", append_checksum(order.tobytes()))
    write_durably(store / "permutations" / "zarr.json", encode(permutations_document(layout.n_features)))
    write_durably(store / "records" / "zarr.json", encode(group_document({})))
    if layout.scaled:
        write_durably(scales_path(store) / "zarr.json", encode(array_document(layout.scales, n_records, {})))
    remove_leftovers(store)
    checksums = [checksum(order.tobytes()) for order in orders]
    write_durably(store / "zarr.json", encode(store_document(plan, statistics, checksums)))


def _stored_dtype(source: MatrixSource, dtype: Any) -> str:
    with contextlib.suppress(TypeError):
        name = np.dtype(source.dtype if dtype is None else dtype).name
        if name in STORED_DTYPES:
            return name
    raise ParameterError(f"dtype must be {', '.join(STORED_DTYPES)} or None for that of the source, got {dtype!r}")


def _split_records(source: MatrixSource, block_rows: int) -> list[dict[str, Any]]:
    """Split records, between blocks, such that there are as many parts as permutations, if there are enough rows."""
    records = [record for record in source.records if record]
    wanted = -(-N_PERMUTATIONS // len(records))
    parts = []
    for number, rows in enumerate(source.records):
        name, identity = source.record_label(number), source.record_identity(number)
        known = {} if identity is None else {"identity": identity}
        n_blocks = -(-len(rows) // block_rows)
        check_size(8 * n_blocks, f"the list of blocks of {source.record_name(number)}", max_bytes())
        for blocks in np.array_split(np.arange(n_blocks), max(1, min(wanted, n_blocks))):
            if len(blocks):
                start = rows.start + int(blocks[0]) * block_rows
                stop = min(rows.start + (int(blocks[-1]) + 1) * block_rows, rows.stop)
                parts.append({"name": name, "start": start, "stop": stop} | known)
    return parts


@contextlib.contextmanager
def _partial_store(partial: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Lock the folder of an unfinished store, which is new, or left by an interrupted call with the same plan."""
    link = next((path for path in (partial, *partial.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise DataError(f"{link} is a symbolic link, which is not written through: remove it first")
    with storage_errors(partial):
        (partial / "records").mkdir(parents=True, exist_ok=True)
    with locked(partial):
        plan_file = partial / "plan.json"
        if (partial / "zarr.json").exists():
            content = read_store_document(partial)
            resumable = {key: content.get(key) for key in plan} == plan
        else:
            resumable = not plan_file.exists() or _resume(partial, read_metadata(plan_file), plan)
        if not resumable:
            raise DataError(f"{partial} was left by packing other data, or with other options: remove it first")
        write_durably(plan_file, encode(plan))
        remove_leftovers(partial)
        yield


def _resume(partial: Path, raw: bytes, plan: dict[str, Any]) -> bool:
    """Return whether an unfinished store can be resumed; remove its records that have changed.

    raw: the plan with which it was begun, as stored.
    """
    try:
        before = json.loads(raw)
        if before != plan and _without_identities(before) != _without_identities(plan):
            return False
    except (ValueError, RecursionError, KeyError, TypeError):  # damaged
        return False
    for number, (old, new) in enumerate(zip(before["records"], plan["records"], strict=True)):
        if old != new:
            shutil.rmtree(record_path(partial, number), ignore_errors=True)
    return True


def _without_identities(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal for unchanged records to stay valid, if every record has an identity."""
    if not all("identity" in record for record in plan["records"]):
        return plan
    return plan | {"fingerprint": None, "records": [record | {"identity": None} for record in plan["records"]]}


def _ignore(n_rows: int) -> None:
    pass
