"""Views of some rows of a source, and random choices of rows."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.data.describe import describe_as, open_description
from terafactor.data.source import FeatureTiles, MatrixSource, SourceView, check_indices, read_finite
from terafactor.data.sources.array import ArraySource


class SelectedRows(SourceView):
    """A view of some rows of a source.

    Parameters
    ----------
    base : MatrixSource
    rows : ndarray of shape (n_rows,)
        Ascending row numbers of ``base``.
    """

    def __init__(self, base: MatrixSource, rows: Indices) -> None:
        super().__init__(base)
        self.rows = np.asarray(rows, np.int64)
        self.shape = (len(self.rows), base.shape[1])
        ends = [0, *(int(np.searchsorted(self.rows, record.stop)) for record in base.records)]
        pairs = [range(start, stop) for start, stop in itertools.pairwise(ends)]
        self._kept = [number for number, rows in enumerate(pairs) if rows]
        self._records = [pairs[number] for number in self._kept]

    def with_base(self, base: MatrixSource) -> Self:
        return type(self)(base, self.rows)

    @property
    def records(self) -> Sequence[range]:
        return self._records

    def record_name(self, record: int) -> str:
        return super().record_name(self._kept[record])

    def record_label(self, record: int) -> str:
        return super().record_label(self._kept[record])

    def record_identity(self, record: int) -> str | None:
        whole = super().record_identity(self._kept[record])
        rows = self._records[record]
        return whole and f"{whole} {rows_digest(self.rows[rows.start : rows.stop])}"

    def describe(self) -> dict[str, Any] | None:
        base = self.base.describe()
        return None if base is None else describe_as(self, open_selected, base=base, rows=self.rows)

    def locate(self, row: int) -> tuple[int, int]:
        record, number = super().locate(int(self.rows[row]))
        return self._kept.index(record), number

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        return super().stored_bytes(self.rows[rows], columns)

    def row_blocks(self, record: int) -> Sequence[range] | None:
        blocks = super().row_blocks(self._kept[record])
        if blocks is None:
            return None
        pairs = (np.searchsorted(self.rows, [block.start, block.stop]) for block in blocks)
        return [range(int(start), int(stop)) for start, stop in pairs if stop > start]

    def tiles(self, record: int) -> FeatureTiles:
        return super().tiles(self._kept[record])

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(np.asarray(rows), self.shape[0], "rows")
        return super().read(self.rows[rows], columns)

    def read_stored(self, rows: Indices) -> Any:
        check_indices(np.asarray(rows), self.shape[0], "rows")
        return super().read_stored(self.rows[rows])


def open_selected(base: Mapping[str, Any], rows: Indices) -> SelectedRows:
    """Select rows of the source with this description."""
    return SelectedRows(open_description(base), rows)


def choose_rows(
    source: MatrixSource, n_rows: int, seed: int, purpose: Purpose = Purpose.HOLDOUT, *, split_blocks: bool = False
) -> Indices:
    """Return about ``n_rows`` random rows, ascending: single rows, or whole row blocks where the source has them.

    Whole blocks keep the chosen rows, and the others, from reading blocks that they use in part. split_blocks: choose
    single rows nevertheless.
    """
    random = generator(seed, purpose)
    blocks = [block for record in range(len(source.records)) for block in source.row_blocks(record) or ()]
    if n_rows == 0 or not blocks or split_blocks:
        return np.sort(random.permutation(source.shape[0])[:n_rows])
    chosen: list[range] = []
    n_chosen = 0
    for number in random.permutation(len(blocks)):
        length = len(blocks[number])
        if n_chosen + length // 2 >= n_rows and chosen:
            break
        chosen.append(blocks[number])
        n_chosen += length
    return np.sort(np.concatenate([np.asarray(block) for block in chosen]))


def sample_rows(source: MatrixSource, n_rows: int, seed: int, *, allow_nan: bool) -> MatrixSource:
    """Return at most ``n_rows`` random rows of a source, in memory.

    They come from two records where records are read whole. Sparse rows stay sparse.
    """
    if source.whole_records:
        rows = choose_records(source, min(2, len(whole_records(source))), seed, Purpose.SAMPLE)
    else:
        rows = choose_rows(source, min(n_rows, source.shape[0]), seed, Purpose.SAMPLE)
    if len(rows) > n_rows:
        rows = rows[np.linspace(0, len(rows) - 1, n_rows).round().astype(int)]
    if source.in_memory and source.is_sparse:
        return SelectedRows(source, rows)
    return ArraySource(read_finite(source, rows, allow_nan=allow_nan), allow_nan=allow_nan)


def choose_records(source: MatrixSource, n_records: int, seed: int, purpose: Purpose = Purpose.HOLDOUT) -> Indices:
    """Return the rows of ``n_records`` random records, ascending."""
    parts = whole_records(source)
    numbers = generator(seed, purpose).permutation(len(parts))[:n_records]
    return np.sort(np.concatenate([np.empty(0, np.int64), *(parts[number] for number in numbers)]))


def whole_records(source: MatrixSource) -> list[Indices]:
    """Return the rows of each original record: a packed store may split one into several with the same label."""
    labels = map(source.record_label, range(len(source.records)))
    grouped = itertools.groupby(zip(labels, source.records, strict=True), key=lambda pair: pair[0])
    return [np.concatenate([np.asarray(rows, np.int64) for _, rows in group]) for _, group in grouped]


def rows_digest(rows: Indices) -> str:
    """Return a hash of row numbers."""
    return hashlib.sha256(np.asarray(rows, "<i8").tobytes()).hexdigest()
