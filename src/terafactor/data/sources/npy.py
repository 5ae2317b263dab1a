"""Files written by ``numpy.save``, and memory maps of files."""

from __future__ import annotations

import mmap
import tokenize
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from terafactor._durable import storage_errors
from terafactor.data.source import MatrixSource
from terafactor.data.sources.array import open_array
from terafactor.data.sources.formats import READER_ERRORS, Format, ends_with, refuse_inside
from terafactor.data.sources.raw import FORMAT as RAW
from terafactor.data.sources.raw import Layout, RawSource
from terafactor.errors import DataError

HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
"""Header readers by version of the format. Version 3 exists for named fields only, which are not a matrix."""


def open_npy(path: Path, inside: str | None = None) -> MatrixSource:
    """Return a source of the rows of a ``.npy`` file. Python objects are never unpickled."""
    refuse_inside(path, inside)
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a .npy file: for the files in it pass a glob, such as {path}/*.npy")
    with storage_errors(path, "read"), open(path, "rb") as file:
        shape, column_major, dtype = read_header(file, str(path))
        return RawSource(Layout(path, str(path), file.tell(), shape, dtype, column_major and len(shape) == 2))


def open_memmap(array: np.memmap) -> MatrixSource:
    """Return a source of the rows of a memory map, read from its file if they are contiguous there."""
    if vars(array).get("_mmap") is None or array.mode == "c" or not array.filename or not array.flags.c_contiguous:
        return open_array(np.asarray(array))
    path = Path(array.filename)
    return RAW.open(path, shape=array.shape, dtype=array.dtype.str, offset=_file_offset(array))


def read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether columns are contiguous, and dtype from the header of a ``.npy`` file of numbers."""
    try:
        version = npy_format.read_magic(file)
        shape, column_major, dtype = HEADER_READERS[version](file)
    except (*READER_ERRORS, tokenize.TokenError) as error:
        raise DataError(f"{name} is not a .npy file of numbers ({error or 'it is empty'})") from error
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never unpickled: save it as float32")
    return shape, column_major, dtype


def _file_offset(array: np.memmap) -> int:
    """Return where a memory map begins in its file; a slice of a map keeps the ``offset`` of the whole map."""
    whole = np.frombuffer(vars(array)["_mmap"], np.uint8)
    map_offset = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return int(map_offset + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0])


FORMAT = Format(
    name="npy",
    description=".npy files, NumPy memory maps",
    is_path=ends_with(".npy"),
    open_path=open_npy,
    is_object=lambda data: isinstance(data, np.memmap),
    open_object=open_memmap,
)
