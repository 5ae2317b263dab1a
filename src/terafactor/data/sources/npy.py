"""Files written by ``numpy.save``, and memory maps of files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from terafactor._durable import storage_errors
from terafactor.data.source import MatrixSource
from terafactor.data.sources.array import open_array
from terafactor.data.sources.formats import Format, ends_with, refuse_inside
from terafactor.data.sources.raw import Layout, RawSource
from terafactor.errors import DataError

HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
"""Readers by version of the format; version 3 is for named fields only, which are no matrix."""


def open_npy(path: Path, inside: str | None = None) -> MatrixSource:
    """Return the rows of one ``.npy`` file. Objects are never unpickled."""
    refuse_inside(path, inside)
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a .npy file: for the files in it give a glob, such as {path}/*.npy")
    with storage_errors(path, "read"), open(path, "rb") as file:
        return RawSource(_layout(file, path))


def open_memmap(array: np.memmap) -> MatrixSource:
    """Return the rows behind a memory map, read from its file where its rows lie there one after the other."""
    if vars(array).get("_mmap") is None or array.mode == "c" or not array.filename or not array.flags.c_contiguous:
        return open_array(np.asarray(array))
    path = Path(array.filename)
    return RawSource(Layout(path, str(path), _file_offset(array), array.shape, array.dtype))


def read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether columns are contiguous, and dtype of what follows in a ``.npy`` file; no objects."""
    try:
        version = npy_format.read_magic(file)
        shape, by_column, dtype = HEADERS[version](file)
    except (ValueError, KeyError) as error:
        raise DataError(f"{name} is no .npy file of numbers ({error or 'it is empty'})") from error
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never unpickled: save it as float32")
    return shape, by_column, dtype


def _layout(file: IO[bytes], path: Path) -> Layout:
    shape, by_column, dtype = read_header(file, str(path))
    return Layout(path, str(path), file.tell(), shape, dtype, by_column and len(shape) == 2)


def _file_offset(array: np.memmap) -> int:
    """Return where in its file a map begins, which its ``offset`` only says of the map it was cut from."""
    whole = np.frombuffer(vars(array)["_mmap"], np.uint8)
    mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return int(mapped_from + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0])


FORMAT = Format(
    name="npy",
    understands=".npy files, NumPy memory maps",
    is_path=ends_with(".npy"),
    open_path=open_npy,
    is_object=lambda thing: isinstance(thing, np.memmap),
    open_object=open_memmap,
)
