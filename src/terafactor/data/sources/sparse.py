"""Sparse matrices in memory: SciPy's, and files of them."""

from __future__ import annotations

import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array, Indices
from terafactor.data.source import MAY_BE_MISSING, MatrixSource, check_indices, describe_unusable, first_unusable
from terafactor.data.sources.array import DTYPES
from terafactor.data.sources.formats import (
    READER_ERRORS,
    Format,
    check_matrix,
    ends_with,
    is_a,
    reading_dtype,
    refuse_inside,
)
from terafactor.data.sources.npy import read_header
from terafactor.errors import DataError
from terafactor.kernels.gather import check_sparse_rows, fill_sparse_rows

INDEX_ARRAYS = ("indptr.npy", "indices.npy", "row.npy", "col.npy", "offsets.npy")
"""Members of an ``.npz`` file that hold integers."""


class SparseSource(MatrixSource):
    """A SciPy sparse matrix or array. Only the rows that are read become dense, never the whole matrix.

    Parameters
    ----------
    matrix : scipy sparse matrix or array of shape (n_samples, n_features), float32 or float64
        Converted to compressed rows (CSR) if it has another format.
    absent : float
        Value of entries that are not stored: 0, or NaN if they are missing.
    name : str
        Name in error messages.
    allow_nan : bool
        Whether stored NaN marks missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.data import SparseSource
    >>> from scipy.sparse import csr_array
    >>> SparseSource(csr_array(np.eye(3))).read(np.array([2])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    in_memory = True
    checked = True

    def __init__(self, matrix: Any, name: str = "X", *, absent: float = 0.0, allow_nan: bool = False) -> None:
        from scipy.sparse import csr_array

        check_sparse(matrix, name)
        if matrix.dtype not in DTYPES:
            raise DataError(f"SparseSource takes a float32 or float64 matrix, got {matrix.dtype}: convert it first")
        rows = to_canonical(csr_array(matrix), name)
        found = first_unusable(rows.data[np.newaxis], allow_nan, rows.shape[1])
        if found is not None:
            fault, advice = describe_unusable(rows.data[found[1]], MAY_BE_MISSING)
            row = int(np.searchsorted(rows.indptr, found[1], side="right")) - 1
            raise DataError(f"{name} contains {fault} at row {row}, column {rows.indices[found[1]]}; {advice}")
        self.matrix = rows
        self.name = name
        self.absent = absent
        self.holds_nan = bool(np.isnan(absent) or (allow_nan and np.isnan(rows.data).any()))
        self.shape = (int(rows.shape[0]), int(rows.shape[1]))
        self.stored_share = share_of_entries(rows.nnz, self.shape, absent)
        self.dtype = rows.dtype

    def record_name(self, record: int) -> str:
        return self.name

    def absent_as_missing(self) -> Self:
        changed = type(self)(self.matrix, self.name, absent=np.nan, allow_nan=True)
        changed.origin = self.origin and replace(self.origin, absent_as_missing=True)
        return changed

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        return dense_rows(self.matrix, rows, columns, self.absent)

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        starts, entry = self.matrix.indptr, self.matrix.dtype.itemsize + self.matrix.indices.itemsize
        return int((starts[rows + 1] - starts[rows]).sum()) * entry

    def read_stored(self, rows: Indices) -> Any:
        check_indices(rows, self.shape[0], "rows")
        return self.matrix[rows]


def share_of_entries(n_stored: int, shape: tuple[int, int], absent: float) -> float:
    """Return the share of the entries that are stored; 1 where absent entries are missing, not zero."""
    return n_stored / max(math.prod(shape), 1) if absent == 0 else 1.0


def dense_rows(matrix: Any, rows: Indices, columns: Indices | None, absent: float) -> Array:
    """Return rows and columns (None: all) of a canonical CSR matrix as an array (b, s), ``absent`` elsewhere."""
    chosen = np.arange(matrix.shape[1]) if columns is None else columns
    check_indices(chosen, matrix.shape[1], "columns")
    order = None if columns is None or np.all(np.diff(columns) > 0) else np.argsort(columns, kind="stable")
    ascending = chosen if order is None else chosen[order]
    values = np.full((len(rows), len(chosen)), absent, matrix.dtype)
    fill_sparse_rows(matrix.indptr, matrix.indices, matrix.data, rows, ascending, columns is None, values)
    return values if order is None else np.take(values, np.argsort(order, kind="stable"), axis=1)


def to_canonical(matrix: Any, name: str = "the sparse matrix") -> Any:
    """Return a CSR matrix with ascending columns and duplicates summed; copies the matrix if that changes it.

    Checks the arrays rather than the flags of the matrix, which are wrong if its arrays were changed later.
    """
    if check_compressed(matrix, name):
        return matrix
    from scipy.sparse import csr_array

    copy = csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    copy.sum_duplicates()
    return copy


def check_sparse(matrix: Any, name: str) -> None:
    """Refuse an invalid sparse matrix, on which SciPy's conversions would crash."""
    if matrix.ndim != 2:
        raise DataError(f"{name} has the shape {matrix.shape}: a matrix of rows and columns is needed")
    if matrix.format in ("csr", "csc", "bsr"):
        check_compressed(matrix, name)
        return
    try:
        entries = matrix.tocoo(copy=False) if matrix.format in ("coo", "dok") else None
    except (ValueError, TypeError, IndexError) as error:
        raise _invalid(name, str(error)) from error
    if entries is not None:
        for indices, length in zip((entries.row, entries.col), matrix.shape, strict=True):
            if np.shape(indices) != (len(entries.data),) or indices.dtype.kind != "i":
                raise _invalid(name, "rows, columns and values must be arrays of the same length")
            if len(indices) and not 0 <= indices.min() <= indices.max() < length:
                raise _invalid(name, f"indices from {indices.min()} to {indices.max()} exceed 0 to {length - 1}")


