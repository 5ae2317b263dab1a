"""A sample of rows, with codes and reconstructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data import MatrixSource
from terafactor.data.views.rows import SelectedRows
from terafactor.report.context import Example, RowSample

MAX_SHOWN_ROWS = 256
"""Rows in a sample: enough to see which atoms are used."""

MAX_VALUES = 2**23
"""Values in a sample, which has fewer rows if they are long."""


def sample_rows(
    source: MatrixSource, encode: Callable[[MatrixSource], Array], decode: Callable[[Array], Array]
) -> RowSample:
    """Return rows spread evenly over a source, with their codes and a few reconstructions.

    Parameters
    ----------
    source : MatrixSource
    encode : callable
        Returns the codes (m, k) of the rows of a source.
    decode : callable
        Returns the rows (m, p) of codes (m, k).
    """
    rows = spread(source.shape)
    values = source.read(rows)
    codes = encode(SelectedRows(source, rows))
    reconstructions = decode(codes)
    explained = explained_share(values, reconstructions)
    found = examples(values, reconstructions, explained, name=lambda i: row_name(source, int(rows[i])))
    return RowSample(codes, explained, found)


def row_name(source: MatrixSource, row: int) -> str:
    """Return the number of a row, and its record if there are several."""
    record, number = source.locate(row)
    return f"row {number:,}" + (f" of {source.record_label(record)}" if len(source.records) > 1 else "")


def spread(shape: tuple[int, int]) -> Indices:
    """Return evenly spaced rows, from the first to the last."""
    n_rows = min(shape[0], MAX_SHOWN_ROWS, max(1, MAX_VALUES // shape[1]))
    return np.unique(np.linspace(0, shape[0] - 1, n_rows).astype(np.int64))


def explained_share(values: Array, reconstructions: Array) -> Array:
    """Return 1 - |x - y|^2 / |x|^2 over the known values of each row (m,); NaN for a row of zeros or without values."""
    known = np.isfinite(values)
    total = np.sum(values**2, axis=1, where=known, dtype=np.float64)
    rest = np.sum((values - reconstructions) ** 2, axis=1, where=known, dtype=np.float64)
    return np.asarray(1 - np.divide(rest, total, out=np.full(len(values), np.nan), where=total > 0))


def examples(values: Array, reconstructions: Array, explained: Array, name: Callable[[int], str]) -> list[Example]:
    """Return the best, the median and the worst reconstructed row, fewer if there are fewer rows."""
    ranked = np.argsort(-explained, kind="stable")[: int(np.isfinite(explained).sum())]
    if len(ranked) == 0:
        return []
    places = {"best": 0, "median": len(ranked) // 2, "worst": len(ranked) - 1}
    chosen = {place: label for label, place in reversed(places.items())}
    return [
        Example(label, name(int(i)), values[i], reconstructions[i], float(explained[i]))
        for place, label in sorted(chosen.items())
        for i in [ranked[place]]
    ]
