"""The order in which a matrix is read."""

import itertools

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, MatrixSource
from terafactor.data import BatchStream
from terafactor.data.masks import Masks
from terafactor.testing import CountingSource, SourceContract


class BlockSource(MatrixSource):
    """A source with records and row blocks of given lengths; the value at row i, feature j is 100 i + j."""

    def __init__(self, records, n_features=6, *, blocks=True):
        edges = np.cumsum([0, *map(sum, records)])
        self._records = [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self._blocks = records if blocks else None
        self.shape = (int(edges[-1]), n_features)
        self.dtype = np.dtype(np.float64)

    @property
    def records(self):
        return self._records

    def row_blocks(self, record):
        if self._blocks is None:
            return None
        edges = self._records[record].start + np.cumsum([0, *self._blocks[record]])
        return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]

    def read(self, rows, columns=None):
        columns = np.arange(self.shape[1]) if columns is None else columns
        for indices, bound in ((rows, self.shape[0]), (columns, self.shape[1])):
            if indices.size and not (indices.min() >= 0 and indices.max() < bound):
                raise IndexError
        return 100.0 * rows[:, np.newaxis] + columns


class TestBlockSource(SourceContract):
    """The fake keeps the contract, so that what it shows about the stream counts."""

    def make(self, tmp_path):
        source = BlockSource([(4, 4, 3), (5,), (2, 6)])
        return source, 100.0 * np.arange(24)[:, np.newaxis] + np.arange(6)


def stream_of(source, batch_size=5, *, reduction=1, seed=0, **options):
    masks = Masks(source.shape[1], reduction, seed)
    return BatchStream(source, batch_size, masks, seed, **({"whole_rows": False} | options))


def epoch(stream, number):
    """Return the rows of each batch of an epoch."""
    start = number * stream.batches_per_epoch
    return [stream.rows(start + position) for position in range(stream.batches_per_epoch)]


SOURCES = {
    "one record": ArraySource(np.ones((23, 6))),
    "three records": BlockSource([(11,), (5,), (8,)], blocks=False),
    "three records of blocks": BlockSource([(4, 4, 3), (5,), (2, 6)]),
}


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 5, 100])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_epoch_visits_every_row_once(source, batch_size, shuffle):
    stream = stream_of(source, batch_size, shuffle=shuffle)
    for number in range(3):
        batches = epoch(stream, number)
        assert all(1 <= len(rows) <= batch_size for rows in batches)
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(source.shape[0]))


@pytest.mark.parametrize("batch_size", [2, 5, 100])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_batch_never_mixes_records(source, batch_size):
    for rows in epoch(stream_of(source, batch_size), 0):
        owners = {number for number, record in enumerate(source.records) for row in rows if row in record}
        assert len(owners) == 1


def test_rows_of_a_block_are_read_together_and_shuffled(monkeypatch):
    monkeypatch.setattr("terafactor.data.stream.SHUFFLE_VALUES", 0)
    blocks, orders = BlockSource([[8] * 5]).row_blocks(0), set()
    for number in range(4):
        rows = np.concatenate(epoch(stream_of(BlockSource([[8] * 5]), 4), number)).reshape(5, 8)
        assert {tuple(sorted(visit)) for visit in rows.tolist()} == {tuple(block) for block in blocks}
        assert np.any(np.diff(rows, axis=1) != 1), "rows of a block are shuffled"
        orders.add(tuple(rows.min(axis=1)))
    assert len(orders) > 1, "blocks are shuffled"