def check_compressed(matrix: Any, name: str) -> bool:
    """Refuse a CSR, CSC or BSR matrix whose indices point outside its arrays, where compiled code would crash.

    SciPy's own check stops early if the last entry of indptr is 0. Returns whether the indices ascend strictly within
    each row (column, row of blocks).
    """
    n_outer, n_inner = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
    starts, indices, values = np.asarray(matrix.indptr), np.asarray(matrix.indices), np.asarray(matrix.data)
    if starts.dtype.kind != "i" or indices.dtype.kind != "i":
        raise _invalid(name, f"indptr and indices must be integers, got {starts.dtype} and {indices.dtype}")
    if matrix.format == "bsr":
        if values.ndim != 3 or min(values.shape[1:]) < 1 or n_outer % values.shape[1] or n_inner % values.shape[2]:
            raise _invalid(name, f"values of shape {values.shape} are no blocks of a matrix of shape {matrix.shape}")
        n_outer, n_inner = n_outer // values.shape[1], n_inner // values.shape[2]
    if starts.shape != (n_outer + 1,) or starts[0] != 0 or np.any(starts[1:] < starts[:-1]):
        raise _invalid(name, f"indptr must ascend from 0 and have {n_outer + 1} entries")
    n_axes = 3 if matrix.format == "bsr" else 1
    if indices.ndim != 1 or values.ndim != n_axes or len(values) != len(indices) or starts[-1] > len(indices):
        shapes = f"indices of shape {indices.shape} and values of shape {values.shape}"
        raise _invalid(name, f"indptr ends at {starts[-1]}, but there are {shapes}")
    place, ascending = check_sparse_rows(starts, indices, n_inner)
    if place >= 0:
        raise _invalid(name, f"index {indices[place]} at position {place} is not between 0 and {n_inner - 1}")
    return bool(ascending)


def _invalid(name: str, fault: str) -> DataError:
    return DataError(f"{name} is not a valid sparse matrix: {fault}; build it again from its entries")


def open_sparse(matrix: Any, name: str = "the sparse matrix") -> SparseSource:
    """Return a source of a SciPy sparse matrix. Reading NaN is an error unless it marks missing values."""
    check_matrix(matrix.shape, name)
    check_sparse(matrix, name)
    return SparseSource(matrix.astype(reading_dtype(matrix.dtype, name), copy=False), name, allow_nan=True)


def open_npz(path: Path, inside: str | None = None) -> MatrixSource:
    """Return a source of a file written by ``scipy.sparse.save_npz``, loaded whole, as it may be compressed."""
    refuse_inside(path, inside)
    from scipy.sparse import load_npz

    try:
        names = check_archive(path)
        if "format" not in names:
            raise DataError(
                f"{path} is not a sparse matrix written by scipy.sparse.save_npz, but an archive of arrays "
                f"({', '.join(names)}): write one of them to its own file with np.save"
            )
        matrix = load_npz(path)
        check_size(8 * (matrix.shape[0] + 1), str(path), max_bytes())  # starts of the rows, also if it has few entries
        return open_sparse(matrix, str(path))
    except DataError:
        raise
    except (OSError, *READER_ERRORS) as error:
        raise DataError(f"{path} is not a sparse matrix written by scipy.sparse.save_npz: {error}") from error


def check_archive(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file; refuse Python objects, false sizes and too large arrays."""
    with zipfile.ZipFile(path) as archive:
        check_size(sum(member.file_size for member in archive.infolist()), str(path), max_bytes())
        for member in archive.infolist():
            name = f"{member.filename} in {path}"
            with archive.open(member) as file:
                shape, _, dtype = read_header(file, name)
                if member.filename in INDEX_ARRAYS and dtype.kind not in "iu":
                    raise DataError(f"{path} is not a valid sparse matrix: {member.filename} holds {dtype}")
                claimed, held = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
            if claimed != held:
                raise DataError(f"{name} claims {claimed} bytes of numbers, but has {held}: write it again")
        return [name.removesuffix(".npy") for name in archive.namelist()]


FORMAT = Format(
    name="sparse",
    description="SciPy sparse matrices, .npz files written by scipy.sparse.save_npz",
    is_path=ends_with(".npz"),
    open_path=open_npz,
    is_object=lambda data: is_a(data, "scipy", "sparray", "spmatrix"),
    open_object=open_sparse,
)
