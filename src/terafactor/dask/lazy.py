"""Codes and objectives of Dask arrays, computed chunk by chunk where the chunks are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.data import ArraySource
from terafactor.dictionary import MaskedDictionaryLearning
from terafactor.dictionary.parameters import check_usable, problem_of
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.solver.encode import encode, sum_losses


@dataclass(frozen=True)
class FittedModel:
    """Atoms and options with which a worker encodes rows."""

    atoms: Array
    """The atoms (k, p)."""

    problem: Problem
    missing: bool

    def codes(self, rows: Array) -> Array:
        """Return the codes (b, k) of rows (b, p)."""
        return encode(self._source(rows), np.array(self.atoms, order="K"), self.problem, missing=self.missing)

    def total_loss(self, rows: Array) -> Array:
        """Return the sum of the losses of rows (b, p) and the number of rows that have a value, as (1, 2)."""
        found = sum_losses(self._source(rows), np.array(self.atoms, order="K"), self.problem, missing=self.missing)
        return np.sum(found, axis=0, keepdims=True)

    def _source(self, rows: Array) -> ArraySource:
        return ArraySource(np.ascontiguousarray(rows, self.atoms.dtype), allow_nan=self.missing)


def lazy_transform(model: MaskedDictionaryLearning, X: Any, client: Any) -> Any:
    """Return the codes of a Dask array (n, p) as a Dask array (n, k)."""
    rows, fitted = _prepare(model, X, client)
    k, dtype = model.components_.shape[0], model.components_.dtype
    chunks, meta = (rows.chunks[0], (k,)), np.empty((0, 0), dtype)
    return rows.map_blocks(_codes, fitted, chunks=chunks, dtype=dtype, meta=meta, token="terafactor-encode")


def lazy_objective(model: MaskedDictionaryLearning, X: Any, client: Any) -> Any:
    """Return the objective of a Dask array (n, p) as a Dask scalar."""
    rows, fitted = _prepare(model, X, client)
    chunks, meta = ((1,) * rows.numblocks[0], (2,)), np.empty((0, 0))
    totals = rows.map_blocks(_total_loss, fitted, chunks=chunks, dtype=np.float64, meta=meta, token="terafactor-loss")
    loss, n_rows = totals.sum(axis=0)
    return loss / n_rows


def _codes(rows: Array, fitted: FittedModel) -> Array:
    return fitted.codes(np.asarray(rows))


def _total_loss(rows: Array, fitted: FittedModel) -> Array:
    return fitted.total_loss(np.asarray(rows))


def _prepare(model: MaskedDictionaryLearning, X: Any, client: Any) -> tuple[Any, Any]:
    """Return the array in chunks of whole rows, and the model, sent to the workers once."""
    check_usable(model)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise DataError(
            f"the dask array has shape {X.shape}, but the model was fitted with {model.n_features_in_} features"
        )
    if X.dtype.kind not in "fiub":
        raise DataError(f"the dask array has dtype {X.dtype}, but the model needs numbers: convert it with astype")
    fitted = FittedModel(model.components_, problem_of(model), model.missing is not None)
    return X.rechunk({1: -1}), client.scatter(fitted, broadcast=True, hash=False)