def test_batches_mix_blocks_where_several_are_read_at_once():
    stream = stream_of(BlockSource([[8] * 5]), 4)
    assert stream.values_at_once == 5 * 8 * 6
    assert max(len(set(rows // 8)) for rows in epoch(stream, 0)) > 2


def test_the_first_rows_come_from_many_blocks_while_that_is_cheap(monkeypatch):
    source = BlockSource([[4] * 10] * 10)
    assert len(set(stream_of(source, 4, reduction=3).first_rows(5) // 4)) == 5
    monkeypatch.setattr("terafactor.data.stream.SHUFFLE_VALUES", 0)
    assert len(set(stream_of(source, 4, reduction=3).first_rows(5) // 4)) == 2
    assert len(set(stream_of(source, 4, reduction=3).first_rows(40) // 4)) == 10
    monkeypatch.setattr("terafactor.data.stream.CHEAP_SHARE", 0.03)
    assert len(set(stream_of(source, 4, reduction=3).first_rows(5) // 4)) == 3


def test_a_record_without_rows_is_skipped():
    source = BlockSource([(4,), (), (3,)], blocks=False)
    stream = stream_of(source, 2)
    batches = epoch(stream, 0)
    assert all(len(rows) for rows in batches)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(7))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_order_is_a_function_of_seed_and_number(source):
    forwards = stream_of(source, 2)
    expected = [forwards.rows(number) for number in range(3 * forwards.batches_per_epoch)]
    backwards = stream_of(source, 2)
    for number in reversed(range(len(expected))):
        np.testing.assert_array_equal(backwards.rows(number), expected[number])
    first, second = (np.concatenate(epoch(forwards, number)) for number in (0, 1))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.concatenate(epoch(stream_of(source, 2, seed=1), 0)))


def test_batches_of_several_records_are_interleaved():
    stream = stream_of(BlockSource([(30,), (30,)], blocks=False), 3)
    records = [int(rows[0]) // 30 for rows in epoch(stream, 0)]
    assert records not in ([0] * 10 + [1] * 10, [1] * 10 + [0] * 10)


def test_the_order_of_the_source_can_be_kept():
    stream = stream_of(SOURCES["three records of blocks"], 4, shuffle=False)
    np.testing.assert_array_equal(np.concatenate(epoch(stream, 2)), np.arange(24))


@pytest.mark.parametrize("n_rows", [1, 7, 24, 99])
def test_first_rows_are_those_visited_first(n_rows):
    stream = stream_of(SOURCES["three records"], 4)
    np.testing.assert_array_equal(stream.first_rows(n_rows), np.concatenate(epoch(stream, 0))[:n_rows])


@pytest.mark.parametrize("whole_rows", [True, False])
@pytest.mark.parametrize("reduction", [1, 3])
def test_batches_hold_what_the_source_has(reduction, whole_rows):
    source = SOURCES["three records"]
    stream = stream_of(source, 4, reduction=reduction, whole_rows=whole_rows, mask_offset=2)
    for number, batch in enumerate(stream.batches(3, 9), 3):
        np.testing.assert_array_equal(batch.rows, stream.rows(number))
        np.testing.assert_array_equal(batch.values, source.read(batch.rows, batch.columns))
        if reduction == 1:
            assert batch.columns is None
            assert batch.whole is None
        else:
            np.testing.assert_array_equal(batch.columns, stream.masks.mask(2 + number))
        if reduction > 1 and whole_rows:
            np.testing.assert_array_equal(batch.whole, source.read(batch.rows))
        read = 6 if whole_rows or reduction == 1 else 2
        assert batch.n_bytes == len(batch.rows) * read * 8


@pytest.mark.parametrize(
    ("height", "reduction", "whole_rows", "together"),
    [
        (8, 1, False, True),
        (8, 3, True, True),
        (8, 3, False, False),  # two thirds of the block, one by one
        (16, 3, False, True),  # four thirds
        (6, 1, False, True),  # batches have a block in common
        (4, 1, False, False),
    ],
)
def test_batches_of_a_block_are_read_together_if_that_reads_less(height, reduction, whole_rows, together, monkeypatch):
    monkeypatch.setattr("terafactor.data.stream.SHUFFLE_VALUES", 0)
    source = CountingSource(BlockSource([[height] * 4, [height] * 2]))
    stream = stream_of(source, 4, reduction=reduction, whole_rows=whole_rows)
    n_rows, n_features = (-(-height // 4) * 4, 6) if together else (4, 6 // reduction)
    assert stream.values_at_once == n_rows * n_features
    batches = list(stream.batches(0, stream.batches_per_epoch))
    assert source.n_reads == sum(-(-len(record) // n_rows) for record in source.records)
    for number, batch in enumerate(batches):
        columns = stream.masks.mask(number)
        np.testing.assert_array_equal(batch.rows, stream.rows(number))
        np.testing.assert_array_equal(batch.values, source.base.read(batch.rows, columns))
        assert (batch.whole is not None) == (whole_rows and reduction > 1)


def test_blocks_too_large_for_memory_are_read_batch_by_batch(monkeypatch):
    monkeypatch.setattr("terafactor.data.stream.MAX_BLOCK_VALUES", 8 * 6 - 1)
    assert stream_of(BlockSource([[8, 8]]), 4).values_at_once == 4 * 6


class StridedSource(ArraySource):
    """A source that returns views whose rows and columns are not contiguous."""

    def read(self, rows, columns=None):
        return np.repeat(super().read(rows, columns), 2, axis=1)[::-1, ::-2][::-1, ::-1]


@pytest.mark.parametrize("reduction", [1, 3])
def test_a_source_may_return_any_view(reduction):
    X = np.random.default_rng(0).standard_normal((60, 12))
    source = StridedSource(X)
    np.testing.assert_array_equal(source.read(np.arange(60)), X)
    assert min(source.read(np.arange(60)).strides) > 8
    model, other = (MaskedDictionaryLearning(3, reduction=reduction, random_state=0).fit(data) for data in (source, X))
    np.testing.assert_array_equal(model.components_, other.components_)
    np.testing.assert_array_equal(model.transform(source), other.transform(X))
