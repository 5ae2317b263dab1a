"""The order in which a matrix is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.data.masks import Masks
from terafactor.data.source import MatrixSource, read_finite
from terafactor.kernels.missing import split_missing


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    rows: Indices
    """Row numbers (b,)."""

    columns: Indices | None
    """Features observed (s,), ascending; None when all are."""

    values: Array
    """Values at rows and columns (b, s); zero where missing."""

    full_values: Array | None = None
    """Values of the whole rows (b, p), when the statistics use them and the mask leaves some out."""

    observed: Array | None = None
    """Where there is a value (b, s), at least once per column; None when everywhere."""

    feature_rows: Indices | None = None
    """In how many rows each column has a value (s,); None when in all."""

    full_observed: Array | None = None
    """The same for the whole rows (b, p); False in all of a row that has no value at ``columns``."""

    @property
    def n_bytes(self) -> int:
        """Bytes that were read for it."""
        return (self.values if self.full_values is None else self.full_values).nbytes


@dataclass(frozen=True)
class _Place:
    """One batch of an epoch."""

    rows: Indices
    record: int
    visit: int
    """Visits to the record before it in the epoch."""


class BatchStream:
    """Batches of rows of a source, each with its mask. Batch number i is a pure function of the parameters and i.

    Every epoch visits every row once, in an order drawn from (seed, epoch): the row blocks of each record are
    shuffled and cut into batches, then the batches of all records are shuffled. Where masks go by record and several
    batches make up a block of rows, these follow each other and share a mask, so that the block is read once. Where
    records come as a whole, all batches of one follow each other.

    Parameters
    ----------
    source : MatrixSource
    batch_size : int
        Rows per batch; the last one of a record may be shorter.
    masks : Masks
    seed : int
    whole_rows : bool
        Whether to read whole rows beside the masked ones.
    shuffle : bool
        False keeps the order of the source.
    mask_offset : int
        Number of the mask of batch 0: where an earlier stream ended.
    missing : bool
        Whether NaN stands for a missing value.
    """

    def __init__(
        self,
        source: MatrixSource,
        batch_size: int,
        masks: Masks,
        seed: int,
        *,
        whole_rows: bool,
        shuffle: bool = True,
        mask_offset: int = 0,
        missing: bool = False,
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.masks = masks
        self.seed = seed
        self.whole_rows = whole_rows
        self.shuffle = shuffle
        self.mask_offset = mask_offset
        self.missing = missing
        self.batches_per_epoch = sum(math.ceil(len(record) / batch_size) for record in source.records)
        self._epoch = -1
        self._order: list[_Place] = []
        self._visit_lengths = [self._visit_length(record) for record in range(len(source.records))]
        self._visits_per_epoch = [
            math.ceil(len(rows) / length) for rows, length in zip(source.records, self._visit_lengths, strict=True)
        ]

    def rows(self, number: int) -> Indices:
        """Return the rows of batch ``number``."""
        return self._place(number)[1].rows

    def batch(self, number: int) -> Batch:
        """Read batch ``number``."""
        epoch, place = self._place(number)
        visit = epoch * self._visits_per_epoch[place.record] + place.visit
        columns = self.masks.mask(self.mask_offset + number, place.record, self.mask_offset + visit)
        if columns is None or not self.whole_rows:
            batch = Batch(place.rows, columns, self._read(place.rows, columns))
        else:
            whole = self._read(place.rows)
            batch = Batch(place.rows, columns, np.take(whole, columns, axis=1), whole)
        return set_missing_apart(batch) if self.missing else batch

    def _read(self, rows: Indices, columns: Indices | None = None) -> Array:
        return read_finite(self.source, rows, columns, allow_nan=self.missing)

    def batches(self, start: int, stop: int) -> Iterator[Batch]:
        """Read the batches from ``start`` to ``stop``, excluded."""
        return (self.batch(number) for number in range(start, stop))

    def first_rows(self, n_rows: int) -> Indices:
        """Return the first ``n_rows`` rows that the stream visits, or all of them if there are fewer."""
        found: list[Indices] = []
        for number in range(self.batches_per_epoch):
            if sum(map(len, found)) >= n_rows:
                break
            found.append(self.rows(number))
        return np.concatenate(found)[:n_rows]

    def _place(self, number: int) -> tuple[int, _Place]:
        """Return the epoch of a batch, and its place in it."""
        epoch, position = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = self._epoch_order(epoch)
            self._epoch = epoch
        return epoch, self._order[position]

    def _epoch_order(self, epoch: int) -> list[_Place]:
        random = generator(self.seed, Purpose.ROW_ORDER, epoch)
        units: list[tuple[int, Indices]] = []
        for record, length in enumerate(self._visit_lengths):
            rows = self._record_order(record, random)
            units.extend((record, part) for part in np.split(rows, range(length, len(rows), length)) if len(part))
        if self.shuffle and len(self.source.records) > 1:
            units = [units[index] for index in random.permutation(len(units))]
        visits = [0] * len(self.source.records)
        places: list[_Place] = []
        for record, rows in units:
            parts = np.split(rows, range(self.batch_size, len(rows), self.batch_size))
            places.extend(_Place(part, record, visits[record]) for part in parts)
            visits[record] += 1
        return places

    def _record_order(self, record: int, random: np.random.Generator) -> Indices:
        """Return the rows of a record in the order of one epoch; blocks lower than others come last."""
        rows = self.source.records[record]
        if not self.shuffle or not rows:
            return np.arange(rows.start, rows.stop)
        blocks = self.source.row_blocks(record)
        if blocks is None:
            return random.permutation(np.arange(rows.start, rows.stop))
        height = max(map(len, blocks))
        order = sorted(random.permutation(len(blocks)), key=lambda index: len(blocks[index]) < height)
        return np.concatenate([np.asarray(blocks[index]) for index in order])

    def _visit_length(self, record: int) -> int:
        """Return how many rows follow each other: a batch, a block whose batches share a mask, or the whole record."""
        if self.source.whole_records:
            return max(len(self.source.records[record]), 1)
        blocks = self.source.row_blocks(record) if self.masks.by_record else None
        height = max(map(len, blocks), default=0) if blocks else 0
        whole = height % self.batch_size == 0 or len(blocks or ()) == 1
        return max(height, self.batch_size) if whole else self.batch_size


def set_missing_apart(batch: Batch) -> Batch:
    """Return the batch with zeros for its NaN and a record of where they were; columns without any value left out."""
    observed, per_feature = observe(batch.values)
    if batch.full_values is not None:
        batch = replace(batch, full_observed=observe(batch.full_values)[0])
    if observed is None:
        return batch
    if batch.full_observed is not None:
        np.logical_and(batch.full_observed, observed.any(axis=1, keepdims=True), out=batch.full_observed)
    if per_feature.all():
        return replace(batch, observed=observed, feature_rows=per_feature)
    kept = np.flatnonzero(per_feature)
    return replace(
        batch,
        columns=kept if batch.columns is None else batch.columns[kept],
        values=np.take(batch.values, kept, axis=1),
        observed=np.take(observed, kept, axis=1),
        feature_rows=per_feature[kept],
    )


def observe(values: Array) -> tuple[Array | None, Indices]:
    """Set NaN to zero in ``values`` (b, s); return where there was a number (None: everywhere), and how often (s,)."""
    observed, per_feature = np.empty(values.shape, np.bool_), np.empty(values.shape[1], np.int32)
    n_missing = split_missing(values, observed, per_feature)
    return (observed if n_missing else None), per_feature.astype(np.int64)
