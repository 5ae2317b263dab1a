"""The order in which a matrix is read."""

from __future__ import annotations

import contextlib
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._typing import Array, Indices
from terafactor.data.masks import Masks
from terafactor.data.prefetch import DEPTH, read_ahead
from terafactor.data.source import MatrixSource, read_finite, read_stored_finite
from terafactor.kernels.missing import split_missing

MAX_VALUES = 2**23
"""Values of a whole block of rows that is read at once, so that the batches cut from it read nothing twice."""

MIXED_VALUES = 2**21
"""Values of blocks that are read at once, so that the batches cut from them mix rows that are stored far apart."""

MOST_WAITING = 2**25
"""Bytes of a batch in memory up to which the next one is copied before it is needed."""

CHEAP = 0.02
"""Share of an epoch that costs little to read before it begins."""


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    rows: Indices
    """Row numbers (b,)."""

    columns: Indices | None
    """Features observed (s,), in the order in which they are read best; None when all are."""

    values: Array
    """Values at rows and columns (b, s); zero where missing."""

    whole: Array | None = None
    """The rows with all their features (b, p), when the statistics use them and the mask leaves some out."""

    observed: Array | None = None
    """Where there is a value (b, s), at least once per column; None when everywhere."""

    feature_rows: Indices | int = 0
    """Rows in which each column has a value (s,); set to their number when all have."""

    whole_observed: Array | None = None
    """Where the whole rows have a value (b, p); False in all of a row that has none at ``columns``."""

    n_bytes: int = 0
    """Its share of the bytes that were read."""

    def __post_init__(self) -> None:
        if self.observed is None:
            object.__setattr__(self, "feature_rows", len(self.values))

    @property
    def n_observed_rows(self) -> int:
        """Rows that have a value."""
        return len(self.values) if self.observed is None else int(self.observed.any(axis=1).sum())

    @property
    def whole_feature_rows(self) -> Indices | int:
        """Rows in which each feature of the whole rows has a value (p,), or one number where all have as many."""
        return self.n_observed_rows if self.whole_observed is None else self.whole_observed.sum(axis=0)

    def mean_visits(self, counts: Indices) -> float:
        """Return the mean over features of the rows in which they were seen: ``counts`` (p,) before, and this batch."""
        rows = self.feature_rows if self.whole is None else self.whole_feature_rows
        width = self.values.shape[1] if self.whole is None else len(counts)
        added = rows * width if isinstance(rows, int) else int(rows.sum())
        return (int(counts.sum()) + added) / len(counts)


@dataclass(frozen=True)
class SparseBatches:
    """Consecutive batches of whole rows, read together and without their zeros."""

    rows: Indices
    """Row numbers (m,)."""

    values: Any
    """Their stored entries, a ``scipy.sparse.csr_array`` (m, p)."""

    parts: Sequence[slice]
    """Which of the rows each batch has."""

    n_bytes: int
    """Bytes that were read."""

    def batch(self, part: slice) -> Batch:
        """Return one of the batches with its zeros."""
        return Batch(self.rows[part], None, self.values[part].toarray())


@dataclass(frozen=True)
class _Visit:
    """Rows of one record that are read together: a batch or several."""

    first: int
    """Number of its first batch."""

    rows: Indices
    record: int
    count: int
    """Visits before it, in all epochs, to records that share its masks."""


