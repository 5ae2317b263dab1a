"""Writing a matrix to a file, from its first row to its last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from terafactor._durable import no_follow, replace_durably, storage_errors, unfinished
from terafactor._typing import Array
from terafactor.errors import ParameterError

Write = Callable[[Array], None]
"""A function that writes the next rows (b, p)."""

CHUNK_VALUES = 2**18
"""Values per chunk of a Zarr array."""


@contextlib.contextmanager
def new_matrix(out: str | Path, shape: tuple[int, int], dtype: np.dtype) -> Generator[Write, None, None]:
    """Create a ``.npy`` file or Zarr array, in a ``with`` block that receives a function to write the next rows.

    The file gets its name once all rows are on disk; a failure leaves nothing behind.
    """
    out = Path(out)
    writer = WRITERS.get(out.suffix)
    if writer is None:
        raise ParameterError(f"out must end in {' or '.join(WRITERS)}, got {str(out)!r}")
    _check_absent(out)
    with unfinished(out) as temporary:
        with contextlib.ExitStack() as stack:
            with storage_errors(out):
                temporary.parent.mkdir(parents=True, exist_ok=True)
                write = stack.enter_context(writer(temporary, shape, dtype))

            def write_named(rows: Array) -> None:
                with storage_errors(out):
                    write(rows)

            yield write_named
        _check_absent(out)  # another process may have written it meanwhile
        replace_durably(temporary, out)


def open_matrix(path: str | Path) -> Any:
    """Open a file written by :func:`new_matrix`, without loading it: as a memory map or a Zarr array."""
    if Path(path).suffix == ".npy":
        return np.load(path, mmap_mode="r")
    import zarr

    return zarr.open_array(path, mode="r")


@contextlib.contextmanager
def _npy(path: Path, shape: tuple[int, int], dtype: np.dtype) -> Generator[Write, None, None]:
    with open(path, "xb", opener=no_follow) as file:
        header = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        npy_format.write_array_header_1_0(file, header)

        def write(rows: Array) -> None:
            file.write(np.ascontiguousarray(rows, dtype).data)

        yield write


@contextlib.contextmanager
def _zarr(path: Path, shape: tuple[int, int], dtype: np.dtype) -> Generator[Write, None, None]:
    import zarr

    chunk = (min(shape[0], max(1, CHUNK_VALUES // shape[1])), shape[1])
    array = zarr.create_array(path, shape=shape, dtype=dtype, chunks=chunk)
    n_written = 0

    def write(rows: Array) -> None:
        nonlocal n_written
        array[n_written : n_written + len(rows)] = rows
        n_written += len(rows)

    yield write


WRITERS = {".npy": _npy, ".zarr": _zarr}


def _check_absent(out: Path) -> None:
    if os.path.lexists(out):
        raise ParameterError(f"{out} exists, and is not overwritten: choose another name, or remove it")
