"""Batches: the rows and features that a step learns from, and which of their values are observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.kernels.missing import split_missing


@dataclass(frozen=True)
class Batch:
    """The data of one step.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.data import Batch
    >>> Batch(rows=np.array([4, 2]), columns=None, values=np.ones((2, 3))).n_observed_rows
    2
    """

    rows: Indices
    """Row numbers (b,)."""

    columns: Indices | None
    """Features in the mask (s,), in the order in which they were read; None for all features."""

    values: Array
    """Values at rows and columns (b, s); zero where missing."""

    whole: Array | None = None
    """The rows with all features (b, p), when the statistics use them and the mask leaves some out."""

    observed: Array | None = None
    """Where there is a value (b, s), at least one in each column; None if everywhere."""

    feature_rows: Indices | int = 0
    """Rows in which each column has a value (s,), the number of rows if nothing is missing; by default computed."""

    whole_observed: Array | None = None
    """Where the whole rows have a value (b, p); False throughout a row without a value at ``columns``."""

    n_bytes: int = 0
    """Its share of the bytes that were read."""

    def __post_init__(self) -> None:
        if self.observed is None:
            object.__setattr__(self, "feature_rows", len(self.values))
        elif isinstance(self.feature_rows, int):
            object.__setattr__(self, "feature_rows", self.observed.sum(axis=0))

    @cached_property
    def n_observed_rows(self) -> int:
        """Number of rows with at least one value."""
        return len(self.values) if self.observed is None else int(self.observed.any(axis=1).sum())

    @property
    def whole_feature_rows(self) -> Indices | int:
        """Rows in which each feature of the whole rows has a value (p,); one number if it is the same for all."""
        return self.n_observed_rows if self.whole_observed is None else self.whole_observed.sum(axis=0)


@dataclass(frozen=True)
class SparseBatches:
    """Consecutive batches of whole rows, read together, without their zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.data import SparseBatches
    >>> from scipy.sparse import csr_array
    >>> values = csr_array(np.eye(3))
    >>> batches = SparseBatches(np.arange(3), values, [slice(0, 2), slice(2, 3)], n_bytes=0)
    >>> batches.batch(batches.parts[1]).values.tolist()
    [[0.0, 0.0, 1.0]]
    """

    rows: Indices
    """Row numbers (m,)."""

    values: Any
    """Stored entries of the rows, a ``scipy.sparse.csr_array`` (m, p)."""

    parts: Sequence[slice]
    """The rows of each batch."""

    n_bytes: int
    """Bytes that were read."""

    def batch(self, part: slice) -> Batch:
        """Return one of the batches as dense rows."""
        return Batch(self.rows[part], None, self.values[part].toarray())


def separate_missing(batch: Batch) -> Batch:
    """Return the batch with NaN set to zero and recorded as not observed; columns without any value are dropped.

    Overwrites the values of ``batch``.
    """
    observed, per_feature = observe(batch.values)
    whole_observed = None if batch.whole is None else observe(batch.whole)[0]
    if observed is None:
        return replace(batch, whole_observed=whole_observed)
    if whole_observed is not None:
        np.logical_and(whole_observed, observed.any(axis=1, keepdims=True), out=whole_observed)
    batch = replace(batch, observed=observed, feature_rows=per_feature, whole_observed=whole_observed)
    if per_feature.all():
        return batch
    kept = np.flatnonzero(per_feature)
    return replace(
        batch,
        columns=kept if batch.columns is None else batch.columns[kept],
        values=np.take(batch.values, kept, axis=1),
        observed=np.take(observed, kept, axis=1),
        feature_rows=per_feature[kept],
    )


def observe(values: Array) -> tuple[Array | None, Indices]:
    """Set NaN to zero in ``values`` (b, s), in place; return where there was a value (None if everywhere), and counts.

    The counts are the rows in which each column has a value (s,).
    """
    observed, per_feature = np.empty(values.shape, np.bool_), np.empty(values.shape[1], np.int64)
    n_missing = split_missing(values, observed, per_feature)
    return (observed if n_missing else None), per_feature