class BatchStream:
    """Batches of rows of a source, each with its mask. Batch number i is a pure function of the parameters and i.

    Every epoch visits every row once, in an order drawn from (seed, epoch): the row blocks of each record are shuffled
    and cut into batches, then the batches of all records are shuffled. Where several batches make up a block of rows,
    or a few blocks, these are read once, their rows are shuffled, and the batches follow each other and share a mask if
    masks go by record. Rows that are not in memory are read ahead by other threads, which changes nothing but the time.
    Where records are read as a whole, all batches of one follow each other, each with its mask.

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
        self._visits: list[_Visit] = []
        self._firsts: list[int] = []
        self._visit_lengths = [self._visit_length(record) for record in range(len(source.records))]
        self._shared_with = masks.shared_with or range(len(source.records))
        self._visits_per_epoch = [0] * len(source.records)
        for record, rows, length in zip(self._shared_with, source.records, self._visit_lengths, strict=True):
            self._visits_per_epoch[record] += math.ceil(len(rows) / length)

    def rows(self, number: int) -> Indices:
        """Return the rows of batch ``number``."""
        visit = self._visit_of(number)
        return visit.rows[self._part(visit, number)]

    @property
    def values_at_once(self) -> int:
        """Values that are read together, at the most."""
        n_features, n_masked = self.source.shape[1], math.ceil(self.source.shape[1] / self.masks.cycle_length)
        lengths = zip(self._visit_lengths, map(len, self.source.records), strict=True)
        n_rows = [min(length, n_rows) for length, n_rows in lengths]
        return max((rows * (n_features if self._reads_whole_rows(rows) else n_masked) for rows in n_rows), default=0)

    def n_bytes(self, number: int) -> int:
        """Return how many bytes reading batch ``number`` takes: its share of what is read together."""
        visit = self._visit_of(number)
        (mask,) = self._masks(visit, range(number, number + 1))
        n_bytes = self.source.stored_bytes(visit.rows, None if self._reads_whole_rows(len(visit.rows)) else mask)
        return round(n_bytes / len(visit.rows) * len(self.rows(number)))

    def epochs_until(self, n_visits: int) -> int:
        """Return the fewest epochs, from mask 0 on, in which every feature is observed by ``n_visits`` reads."""
        counts = self._visits_per_epoch if self.masks.by_record else [self.batches_per_epoch]
        n_epochs = max(1, math.ceil(n_visits * self.masks.cycle_length / sum(counts)))
        while self._fewest_visits([n_epochs * count for count in counts], n_visits) < n_visits:
            n_epochs += 1
        return n_epochs

    def _fewest_visits(self, counts: Sequence[int], enough: int) -> int:
        """Return how often each feature is observed, at the least, when records that share masks have such counts.

        Whole cycles of masks observe every feature; where these are not ``enough``, those that were begun count too.
        """
        cycles = [divmod(count, self.masks.cycle_length) for count in counts]
        fewest = sum(whole for whole, _ in cycles)
        if fewest >= enough or not self.masks.by_record:
            return fewest
        begun = np.zeros(self.source.shape[1], np.int64)
        for record, (_, rest) in enumerate(cycles):
            for visit in range(counts[record] - rest, counts[record]):
                begun[self.masks.mask(0, record, visit)] += 1
        return fewest + int(begun.min())

    def batch(self, number: int) -> Batch:
        """Read batch ``number``."""
        return next(self.batches(number, number + 1))

    def batches(self, start: int, stop: int, *, ahead: bool = False) -> Generator[Batch, None, None]:
        """Read the batches from ``start`` to ``stop``, excluded; close it when not all of them are wanted.

        ahead: whether the next batch may be copied out of memory before it is needed, by a thread of its own. What is
        not in memory always is.
        """
        depth = 0 if stop - start <= 1 else self.prefetch_depth(ahead)
        with contextlib.closing(read_ahead(self._tasks(start, stop), depth)) as parts:
            for batches in parts:
                yield from batches

    def prefetch_depth(self, ahead: bool) -> int:
        """Return how many reads may be under way or waiting: of large batches in memory, no two take room at once."""
        if not self.source.in_memory:
            return DEPTH
        return int(ahead and self.values_at_once * self.source.dtype.itemsize <= MOST_WAITING)

    def sparse_batches(self, start: int, stop: int, length: int) -> Generator[SparseBatches, None, None]:
        """Read the batches from ``start`` to ``stop`` of a sparse source, up to ``length`` of one epoch together.

        There must be no masks. Close it when not all of them are wanted.
        """
        tasks = (partial(self._read_sparse, numbers) for numbers in self._cut(start, stop, length))
        depth = 0 if self.source.in_memory or stop - start <= length else DEPTH
        with contextlib.closing(read_ahead(tasks, depth)) as parts:
            yield from parts

    def _cut(self, start: int, stop: int, length: int) -> Iterator[list[Indices]]:
        """Yield the rows of batches that are read together. Where these end depends on the first of them only."""
        while start < stop:
            end = min(start + length, stop, (start // self.batches_per_epoch + 1) * self.batches_per_epoch)
            yield [self.rows(number) for number in range(start, end)]
            start = end

    def _read_sparse(self, batches: list[Indices]) -> SparseBatches:
        rows, ends = np.concatenate(batches), np.cumsum([0, *map(len, batches)])
        return SparseBatches(
            rows=rows,
            values=read_stored_finite(self.source, rows),
            parts=[slice(int(first), int(last)) for first, last in itertools.pairwise(ends)],
            n_bytes=self.source.stored_bytes(rows),
        )

    def _tasks(self, start: int, stop: int) -> Iterator[Callable[[], list[Batch]]]:
        """Yield what reads the batches of each visit, to be called by any thread."""
        while start < stop:
            visit = self._visit_of(start)
            end = min(stop, visit.first + math.ceil(len(visit.rows) / self.batch_size))
            yield partial(self._read_visit, visit, range(start, end))
            start = end

    def _read_visit(self, visit: _Visit, numbers: range) -> list[Batch]:
        """Read the rows of some batches of a visit together, and part them."""
        parts = [visit.rows[self._part(visit, number)] for number in numbers]
        whole, masks = self._reads_whole_rows(len(visit.rows)), self._masks(visit, numbers)
        read = None if whole else masks[0]
        wanted = np.concatenate(parts)
        if len(parts) > 1:
            wanted.sort()  # as they are stored
        values = read_finite(self.source, wanted, read, allow_nan=self.missing)
        bytes_per_row = self.source.stored_bytes(visit.rows, read) / len(visit.rows)
        batches = []
        for rows, columns in zip(parts, masks, strict=True):
            mine = values if len(parts) == 1 else values[np.searchsorted(wanted, rows)]
            n_bytes = round(bytes_per_row * len(rows))
            if columns is None or not whole:
                batch = Batch(rows, columns, mine, n_bytes=n_bytes)
            else:
                masked = np.take(mine, columns, axis=1)
                batch = Batch(rows, columns, masked, mine if self.whole_rows else None, n_bytes=n_bytes)
            batches.append(separate_missing(batch) if self.missing else batch)
        return batches

    def _masks(self, visit: _Visit, numbers: range) -> list[Indices | None]:
        """Return the masks of some batches of a visit."""
        firsts = numbers[:1] if self.masks.by_record else numbers
        masks = [self.masks.mask(self.mask_offset + n, visit.record, self.mask_offset + visit.count) for n in firsts]
        return masks * len(numbers) if self.masks.by_record else masks

    def _reads_whole_rows(self, n_rows: int) -> bool:
        """Whether rows of a visit are read with all features: for the statistics, or because its masks differ."""
        return (
            self.whole_rows or self.masks.cycle_length == 1 or not (self.masks.by_record or n_rows <= self.batch_size)
        )

    def _part(self, visit: _Visit, number: int) -> slice:
        """Return which rows of a visit are those of batch ``number``."""
        start = (number - visit.first) * self.batch_size
        return slice(start, min(start + self.batch_size, len(visit.rows)))

    def first_rows(self, n_rows: int) -> Indices:
        """Return ``n_rows`` rows to start from, or all if there are fewer: the first that the stream visits.

        Rows of a block may be alike: there, they come from several visits in turn, from as many as cost little.
        """
        self._visit_of(0)
        visits = [visit.rows for visit in self._visits[:n_rows]]
        enough = int(np.searchsorted(np.cumsum([len(rows) for rows in visits]), n_rows)) + 1
        if not self.shuffle or self.source.row_blocks(0) is None:
            return np.concatenate(visits[:enough])[:n_rows]
        cheap = max(CHEAP * len(self._visits), MIXED_VALUES / (len(visits[0]) * self.source.shape[1]))
        chosen = visits[: max(enough, int(cheap))]
        turns = np.concatenate([np.arange(len(rows)) for rows in chosen])
        return np.concatenate(chosen)[np.argsort(turns, kind="stable")[:n_rows]]

    def _visit_of(self, number: int) -> _Visit:
        """Return the visit that batch ``number`` is of."""
        epoch = number // self.batches_per_epoch
        if epoch != self._epoch:
            self._visits = self._visits_in(epoch)
            self._firsts = [visit.first for visit in self._visits]
            self._epoch = epoch
        return self._visits[bisect_right(self._firsts, number) - 1]

    def _visits_in(self, epoch: int) -> list[_Visit]:
        random = generator(self.seed, Purpose.ROW_ORDER, epoch)
        groups: list[list[tuple[int, Indices]]] = []  # each follows the other as a whole
        for record, length in enumerate(self._visit_lengths):
            rows = self._record_order(record, random)
            parts = [(record, rows[start : start + length]) for start in range(0, len(rows), length)]
            if self.shuffle and length > self.batch_size:
                parts = [(record, random.permutation(part)) for record, part in parts]
            groups.extend([parts] if self.source.whole_records else [[part] for part in parts])
        if self.shuffle and len(self.source.records) > 1:
            groups = [groups[index] for index in random.permutation(len(groups))]
        counts = [epoch * count for count in self._visits_per_epoch]
        first = epoch * self.batches_per_epoch
        visits: list[_Visit] = []
        for record, rows in itertools.chain.from_iterable(groups):
            visits.append(_Visit(first, rows, record, counts[self._shared_with[record]]))
            first += math.ceil(len(rows) / self.batch_size)
            counts[self._shared_with[record]] += 1
        return visits

    def _record_order(self, record: int, random: np.random.Generator) -> Indices:
        """Return the rows of a record in the order of one epoch; blocks lower than others come last."""
        rows = self.source.records[record]
        if not self.shuffle or not rows:
            return np.arange(rows.start, rows.stop)
        blocks = self.source.row_blocks(record)
        if blocks is None:
            return random.permutation(np.arange(rows.start, rows.stop))
        height = max(map(len, blocks))
        order = sorted(random.permutation(len(blocks)).tolist(), key=lambda index: len(blocks[index]) < height)
        return np.concatenate([np.arange(blocks[index].start, blocks[index].stop) for index in order])

    def _visit_length(self, record: int) -> int:
        """Return how many rows are read together: a batch, or the batches that make up a block of rows or several.

        These share a mask where masks go by record. Elsewhere each has its own, and blocks are read with all features
        if that is not more than what their batches would read one by one, and does not take too much memory.
        """
        blocks = self.source.row_blocks(record) or ()
        height = max(map(len, blocks), default=0)
        if self.masks.by_record and (height % self.batch_size == 0 or len(blocks) == 1):
            return max(height, self.batch_size)
        if self.masks.by_record and self.masks.cycle_length > 1:
            return self.batch_size
        n_batches = math.ceil(height / self.batch_size)
        saves = not self.whole_rows and self.masks.tiles.width == self.source.tiles(record).width
        blocks_read = n_batches / (self.masks.cycle_length if saves else 1)
        n_rows = n_batches * self.batch_size
        n_values = n_rows * self.source.shape[1]
        if blocks_read < 1 or n_values > MAX_VALUES:
            return self.batch_size
        return n_rows * max(1, MIXED_VALUES // n_values)


def separate_missing(batch: Batch) -> Batch:
    """Return the batch with zeros for its NaN and a record of where they were; columns without any value left out.

    Its values are overwritten, so they must be its own.
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
    """Set NaN to zero in ``values`` (b, s); return where there was a number (None: everywhere), and how often (s,)."""
    observed, per_feature = np.empty(values.shape, np.bool_), np.empty(values.shape[1], np.int64)
    n_missing = split_missing(values, observed, per_feature)
    return (observed if n_missing else None), per_feature
