"""The order in which a matrix is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.data.masks import Masks
from terafactor.data.source import MatrixSource, read_finite


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    rows: Indices
    """Row numbers (b,)."""

    columns: Indices | None
    """Features observed (s,), ascending; None when all are."""

    values: Array
    """Values at rows and columns (b, s)."""

    full_values: Array | None = None
    """Values of the whole rows (b, p), when the statistics use them and the mask leaves some out."""

    @property
    def n_bytes(self) -> int:
        """Bytes that were read for it."""
        return (self.values if self.full_values is None else self.full_values).nbytes


class BatchStream:
    """Batches of rows of a source, each with its mask. Batch number i is a pure function of the parameters and i.

    Every epoch visits every row once, in an order drawn from (seed, epoch): the row blocks of each record are
    shuffled and cut into batches, then the batches of all records are shuffled.

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
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.masks = masks
        self.seed = seed
        self.whole_rows = whole_rows
        self.shuffle = shuffle
        self.mask_offset = mask_offset
        self.batches_per_epoch = sum(math.ceil(len(record) / batch_size) for record in source.records)
        self._epoch = -1
        self._order: list[Indices] = []

    def rows(self, number: int) -> Indices:
        """Return the rows of batch ``number``."""
        epoch, position = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = self._epoch_order(epoch)
            self._epoch = epoch
        return self._order[position]

    def batch(self, number: int) -> Batch:
        """Read batch ``number``."""
        rows = self.rows(number)
        columns = self.masks.mask(self.mask_offset + number)
        if columns is None or not self.whole_rows:
            return Batch(rows, columns, read_finite(self.source, rows, columns))
        whole = read_finite(self.source, rows)
        return Batch(rows, columns, np.take(whole, columns, axis=1), whole)

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

    def _epoch_order(self, epoch: int) -> list[Indices]:
        random = generator(self.seed, Purpose.ROW_ORDER, epoch)
        batches: list[Indices] = []
        for number, record in enumerate(self.source.records):
            if not record:
                continue
            rows = np.arange(record.start, record.stop)
            if self.shuffle:
                blocks = self.source.row_blocks(number)
                if blocks is None:
                    rows = random.permutation(rows)
                else:
                    rows = np.concatenate([np.asarray(blocks[index]) for index in random.permutation(len(blocks))])
            batches.extend(np.split(rows, range(self.batch_size, len(rows), self.batch_size)))
        if not self.shuffle or len(self.source.records) == 1:
            return batches
        return [batches[index] for index in random.permutation(len(batches))]
