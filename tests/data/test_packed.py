"""The packed store: what is read is what was packed, in 1 / r of it, or an error."""

import json
import os

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, open_source, pack
from terafactor.data import BatchStream
from terafactor.data.masks import RunMasks, masks_of
from terafactor.data.packed.reader import PackedSource
from terafactor.data.views.joined import JoinedSource
from terafactor.errors import ParameterError
from terafactor.testing import SourceContract

N_FEATURES, BLOCK = 530, 4


def values(n_rows=137, dtype=np.float32):
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES)).astype(dtype)


class TestPacked(SourceContract):
    def make(self, tmp_path):
        pack(values(), tmp_path / "store", block_rows=BLOCK)
        return open_source(tmp_path / "store"), values()


class TestDoublePrecision(SourceContract):
    def make(self, tmp_path):
        array = values(dtype=np.float64)
        pack(array, tmp_path / "store", block_rows=5)
        return open_source(str(tmp_path / "store")), array


class TestOfManyRecords(SourceContract):
    def make(self, tmp_path):
        parts = [ArraySource(part) for part in np.split(values(), range(7, 137, 7))]
        pack(JoinedSource(parts), tmp_path / "store", block_rows=3)
        return open_source(tmp_path / "store"), values()


class TestByZarr(SourceContract):
    def make(self, tmp_path):
        few = values()[:37]  # zarr takes milliseconds per chunk
        pack(few, tmp_path / "store", block_rows=BLOCK)
        return open_source(tmp_path / "store", reader="zarr"), few


class TestIntegers(SourceContract):
    def make(self, tmp_path):
        whole = np.random.default_rng(0).integers(-32767, 32768, (60, N_FEATURES))
        whole[::4] = 32767  # every feature of every piece reaches the end of the range
        pack(whole.astype(np.float32), tmp_path / "store", block_rows=BLOCK, dtype=np.int16)
        return open_source(tmp_path / "store"), (whole * np.nextafter(np.float32(1), np.float32(2))).astype(np.float32)


class TestOfFewFeatures(SourceContract):
    def make(self, tmp_path):
        array = values()[:, :5].copy()
        pack(array, tmp_path / "store")
        return open_source(tmp_path / "store"), array


def test_any_zarr_reader_opens_it(shared):
    import zarr

    path, array = shared
    group = zarr.open_group(path, mode="r")
    orders = group["permutations"][:]
    assert orders.shape == (16, N_FEATURES)
    for number, rows in enumerate(open_source(path).records):
        record = group[f"records/{number:06d}"]
        assert record.chunks[0] == BLOCK
        assert record.shards[1] >= N_FEATURES
        np.testing.assert_array_equal(record[:], array[rows.start : rows.stop][:, orders[number % 16]])


def test_any_zarr_reader_scales_integers(tmp_path, records_of):
    import zarr

    pack(records_of(values(), 90), tmp_path / "store", block_rows=BLOCK, dtype="int16")
    source, group = open_source(tmp_path / "store"), zarr.open_group(tmp_path / "store", mode="r")
    orders, scales = group["permutations"][:], group["scales"]
    for number, rows in enumerate(source.records):
        record = group[f"records/{number:06d}"][:]
        assert record.dtype == np.int16
        read = source.read(np.arange(rows.start, rows.stop), orders[number % 16].astype(np.int64))
        np.testing.assert_array_equal(record * scales[number], read)


@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_both_readers_give_the_same_bits(tmp_path, dtype):
    pack(values(), tmp_path / "store", block_rows=BLOCK, dtype=dtype)
    random = np.random.default_rng(1)
    for _ in range(2):
        rows, columns = random.permutation(137)[:9], random.permutation(N_FEATURES)[:70]
        both = [open_source(tmp_path / "store", reader=reader).read(rows, columns) for reader in ("direct", "zarr")]
        np.testing.assert_array_equal(*both)


def test_a_reader_that_is_not_there_is_refused(shared):
    with pytest.raises(ParameterError, match="reader must be 'direct' or 'zarr', got 'tape'"):
        open_source(shared[0], reader="tape")


