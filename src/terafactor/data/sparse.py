"""A sparse matrix in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import MatrixSource, check_indices
from terafactor.errors import DataError
from terafactor.kernels.accumulation import fill_sparse_rows


class SparseSource(MatrixSource):
    """A SciPy sparse matrix or array; a batch of rows is made dense when it is read, never the whole.

    Parameters
    ----------
    matrix : scipy sparse matrix or array of shape (n_samples, n_features), float32 or float64
        Converted to compressed rows if it is something else.
    absent : float
        What an entry that is not stored reads as: 0, or NaN where absent means missing.
    name : str
        What errors call it.
    allow_nan : bool
        Whether stored NaN may stand for missing values.
    """

    in_memory = True

    def __init__(self, matrix: Any, name: str = "X", *, absent: float = 0.0, allow_nan: bool = False) -> None:
        rows = matrix.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        bad = np.isinf(rows.data) if allow_nan else ~np.isfinite(rows.data)
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
            raise DataError(
                f"{name} contains {rows.data[place]} (NaN or infinity) at row {row}, column {rows.indices[place]}; "
                "stored entries must be finite: drop them, or say missing='nan' for NaN"
            )
        self.matrix = rows
        self.absent = absent
        self.shape = (int(rows.shape[0]), int(rows.shape[1]))
        self.dtype = rows.dtype

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        chosen = np.arange(self.shape[1]) if columns is None else columns
        check_indices(chosen, self.shape[1], "columns")
        order = None if columns is None or np.all(np.diff(columns) > 0) else np.argsort(columns, kind="stable")
        ascending = chosen if order is None else chosen[order]
        values = np.full((len(rows), len(chosen)), self.absent, self.dtype)
        matrix = self.matrix
        fill_sparse_rows(matrix.indptr, matrix.indices, matrix.data, rows, ascending, columns is None, values)
        return values if order is None else np.take(values, np.argsort(order, kind="stable"), axis=1)
