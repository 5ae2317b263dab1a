"""The stream of batches: in which order rows are read, and with which masks."""

from __future__ import annotations

import contextlib
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Indices
from terafactor.data.batch import Batch, SparseBatches, separate_missing
from terafactor.data.masks import Masks
from terafactor.data.prefetch import DEPTH, prefetch
from terafactor.data.source import MatrixSource, read_finite, read_stored_finite

MAX_BLOCK_VALUES = 2**23
"""Largest block of rows, in values, that is read once for all of its batches; larger ones are read batch by batch."""

SHUFFLE_VALUES = 2**21
"""Size of the shuffle buffer, in values: small blocks are read together, so that a batch mixes rows of several."""

MAX_PREFETCH_BYTES = 2**25
"""Largest batch in memory that is copied before it is needed."""

CHEAP_SHARE = 0.02
"""Share of an epoch that may be read to initialize the atoms."""


@dataclass(frozen=True)
class _Read:
    """Rows of one record that are read at once: one batch or several."""

    first: int
    """Number of its first batch."""

    record: int
    visit: int
    """Number of earlier reads, in all epochs, of records that share its masks."""

    rows: Indices
    batches: list[Indices]
    """The rows, cut into batches."""


class BatchStream:
    """Batches of rows of a source, each with its mask. Batch number i is a pure function of the parameters and i.

    Every epoch visits every row once, in an order drawn from (seed, epoch): the row blocks of each record are shuffled
    and cut into batches, then the batches of all records are shuffled. Where several batches make up a row block, or a
    few blocks, these are read once, their rows are shuffled, and the batches are consecutive; they share a mask if
    masks go by record. The batches of a record that is always read whole are consecutive, each with its own mask.
    Other threads prefetch rows that are not in memory, which changes the timing only.

    Parameters
    ----------
    source : MatrixSource
    batch_size : int
        Rows per batch; the last batch of a record may be smaller.
    masks : Masks
    seed : int
    whole_rows : bool
        Whether to read whole rows in addition to the masked ones.
    shuffle : bool
        False keeps the order of the source.
    mask_offset : int
        Number of the mask of batch 0: where an earlier stream ended.
    missing : bool
        Whether NaN marks missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.data import BatchStream
    >>> from terafactor.data.masks import Masks
    >>> from terafactor.data import ArraySource
    >>> source = ArraySource(np.arange(12.0).reshape(6, 2))
    >>> stream = BatchStream(source, 4, Masks(2, 1, seed=0), seed=0, whole_rows=False, shuffle=False)
    >>> [batch.rows.tolist() for batch in stream.batches(0, stream.batches_per_epoch)]
    [[0, 1, 2, 3], [4, 5]]
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
        self._reads: list[_Read] = []
        self._rows_per_read = [self._choose_rows_per_read(record) for record in range(len(source.records))]
        self._shared_with = masks.shared_with or range(len(source.records))
        self._reads_per_epoch = [0] * len(source.records)
        for record, rows, length in zip(self._shared_with, source.records, self._rows_per_read, strict=True):
            self._reads_per_epoch[record] += math.ceil(len(rows) / length)

    @property
    def values_at_once(self) -> int:
        """Largest number of values that one read returns."""
        n_features, n_masked = self.source.shape[1], math.ceil(self.source.shape[1] / self.masks.cycle_length)
        pairs = zip(self._rows_per_read, self.source.records, strict=True)
        n_rows = [min(length, len(record)) for length, record in pairs]
        return max((rows * (n_features if self._reads_all_features(rows) else n_masked) for rows in n_rows), default=0)

    def rows(self, number: int) -> Indices:
        """Return the rows of batch ``number`` (b,)."""
        read = self._read_of(number)
        return read.batches[number - read.first]

    def n_bytes(self, number: int) -> int:
        """Return how many bytes batch ``number`` reads: its share of the bytes of a read."""
        read = self._read_of(number)
        columns = None if self._reads_all_features(len(read.rows)) else self._mask(read, number)
        return round(self.source.stored_bytes(read.rows, columns) / len(read.rows) * len(self.rows(number)))

    def epochs_until(self, n_visits: int) -> int:
        """Return the fewest epochs, from mask 0 on, after which ``n_visits`` reads have used every feature."""
        per_epoch = self._reads_per_epoch if self.masks.by_record else [self.batches_per_epoch]
        n_epochs = max(1, math.ceil(n_visits * self.masks.cycle_length / sum(per_epoch)))
        while self.masks.fewest_visits([n_epochs * count for count in per_epoch]) < n_visits:
            n_epochs += 1
        return n_epochs

    def first_rows(self, n_rows: int) -> Indices:
        """Return the first ``n_rows`` rows (n,) of the stream, or all if there are fewer, to initialize from.

        Rows of a block may be alike: there, the rows come from several reads in turn, as many as are cheap.
        """
        self._read_of(0)
        reads = [read.rows for read in self._reads[:n_rows]]
        enough = int(np.searchsorted(np.cumsum([len(rows) for rows in reads]), n_rows)) + 1
        if not self.shuffle or self.source.row_blocks(0) is None:
            return np.concatenate(reads[:enough])[:n_rows]
        cheap = max(CHEAP_SHARE * len(self._reads), SHUFFLE_VALUES / (len(reads[0]) * self.source.shape[1]))
        chosen = reads[: max(enough, int(cheap))]
        turns = np.concatenate([np.arange(len(rows)) for rows in chosen])
        return np.concatenate(chosen)[np.argsort(turns, kind="stable")[:n_rows]]

    def batch(self, number: int) -> Batch:
        """Read batch ``number``."""
        return next(self.batches(number, number + 1))

    def batches(self, start: int, stop: int, *, ahead: bool = False) -> Generator[Batch, None, None]:
        """Read the batches from ``start`` up to ``stop``, excluded. Close the generator unless it is exhausted.

        ahead: whether another thread may copy the next batch of a source in memory, unless batches are large. Other
        sources are always prefetched.
        """
        depth = DEPTH
        if self.source.in_memory:
            depth = int(ahead and self.values_at_once * self.source.dtype.itemsize <= MAX_PREFETCH_BYTES)
        with contextlib.closing(prefetch(self._tasks(start, stop), depth if stop - start > 1 else 0)) as parts:
            for batches in parts:
                yield from batches

    def sparse_batches(self, start: int, stop: int, length: int) -> Generator[SparseBatches, None, None]:
        """Read the batches from ``start`` up to ``stop`` of a sparse source, up to ``length`` of one epoch together.

        There must be no masks. Close the generator unless it is exhausted.
        """
        depth = 0 if self.source.in_memory or stop - start <= length else DEPTH
        with contextlib.closing(prefetch(self._sparse_tasks(start, stop, length), depth)) as groups:
            yield from groups

    def _tasks(self, start: int, stop: int) -> Iterator[Callable[[], list[Batch]]]:
        """Yield a function for each read, which any thread may call, that returns its batches."""
        while start < stop:
            read = self._read_of(start)
            end = min(stop, read.first + len(read.batches))
            yield partial(self._load, read, range(start, end))
            start = end

    def _load(self, read: _Read, numbers: range) -> list[Batch]:
        """Return some batches of a read."""
        parts = [read.batches[number - read.first] for number in numbers]
        masks = [self._mask(read, number) for number in numbers]
        all_features = self._reads_all_features(len(read.rows))
        columns = None if all_features else masks[0]
        rows = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))  # in the order in which they are stored
        values = read_finite(self.source, rows, columns, allow_nan=self.missing)
        bytes_per_row = self.source.stored_bytes(read.rows, columns) / len(read.rows)
        batches = []
        for part, mask in zip(parts, masks, strict=True):
            part_values, whole = values if len(parts) == 1 else values[np.searchsorted(rows, part)], None
            if mask is not None and all_features:
                whole = part_values if self.whole_rows else None
                part_values = np.take(part_values, mask, axis=1)
            batch = Batch(part, mask, part_values, whole, n_bytes=round(bytes_per_row * len(part)))
            batches.append(separate_missing(batch) if self.missing else batch)
        return batches

    def _mask(self, read: _Read, number: int) -> Indices | None:
        return self.masks.mask(self.mask_offset + number, read.record, self.mask_offset + read.visit)

    def _sparse_tasks(self, start: int, stop: int, length: int) -> Iterator[Callable[[], SparseBatches]]:
        """Yield a function for each group of batches; ``stop`` cuts a group in two if it is within an epoch."""
        while start < stop:
            end = min(end_of_group(start, length, self.batches_per_epoch), stop)
            yield partial(self._load_sparse, [self.rows(number) for number in range(start, end)])
            start = end

    def _load_sparse(self, batches: list[Indices]) -> SparseBatches:
        rows, ends = np.concatenate(batches), np.cumsum([0, *map(len, batches)])
        return SparseBatches(
            rows=rows,
            values=read_stored_finite(self.source, rows),
            parts=[slice(int(first), int(last)) for first, last in itertools.pairwise(ends)],
            n_bytes=self.source.stored_bytes(rows),
        )

    def _reads_all_features(self, n_rows: int) -> bool:
        """Whether a read of ``n_rows`` takes all features: for the statistics, or because its masks differ."""
        return (
            self.whole_rows or self.masks.cycle_length == 1 or (n_rows > self.batch_size and not self.masks.by_record)
        )

    def _read_of(self, number: int) -> _Read:
        """Return the read that batch ``number`` is part of."""
        epoch = number // self.batches_per_epoch
        if epoch != self._epoch:
            self._reads, self._epoch = self._reads_of_epoch(epoch), epoch
        return self._reads[bisect_right(self._reads, number, key=lambda read: read.first) - 1]

    def _reads_of_epoch(self, epoch: int) -> list[_Read]:
        random = generator(self.seed, Purpose.ROW_ORDER, epoch)
        groups: list[list[tuple[int, Indices]]] = []  # reads that stay consecutive
        for record, length in enumerate(self._rows_per_read):
            order = self._row_order(record, random)
            parts = [(record, order[start : start + length]) for start in range(0, len(order), length)]
            if self.shuffle and length > self.batch_size:
                parts = [(record, random.permutation(part)) for record, part in parts]
            groups.extend([parts] if self.source.whole_records else [[part] for part in parts])
        if self.shuffle and len(self.source.records) > 1:
            groups = [groups[index] for index in random.permutation(len(groups))]
        visits = [epoch * count for count in self._reads_per_epoch]
        first, size, reads = epoch * self.batches_per_epoch, self.batch_size, []
        for record, rows in itertools.chain.from_iterable(groups):
            batches = [rows[start : start + size] for start in range(0, len(rows), size)]
            reads.append(_Read(first, record, visits[self._shared_with[record]], rows, batches))
            first += len(batches)
            visits[self._shared_with[record]] += 1
        return reads

    def _row_order(self, record: int, random: np.random.Generator) -> Indices:
        """Return the rows of a record in the order of one epoch; blocks that are smaller than others come last."""
        rows = self.source.records[record]
        if not self.shuffle or not rows:
            return np.arange(rows.start, rows.stop)
        blocks = self.source.row_blocks(record)
        if blocks is None:
            return random.permutation(np.arange(rows.start, rows.stop))
        height = max(map(len, blocks))
        order = sorted(random.permutation(len(blocks)).tolist(), key=lambda index: len(blocks[index]) < height)
        return np.concatenate([np.arange(blocks[index].start, blocks[index].stop) for index in order])

    def _choose_rows_per_read(self, record: int) -> int:
        """Return how many rows are read at once: one batch, or the batches that make up one or more row blocks.

        These batches share a mask if masks go by record. Otherwise each has its own, and blocks are read with all
        features if that reads no more than their batches would one by one, and fits in memory.
        """
        blocks = self.source.row_blocks(record) or ()
        height = max(map(len, blocks), default=0)
        if self.masks.by_record and (height % self.batch_size == 0 or len(blocks) == 1):
            return max(height, self.batch_size)
        if self.masks.by_record and self.masks.cycle_length > 1:
            return self.batch_size
        n_batches = math.ceil(height / self.batch_size)
        mask_saves = not self.whole_rows and self.masks.tiles.width == self.source.tiles(record).width
        blocks_read = n_batches / (self.masks.cycle_length if mask_saves else 1)  # if read batch by batch
        n_rows = n_batches * self.batch_size
        n_values = n_rows * self.source.shape[1]
        if blocks_read < 1 or n_values > MAX_BLOCK_VALUES:
            return self.batch_size
        return n_rows * max(1, SHUFFLE_VALUES // n_values)


def end_of_group(start: int, length: int, batches_per_epoch: int) -> int:
    """Return where the group of batches that contains ``start`` ends; each epoch is cut into groups of ``length``.

    Examples
    --------
    >>> from terafactor.data.stream import end_of_group
    >>> [end_of_group(start, 4, batches_per_epoch=10) for start in (0, 3, 4, 8, 10)]
    [4, 4, 8, 10, 14]
    """
    epoch, number = divmod(start, batches_per_epoch)
    return epoch * batches_per_epoch + min((number // length + 1) * length, batches_per_epoch)
