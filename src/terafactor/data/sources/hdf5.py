"""Datasets of HDF5 files."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._checks import check_regular
from terafactor._durable import storage_errors
from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.data.source import MatrixSource
from terafactor.data.sources.chunked import ChunkedSource
from terafactor.data.sources.formats import (
    READER_ERRORS,
    Format,
    check_matrix,
    ends_with,
    is_a,
    reading_dtype,
    require,
)
from terafactor.errors import DataError, TerafactorError


class HDF5Source(ChunkedSource):
    """A dataset of an HDF5 file. Each read opens the file, so that thousands of records need no open files.

    Parameters
    ----------
    path : Path
    dataset : str
        Its name in the file.
    extra : str
        The extra that the error for a missing h5py names.
    """

    def __init__(self, path: Path, dataset: str, *, extra: str = "hdf5") -> None:
        self.path, self.dataset = path, dataset
        self.name = f"{path}::{dataset}"
        self._h5py = require_h5py(path, extra)
        with open_file(self._h5py, path) as file:
            found = file.get(dataset)
            if not isinstance(found, self._h5py.Dataset):
                raise DataError(f"{path} has no dataset {dataset!r}; it has {_list(find_matrices(self._h5py, file))}")
            _check_files(found, self.name)
            self.shape = check_matrix(found.shape or (), self.name)
            self.dtype = reading_dtype(found.dtype, self.name)
            self.chunk = found.chunks or (1, self.shape[1])
        check_size(math.prod(self.chunk) * self.dtype.itemsize, f"a chunk of {self.name}", max_bytes())

    def read_rectangle(self, rows: slice, columns: slice) -> Array:
        with open_file(self._h5py, self.path) as file:
            return np.asarray(file[self.dataset][rows, columns])


def _check_files(dataset: Any, name: str) -> None:
    """Refuse a dataset whose values are in a raw file, which may be any file; check the files of a virtual dataset."""
    if dataset.external:
        raise DataError(
            f"{name} keeps its values in another file, {dataset.external[0][0]}, which is not read: copy the dataset "
            "into one file, for example with h5py"
        )
    if dataset.is_virtual:
        for part in dataset.virtual_sources():
            check_regular(Path(dataset.file.filename).parent / part.file_name)


def open_hdf5(path: Path, inside: str | None = None, *, dataset: str | None = None) -> MatrixSource:
    """Return the dataset named by ``inside`` or ``dataset``; without a name, the only matrix of the file."""
    wanted = inside or dataset
    if wanted is None:
        h5py = require_h5py(path)
        with open_file(h5py, path) as file:
            found = find_matrices(h5py, file)
        if len(found) != 1:
            raise DataError(f"{path} holds {_list(found)}: name one matrix, as in {path}::{(found or ['/X'])[0]}")
        wanted = found[0]
    return HDF5Source(path, wanted)


def open_node(node: Any) -> MatrixSource:
    """Return a dataset of an open file; a group is refused with the names of its matrices."""
    path = Path(node.file.filename)
    if is_a(node, "h5py", "Group"):
        found = [name.removeprefix("/") for name in find_matrices(require_h5py(path), node)]
        raise DataError(f"{path} is a group that holds {_list(found)}: name one, as in group['name']")
    return FORMAT.open(path, node.name)


def require_h5py(path: object, extra: str = "hdf5") -> Any:
    """Import h5py; the error for a missing one names the extra that installs it."""
    return require("h5py", extra=extra, purpose=f"reading {path}")


def find_matrices(h5py: Any, group: Any) -> list[str]:
    """Return the names of all numeric datasets with two dimensions."""
    found: list[str] = []

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.ndim == 2 and node.dtype.kind in "fiub":
            found.append(f"/{name}")

    try:
        group.visititems(visit)
    except (OSError, *READER_ERRORS) as error:
        raise DataError(f"{group.file.filename} is damaged: {error}; write it again") from error
    return found


@contextlib.contextmanager
def open_file(h5py: Any, path: Path) -> Iterator[Any]:
    """Open a file for reading; raise DataError if it is damaged, also where the block reads it."""
    try:
        file = h5py.File(path, "r")
    except (OSError, *READER_ERRORS) as error:
        raise DataError(f"{path} cannot be opened as HDF5: {error}") from error
    with storage_errors(path, "read"), file:
        try:
            yield file
        except TerafactorError:
            raise
        except READER_ERRORS as error:
            raise DataError(f"{path} is damaged: {error}; write it again") from error


def _list(names: list[str]) -> str:
    return ", ".join(names[:20]) or "no matrix of numbers"


FORMAT = Format(
    name="hdf5",
    description=".h5, .hdf5 files (file.h5::/name of a dataset), h5py datasets",
    is_path=ends_with(".h5", ".hdf5", ".hdf"),
    open_path=open_hdf5,
    is_object=lambda data: is_a(data, "h5py", "Dataset", "Group"),
    open_object=open_node,
)
