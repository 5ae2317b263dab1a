"""The packed store: what is read is what was packed, in one part in r, or an error."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, open_source, pack
from terafactor.data import BatchStream
from terafactor.data.joined import JoinedSource
from terafactor.data.masks import RunMasks, masks_of
from terafactor.data.packed import PackedSource
from terafactor.errors import DataError, ParameterError
from terafactor.testing import CountingSource, SourceContract

N_FEATURES, BLOCK = 530, 4


def values(n_rows=137, dtype=np.float32):
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES)).astype(dtype)


def records(array, *lengths):
    parts = np.split(array, np.cumsum(lengths))
    return JoinedSource([ArraySource(np.ascontiguousarray(part)) for part in parts if len(part)])


def content_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store of 20 records of 4 to 14 rows; not to be changed."""
    folder = tmp_path_factory.mktemp("packed")
    array = values()
    pack(records(array, *[4, 14] * 7, 3, 1), folder / "store", block_rows=BLOCK)
    return folder / "store", array


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
        pack(records(values(), *[7] * 18), tmp_path / "store", block_rows=3)
        return open_source(tmp_path / "store"), values()


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


def test_the_metadata_tell_what_was_packed(shared):
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


def test_few_records_are_cut_so_that_every_order_of_features_is_used(tmp_path):
    pack(values(), tmp_path / "store", block_rows=BLOCK)
    source = open_source(tmp_path / "store")
    assert len(source.records) >= 16
    assert all(len(rows) % BLOCK == 0 for rows in source.records[:-1])


def test_the_bytes_depend_on_data_and_parameters_only(tmp_path):
    for name, n_threads in (("a", 1), ("b", 3)):
        pack(values(), tmp_path / name, block_rows=BLOCK, n_threads=n_threads)
    assert content_of(tmp_path / "a") == content_of(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_it_converts_when_asked(tmp_path):
    pack(values(dtype=np.float64), tmp_path / "store", dtype=np.float32)
    source = open_source(tmp_path / "store")
    assert source.dtype == np.float32
    np.testing.assert_array_equal(source.read(np.arange(137)), values(dtype=np.float64).astype(np.float32))


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "store").mkdir()
    with pytest.raises(DataError, match="store exists"):
        pack(values(), tmp_path / "store")


def test_what_another_call_left_is_not_continued(tmp_path):
    bad = values()
    bad[130, 3] = np.nan
    with pytest.raises(DataError, match="contains NaN at row 130, feature 3"):
        pack(NotInMemory(bad), tmp_path / "store", block_rows=BLOCK)
    assert not (tmp_path / "store").exists()
    with pytest.raises(DataError, match=r"store.partial was left by packing other data"):
        pack(values(), tmp_path / "store", block_rows=2 * BLOCK)


@pytest.mark.parametrize("options", [{"block_rows": 0}, {"block_rows": 2.5}, {"dtype": np.int8}])
def test_options_that_cannot_work_are_refused(tmp_path, options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        pack(values(), tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


class NotInMemory(CountingSource):
    """Numbers that are not checked before they are read."""

    def __init__(self, array):
        source = ArraySource(np.zeros_like(array))
        source.array = array
        super().__init__(source)
        self.in_memory = False


def damage(path, random):
    """Flip a bit of a file, cut it short, or remove it."""
    content = bytearray(path.read_bytes())
    kind = random.integers(4)
    if kind <= 1:
        place = random.integers(8 * len(content))
        content[place // 8] ^= 1 << (place % 8)
        path.write_bytes(content)
    elif kind == 2:
        path.write_bytes(content[: random.integers(len(content))])
    else:
        path.unlink()


def test_no_damage_goes_unnoticed(shared, tmp_path):
    original, array = shared
    random = np.random.default_rng(0)
    shutil.copytree(original, tmp_path / "store")
    files = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    by_size = np.array([path.stat().st_size for path in files], float)
    for turn in range(200):
        # Half the time any file, half the time any byte.
        path = files[random.choice(len(files), p=None if turn % 2 else by_size / by_size.sum())]
        intact = path.read_bytes()
        damage(path, random)
        with pytest.raises(DataError):
            PackedSource(tmp_path / "store").read(np.arange(len(array)))
        path.write_bytes(intact)
    np.testing.assert_array_equal(open_source(tmp_path / "store").read(np.arange(len(array))), array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "block 1 of record 3 .*c/1/0 cannot be opened"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "block 1 of record 3 .*bytes where"),
        (lambda path: path.write_bytes(b"\x01" + path.read_bytes()[1:]), "block 1 of record 3 .*chunk 0 of .*checksum"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-40] + 40 * b"\xff"),
            "block 1 of record 3 .*list of its chunks",
        ),
    ],
    ids=["deleted", "truncated", "flipped", "missing chunk"],
)
def test_damage_is_named_by_record_and_chunk(shared, tmp_path, change, message):
    shutil.copytree(shared[0], tmp_path / "store")
    source = open_source(tmp_path / "store")
    change(tmp_path / "store" / "records" / "000003" / "c" / "1" / "0")
    rows = np.asarray(source.row_blocks(3)[1])
    source.read(np.asarray(source.row_blocks(3)[0]))
    with pytest.raises(DataError, match=message):
        source.read(rows)


PACKING = """
import sys
import numpy as np
from terafactor import pack
X = np.random.default_rng(0).standard_normal((137, 530)).astype(np.float32)
pack(X, sys.argv[1], block_rows=4, n_threads=2, progress=lambda rows: print(rows, flush=True))
"""


@pytest.mark.parametrize("lines", [1, 9, 20, 34])
def test_a_killed_packing_goes_on_and_ends_the_same(tmp_path, lines):
    pack(values(), tmp_path / "whole", block_rows=BLOCK)
    store = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", PACKING, str(store)], stdout=subprocess.PIPE)
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    done = len(list((tmp_path / "store.partial" / "records").glob("0*"))) if not store.exists() else None
    if done is not None:
        reads = CountingSource(ArraySource(values()))
        pack(reads, store, block_rows=BLOCK)
        assert reads.n_values <= (137 + 16 - done * BLOCK) * N_FEATURES, "finished records are not read again"
    assert content_of(store) == content_of(tmp_path / "whole")


def test_two_processes_do_not_write_one_store(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "store.partial").mkdir()
    descriptor = os.open(tmp_path / "store.partial", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DataError, match="written by another process"):
        pack(values(), tmp_path / "store")
    os.close(descriptor)


def bytes_read_by(source, stream, monkeypatch):
    """Return the bytes that one epoch takes from the system, and how many calls."""
    taken = []
    preadv = os.preadv

    def counting(descriptor, buffers, offset):
        taken.append(sum(len(buffer) for buffer in buffers))
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
        assert not np.array_equal(masks[0], masks[length])
        assert all(np.all(np.diff(mask) > 0) for mask in masks)


def test_visits_go_on_counting_in_the_next_epoch(shared):
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
