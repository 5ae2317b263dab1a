"""AnnData: the matrix X of an ``.h5ad`` file or of an object."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from terafactor._durable import storage_errors
from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array, Indices
from terafactor.data.source import MatrixSource, check_indices
from terafactor.data.sources.array import open_array
from terafactor.data.sources.formats import Format, check_matrix, ends_with, is_a, reading_dtype
from terafactor.data.sources.hdf5 import HDF5Source, open_file, require_h5py
from terafactor.data.sources.sparse import dense_rows, open_sparse, share_of_entries, to_canonical
from terafactor.errors import DataError

PARTS = ("indptr", "indices", "data")
"""Datasets of a sparse matrix: starts of the rows, columns and values of the entries."""


class SparseHDF5Source(MatrixSource):
    """A sparse matrix in compressed rows (CSR) of an ``.h5ad`` file, read row by row.

    The starts of the rows stay in memory, 8 bytes per row.

    Parameters
    ----------
    path : Path
    group : str
        Its name in the file.
    """

    absent: float = 0.0
    """Value of entries that are not stored."""

    def __init__(self, path: Path, group: str) -> None:
        self.path, self.group, self.name = path, group, f"{path}::{group}"
        self._h5py = require_h5py(path, "anndata")
        with open_file(self._h5py, path) as file:
            found = file[group]
            _check_group(found, self.name)
            self.shape = check_matrix(tuple(found.attrs["shape"]), self.name)
            self.dtype = reading_dtype(found["data"].dtype, self.name)
            self._starts = _checked_starts(found, self.shape[0], self.name)
            chunk_entries = (found["data"].chunks or (1,))[0]
        self.stored_share = share_of_entries(int(self._starts[-1]), self.shape, self.absent)
        self._block_rows = max(1, chunk_entries * self.shape[0] // max(int(self._starts[-1]), 1))

    def record_name(self, record: int) -> str:
        return self.name

    def absent_as_missing(self) -> Self:
        changed = copy.copy(self)
        changed.absent, changed.stored_share = np.nan, 1.0
        changed.origin = self.origin and replace(self.origin, absent_as_missing=True)
        return changed

    def row_blocks(self, record: int) -> Sequence[range] | None:
        n_rows, height = self.shape[0], min(self._block_rows, self.shape[0])
        return (
            None if height == 1 else [range(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]
        )

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        return int((self._starts[rows + 1] - self._starts[rows]).sum()) * (self.dtype.itemsize + 4)

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        return dense_rows(self.read_stored(rows), np.arange(len(rows)), columns, self.absent)

    def read_stored(self, rows: Indices) -> Any:
        """Return some rows as a sparse matrix; consecutive rows take a single read."""
        from scipy.sparse import csr_array

        check_indices(rows, self.shape[0], "rows")
        indices: list[Array] = [np.empty(0, np.int64)]
        entries: list[Array] = [np.empty(0, self.dtype)]
        with storage_errors(self.name, "read"), open_file(self._h5py, self.path) as file:
            found = file[self.group]
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
                part = slice(int(self._starts[run[0]]), int(self._starts[run[-1] + 1]))
                indices.append(found["indices"][part].astype(np.int64))
                entries.append(found["data"][part].astype(self.dtype))
        columns = np.concatenate(indices)
        if columns.size and not 0 <= columns.min() <= columns.max() < self.shape[1]:
            raise DataError(
                f"{self.name} has column indices outside 0 to {self.shape[1] - 1}: it is damaged, write it again"
            )
        ends = np.concatenate([[0], np.cumsum(self._starts[rows + 1] - self._starts[rows])])
        return to_canonical(csr_array((np.concatenate(entries), columns, ends), shape=(len(rows), self.shape[1])))


def open_h5ad(path: Path, inside: str | None = None) -> MatrixSource:
    """Return X of a file, or the matrix named ``inside``, such as ``layers/counts``; never loaded whole."""
    name = (inside or "X").strip("/")
    h5py = require_h5py(path, "anndata")
    if not h5py.is_hdf5(path):
        raise DataError(f"{path} is not an HDF5 file, as every .h5ad file is")
    with open_file(h5py, path) as file:
        sparse = isinstance(file.get(name), h5py.Group)
        names = _variable_names(file["raw" if name.startswith("raw/") else "/"])
    source = SparseHDF5Source(path, name) if sparse else HDF5Source(path, name, extra="anndata")
    source.feature_names = names if names is not None and len(names) == source.shape[1] else None
    return source


def open_anndata(data: Any) -> MatrixSource:
    """Return X of an AnnData object; of a backed one, from its file."""
    if data.isbacked and data.is_view:
        raise DataError(
            f"the AnnData object is a view of a part of {data.filename}, which would be read whole: "
            "load the part with to_memory(), or write it to its own file with copy('part.h5ad')"
        )
    if data.isbacked:
        return FORMAT.open(Path(data.filename))
    if data.X is None:
        raise DataError("the AnnData object has no X: pass one of its other matrices, as in data.layers['name']")
    dense = isinstance(data.X, np.ndarray)
    source = open_array(data.X) if dense else open_sparse(data.X, "X of the AnnData object")
    source.feature_names = data.var_names.astype(str).tolist()
    return source


def _variable_names(group: Any) -> list[str] | None:
    """Return the names of the variables, the columns of every matrix of the group; None if it has none."""
    try:
        variables = group["var"]
        return list(variables[variables.attrs["_index"]].asstr()[:])
    except (KeyError, AttributeError, TypeError):
        return None


def _check_group(group: Any, name: str) -> None:
    """Refuse a group that is not a sparse matrix in compressed rows."""
    kind = group.attrs.get("encoding-type", "an unknown type")
    if kind == "csc_matrix":
        raise DataError(
            f"{name} is sparse and stored by columns (CSC), from which single rows cannot be read: "
            "store it by rows, as in data.X = data.X.tocsr()"
        )
    if kind != "csr_matrix" or any(part not in group for part in PARTS) or "shape" not in group.attrs:
        raise DataError(f"{name} is a group that holds {kind}: it must be a matrix, dense or sparse by rows")


def _checked_starts(group: Any, n_rows: int, name: str) -> Indices:
    """Return the starts of the rows (n + 1,), or refuse them if they are inconsistent."""
    indptr, indices, data, limit = group["indptr"], group["indices"], group["data"], max_bytes()
    check_size(16 * indptr.size, name, limit)  # as stored, and as int64
    n_entries = data.size
    valid = indptr.shape == (n_rows + 1,) and indices.shape == data.shape == (n_entries,)
    valid = valid and indptr.dtype.kind in "iu" and indices.dtype.kind in "iu"
    starts = indptr[:].astype(np.int64) if valid else np.zeros(1, np.int64)
    if not (valid and starts[0] == 0 and starts[-1] == n_entries and np.all(np.diff(starts) >= 0)):
        raise DataError(f"indptr of {name} does not match its {n_entries} entries: it is damaged, write it again")
    check_size(int(np.diff(starts).max()) * (indices.dtype.itemsize + data.dtype.itemsize), f"a row of {name}", limit)
    return starts


FORMAT = Format(
    name="anndata",
    description=".h5ad files (file.h5ad::layers/name for another matrix than X), AnnData objects; dense or CSR",
    is_path=ends_with(".h5ad"),
    open_path=open_h5ad,
    is_object=lambda data: is_a(data, "anndata", "AnnData"),
    open_object=open_anndata,
)