def test_the_metadata_describe_what_was_packed(shared):
    path, array = shared
    source = PackedSource(path)
    for rows, statistics in zip(source.records, source.statistics, strict=True):
        part = array[rows.start : rows.stop].astype(np.float64)
        assert statistics["count"] == part.size
        np.testing.assert_allclose(
            [statistics[key] for key in ("mean", "std", "min", "max")],
            [part.mean(), part.std(), part.min(), part.max()],
            rtol=1e-6,
        )
    assert (
        source.fingerprint == json.loads((path / "zarr.json").read_bytes())["attributes"]["terafactor"]["fingerprint"]
    )


def bytes_read_by(source, stream, monkeypatch):
    """Return the bytes of tiles that one epoch takes from the system, and in how many calls."""
    taken = []
    preadv = os.preadv

    def counting(descriptor, buffers, offset):
        size = sum(len(buffer) for buffer in buffers)
        if size != source.layout.index_bytes:
            taken.append(size)
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counting)
    for _ in stream.batches(0, stream.batches_per_epoch):
        pass
    return sum(taken), len(taken)


@pytest.mark.parametrize("batch_size", [BLOCK, 2 * BLOCK, BLOCK // 2, 1])
@pytest.mark.parametrize("reduction", [4, 8, 12])
def test_a_mask_reads_its_share_in_one_or_two_reads(tmp_path, monkeypatch, reduction, batch_size):
    array = np.random.default_rng(0).standard_normal((16 * 6 * BLOCK, 1280)).astype(np.float32)
    pack(array, tmp_path / "store", block_rows=BLOCK)
    source = PackedSource(tmp_path / "store")
    stream = BatchStream(source, batch_size, masks_of(source, reduction, 0), 0, whole_rows=False)
    taken, calls = bytes_read_by(source, stream, monkeypatch)
    assert taken <= 1.10 * array.nbytes / reduction
    assert calls <= 2 * 16 * 6


def visits(stream, record):
    """Return the masks of all visits to a record in an epoch, in order."""
    batches = (stream.batch(number) for number in range(stream.batches_per_epoch))
    rows = stream.source.records[record]
    return [batch.columns for batch in batches if batch.rows[0] in rows]


@pytest.mark.parametrize("reduction", [3, 4.5, 7])
def test_each_feature_is_seen_once_every_r_visits_of_a_record(tmp_path, reduction):
    length = int(np.ceil(reduction))
    pack(values(16 * 2 * length * BLOCK), tmp_path / "store", block_rows=BLOCK)
    source = open_source(tmp_path / "store")
    stream = BatchStream(source, BLOCK, RunMasks(source, reduction, 3), 3, whole_rows=False)
    for record in (0, 5, 15):
        masks = visits(stream, record)
        assert len(masks) == 2 * length
        for cycle in (masks[:length], masks[length:]):
            np.testing.assert_array_equal(np.sort(np.concatenate(cycle)), np.arange(N_FEATURES))
        assert not np.array_equal(np.sort(masks[0]), np.sort(masks[length]))
        place = np.argsort(source.tiles(record).order)
        for mask in masks:  # as stored, around the end at most once
            steps = np.diff(place[mask])
            assert np.all((steps == 1) | (steps == 1 - N_FEATURES))


def test_records_with_one_order_share_a_cycle(tmp_path):
    records = [values(BLOCK) for _ in range(16 * 5)]
    pack(JoinedSource([ArraySource(rows) for rows in records]), tmp_path / "store", block_rows=BLOCK)
    source = open_source(tmp_path / "store")
    stream = BatchStream(source, BLOCK, RunMasks(source, 5, 3), 3, whole_rows=False)
    batches = list(stream.batches(0, 2 * stream.batches_per_epoch))
    for order in (0, 5, 15):
        rows = [row for record in range(order, 80, 16) for row in source.records[record]]
        seen = [batch.columns for batch in batches if batch.rows[0] in rows]
        assert len(seen) == 10
        for cycle in (seen[:5], seen[5:]):
            np.testing.assert_array_equal(np.sort(np.concatenate(cycle)), np.arange(N_FEATURES))


@pytest.mark.parametrize(("reduction", "n_visits"), [(1, 3), (5, 1), (5, 4), (3, 100)])
def test_epochs_until_every_feature_was_visited(shared, reduction, n_visits):
    source = open_source(shared[0])
    stream = BatchStream(source, BLOCK, masks_of(source, reduction, 0), 0, whole_rows=False)
    n_epochs = stream.epochs_until(n_visits)

    def fewest(n_epochs):
        counts = np.zeros(N_FEATURES, int)
        for batch in stream.batches(0, n_epochs * stream.batches_per_epoch):
            counts[slice(None) if batch.columns is None else batch.columns] += 1
        return counts.min()

    assert fewest(n_epochs) >= n_visits
    assert n_epochs == 1 or fewest(n_epochs - 1) < n_visits


def test_reads_are_counted_across_epochs(shared):
    source = open_source(shared[0])
    stream = BatchStream(source, BLOCK, RunMasks(source, 5, 0), 0, whole_rows=False)
    rows = source.records[1]  # 14 rows, four visits per epoch
    seen = [batch.columns for batch in stream.batches(0, 5 * stream.batches_per_epoch) if batch.rows[0] in rows]
    assert len(seen) == 20
    for start in range(0, 20, 5):
        np.testing.assert_array_equal(np.sort(np.concatenate(seen[start : start + 5])), np.arange(N_FEATURES))


def test_batches_that_divide_a_block_share_its_mask(shared):
    source = open_source(shared[0])
    stream = BatchStream(source, 2, RunMasks(source, 5, 0), 0, whole_rows=False)
    batches = list(stream.batches(0, stream.batches_per_epoch))
    np.testing.assert_array_equal(np.sort(np.concatenate([batch.rows for batch in batches])), np.arange(137))
    for block in (block for record in range(len(source.records)) for block in source.row_blocks(record)):
        mine = [batch for batch in batches if batch.rows[0] in block]
        assert all(np.array_equal(batch.columns, mine[0].columns) for batch in mine)


@pytest.mark.parametrize("batch_size", [BLOCK, BLOCK // 2, 3, 2 * BLOCK])
def test_a_batch_knows_its_share_of_the_bytes(shared, batch_size):
    source = open_source(shared[0])
    stream = BatchStream(source, batch_size, RunMasks(source, 5, 0), 0, whole_rows=False)
    shares = [batch.n_bytes for batch in stream.batches(0, stream.batches_per_epoch)]
    assert shares == [stream.batch(number).n_bytes for number in range(stream.batches_per_epoch)]
    assert shares == [stream.n_bytes(number) for number in range(stream.batches_per_epoch)]


def test_a_batch_is_a_function_of_its_number(shared):
    source = open_source(shared[0])
    forwards = BatchStream(source, BLOCK, RunMasks(source, 5, 0), 0, whole_rows=False)
    expected = [forwards.batch(number) for number in range(2 * forwards.batches_per_epoch)]
    backwards = BatchStream(source, BLOCK, RunMasks(source, 5, 0), 0, whole_rows=False)
    for number in reversed(range(len(expected))):
        batch = backwards.batch(number)
        np.testing.assert_array_equal(batch.rows, expected[number].rows)
        np.testing.assert_array_equal(batch.columns, expected[number].columns)
        np.testing.assert_array_equal(batch.values, expected[number].values)


def test_a_reduction_beyond_the_tiles_is_refused(shared):
    with pytest.raises(ParameterError, match="reduction must be at most 106, got 200"):
        MaskedDictionaryLearning(3, reduction=200).fit(shared[0])


@pytest.mark.parametrize("reduction", [1, 5])
def test_an_estimator_learns_from_a_store(shared, reduction):
    path, array = shared
    learner = MaskedDictionaryLearning(3, reduction=reduction, batch_size=BLOCK, n_epochs=2, random_state=0).fit(path)
    assert learner.statistics_ == "masked"
    np.testing.assert_array_equal(learner.transform(path), learner.transform(array))
    again = MaskedDictionaryLearning(3, reduction=reduction, batch_size=BLOCK, n_epochs=2, random_state=0).fit(path)
    np.testing.assert_array_equal(again.components_, learner.components_)
