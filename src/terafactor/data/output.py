"""Writing a matrix to a file, from its first row to its last."""

from __future__ import annotations

import contextlib
import math
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
    _check_name(out)
    with unfinished(out) as temporary:
        with contextlib.ExitStack() as stack:
            with storage_errors(out):
                temporary.parent.mkdir(parents=True, exist_ok=True)
                write = stack.enter_context(WRITERS[out.suffix](temporary, shape, dtype))

            def write_named(rows: Array) -> None:
                with storage_errors(out):
                    write(rows)

            yield write_named
            with storage_errors(out):  # closing writes what is in buffers
                stack.close()
        _check_absent(out)  # another process may have written it meanwhile
        replace_durably(temporary, out)


@contextlib.contextmanager
def shared_matrix(out: str | Path, shape: tuple[int, int], dtype: np.dtype) -> Generator[Path, None, None]:
    """Create a ``.npy`` file or Zarr array whose rows several processes write, in any order, in a ``with`` block.

    The block receives the path of a temporary ``.npy`` file, which :func:`write_rows` fills: processes that write rows
    of one chunk of a Zarr array at the same time would lose some. A Zarr array is copied from it at the end. All rows
    must be written; a failure leaves nothing behind.
    """
    out = Path(out).absolute()
    _check_name(out)
    with unfinished(out) as scratch:
        with storage_errors(out):
            scratch.parent.mkdir(parents=True, exist_ok=True)
            with _npy(scratch, shape, dtype):
                pass
            os.truncate(scratch, scratch.stat().st_size + math.prod(shape) * dtype.itemsize)
        yield scratch
        if out.suffix == ".npy":
            _check_absent(out)
            replace_durably(scratch, out)
            return
        with new_matrix(out, shape, dtype) as write:
            values, height = np.load(scratch, mmap_mode="r"), _chunk_rows(shape)
            for start in range(0, shape[0], height):
                write(values[start : start + height])
        scratch.unlink()


def write_rows(scratch: str | Path, start: int, rows: Array) -> None:
    """Write ``rows`` (b, p) into the file of a :func:`shared_matrix`, from row ``start`` on."""
    with storage_errors(scratch), open(scratch, "r+b", opener=no_follow) as file:
        npy_format.read_magic(file)
        _, _, dtype = npy_format.read_array_header_1_0(file)
        # Written by position, not through a memory map: of a network file, maps of two machines share whole pages.
        file.seek(file.tell() + start * rows.shape[1] * dtype.itemsize)
        file.write(np.ascontiguousarray(rows, dtype).data)


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

    array = zarr.create_array(path, shape=shape, dtype=dtype, chunks=(_chunk_rows(shape), shape[1]))
    n_written = 0

    def write(rows: Array) -> None:
        nonlocal n_written
        array[n_written : n_written + len(rows)] = rows
        n_written += len(rows)

    yield write


WRITERS = {".npy": _npy, ".zarr": _zarr}


def _chunk_rows(shape: tuple[int, int]) -> int:
    return min(shape[0], max(1, CHUNK_VALUES // shape[1]))


def _check_name(out: Path) -> None:
    if out.suffix not in WRITERS:
        raise ParameterError(f"out must end in {' or '.join(WRITERS)}, got {str(out)!r}")
    _check_absent(out)


def _check_absent(out: Path) -> None:
    if os.path.lexists(out):
        raise ParameterError(f"{out} exists, and is not overwritten: choose another name, or remove it")
