"""Packing: what is written, and that an interrupted pack resumes."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from terafactor import ArraySource, open_source, pack
from terafactor.data.packed.reader import PackedSource
from terafactor.data.packed.records import RecordWriter, write_records
from terafactor.data.packed.writer import unfinished_store
from terafactor.data.sources.raw import RawSource
from terafactor.errors import DataError, ParameterError
from terafactor.testing import CountingSource

N_FEATURES, BLOCK = 530, 4


def values(n_rows=137, dtype=np.float32):
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES)).astype(dtype)


def test_few_records_are_cut_so_that_every_order_of_features_is_used(tmp_path):
    pack(values(), tmp_path / "store", block_rows=BLOCK)
    source = open_source(tmp_path / "store")
    assert len(source.records) >= 16
    assert all(len(rows) % BLOCK == 0 for rows in source.records[:-1])


def test_the_bytes_depend_on_data_and_parameters_only(tmp_path, content_of):
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


def test_nan_is_refused_with_what_can_be_done_about_it(tmp_path):
    bad = values()
    bad[130, 3] = np.nan
    with pytest.raises(DataError, match=r"a packed store holds no missing values: .* learn from the matrix as it is"):
        pack(NotInMemory(bad), tmp_path / "store", block_rows=BLOCK)


def test_what_another_call_left_is_not_continued(tmp_path):
    bad = values()
    bad[130, 3] = np.nan
    with pytest.raises(DataError, match="contains NaN at row 130, feature 3"):
        pack(NotInMemory(bad), tmp_path / "store", block_rows=BLOCK)
    assert not (tmp_path / "store").exists()
    with pytest.raises(DataError, match=r"store.partial was left by packing other data"):
        pack(values(), tmp_path / "store", block_rows=2 * BLOCK)


def interrupted_pack(path):
    """Leave an unfinished store of :func:`values`, of which some records are finished."""

    def stop(n_rows):
        if (path.with_name(f"{path.name}.partial") / "records" / "000000").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(NotInMemory(values()), path, block_rows=BLOCK, n_threads=1, progress=stop)
    return path.with_name(f"{path.name}.partial")


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"null", b"[]", b"[1]", b"{}", b'{"records": 1}', b'{"records": [1]}', b"[" * 10**5]
)
def test_damaged_documents_of_an_unfinished_store_are_refused(tmp_path, content):
    partial = interrupted_pack(tmp_path / "store")
    (partial / "plan.json").write_bytes(content)
    with pytest.raises(DataError, match=r"store.partial was left by packing other data"):
        pack(NotInMemory(values()), tmp_path / "store", block_rows=BLOCK)
    shutil.rmtree(partial)
    finished = next(interrupted_pack(tmp_path / "store").glob("records/*/zarr.json"))
    finished.write_bytes(content)
    with pytest.raises(DataError, match=f"{finished} is damaged"):
        pack(NotInMemory(values()), tmp_path / "store", block_rows=BLOCK)


@pytest.mark.parametrize("name", ["", "records", "permutations", "permutations/c", "unfinished", "unfinished/0"])
def test_links_instead_of_an_unfinished_store_are_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "store.partial" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=f"{link} is a symbolic link"):
        pack(values(), tmp_path / "store", block_rows=BLOCK)
    assert list((tmp_path / "elsewhere").iterdir()) == []


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
        self.in_memory = self.checked = False


def test_integers_are_within_half_a_step_and_the_error_is_reported(tmp_path, records_of):
    array = values() * np.logspace(-6, 6, N_FEATURES, dtype=np.float32)
    array[:, 7] = 0
    pack(records_of(array, 40, 50), tmp_path / "store", block_rows=BLOCK, dtype="int16")
    source = PackedSource(tmp_path / "store")
    assert source.dtype == np.float32
    found = source.read(np.arange(len(array)))
    errors = (found - array).astype(np.float64)
    for rows in (slice(0, 40), slice(40, 90), slice(90, 137)):
        steps = np.abs(array[rows]).max(axis=0) / 32767
        assert np.all(np.abs(errors[rows]) <= 0.505 * steps)  # and float32 rounds the product
    assert not found[:, 7].any()
    for rows, statistics in zip(source.records, source.statistics, strict=True):
        mine = errors[rows.start : rows.stop]
        np.testing.assert_allclose(statistics["rms_error"], np.sqrt((mine**2).mean()), rtol=1e-4)
        np.testing.assert_allclose(statistics["max_error"], np.abs(mine).max(), rtol=1e-4)


def test_integers_take_half_the_space(tmp_path):
    for dtype in ("float32", "int16"):
        pack(values(160), tmp_path / dtype, block_rows=40, dtype=dtype)
    sizes = {
        dtype: sum(path.stat().st_size for path in (tmp_path / dtype).rglob("c/*/0") if "perm" not in str(path))
        for dtype in ("float32", "int16")
    }
    assert sizes["int16"] <= 0.57 * sizes["float32"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_features_of_each_record_are_standardized(tmp_path, records_of, dtype):
    array = values(dtype=np.float64) * 3 + 1000
    array[:50, 9] = 1000.1
    lengths = (50, 60, 27)
    pack(records_of(array, *lengths), tmp_path / "store", block_rows=BLOCK, dtype=dtype, standardize=True)
    found = open_source(tmp_path / "store").read(np.arange(len(array)))
    for part, rows in zip(np.split(found, [50, 110]), np.split(array, [50, 110]), strict=True):
        spread = rows.std(axis=0)
        spread[np.ptp(rows, axis=0) == 0] = np.inf
        tolerance = 2e-4 if dtype == "int16" else 2e-6 if dtype == "float32" else 1e-10
        np.testing.assert_allclose(part, (rows - rows.mean(axis=0)) / spread, atol=tolerance)
    assert not found[:50, 9].any()


def test_numbers_beyond_the_type_are_refused(tmp_path):
    array = values(dtype=np.float64)
    array[3, 2] = 1e60
    for dtype in ("float32", "int16"):
        with pytest.raises(DataError, match="beyond float32: pack it as float64"):
            pack(array, tmp_path / dtype, dtype=dtype)


def test_rows_that_the_source_keeps_together_are_read_together(tmp_path):
    class HighBlocks(CountingSource):
        def row_blocks(self, record):
            return [range(100), range(100, 137)]

    source = HighBlocks(ArraySource(values()))
    pack(source, tmp_path / "store", block_rows=BLOCK, n_threads=1)
    pieces, fingerprint = 16, 16
    assert source.n_reads <= pieces + fingerprint
    np.testing.assert_array_equal(open_source(tmp_path / "store").read(np.arange(137)), values())


@pytest.fixture
def other_system(monkeypatch):
    """A system without reads at a position, advice, and folders that can be opened, with other locks: like Windows."""
    for name in ("preadv", "pread", "posix_fadvise"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    locks = types.SimpleNamespace(LK_NBLCK=2, locking=lambda descriptor, mode, n_bytes: None)
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    opens = os.open

    def open_files_only(path, *arguments, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_files_only)


def test_it_works_where_the_system_can_do_less(tmp_path, other_system, packed_array):
    np.save(tmp_path / "rows.npy", packed_array)
    assert isinstance(open_source(tmp_path / "rows.npy"), RawSource)
    pack(tmp_path / "rows.npy", tmp_path / "store", block_rows=BLOCK, dtype="float32")
    source = open_source(tmp_path / "store")
    rows, columns = np.array([3, 130, 4]), np.array([500, 1, 2])
    np.testing.assert_array_equal(source.read(rows, columns), packed_array[np.ix_(rows, columns)])
    np.testing.assert_array_equal(source.read(np.arange(137)), packed_array)


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced, renamed = set(), []

    def record(descriptor):
        synced.add(os.fstat(descriptor).st_ino)

    def rename(old, new, rename=os.rename):
        renamed.append(new)
        assert {path.stat().st_ino for path in [old, *old.rglob("*")]} <= synced
        rename(old, new)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "rename", rename)
    pack(values(16), tmp_path / "store", block_rows=BLOCK)
    assert [path.name for path in renamed][-1] == "store"
    assert len(renamed) == 5


def test_thirty_kills_lose_nothing(tmp_path, content_of):
    """Packing is killed at any moment, again and again; what is left can always be finished, and is the same."""
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("needs SIGKILL")
    array = np.random.default_rng(0).standard_normal((64, 90)).astype(np.float32)
    options = {"block_rows": 2, "dtype": "int16", "standardize": True}
    np.save(tmp_path / "rows.npy", array)
    pack(tmp_path / "rows.npy", tmp_path / "whole", **options)
    whole = content_of(tmp_path / "whole")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["terafactor.data.packed.writer"])
    random, n_kills, n_resumed, store = np.random.default_rng(0), 0, 0, tmp_path / "store"
    while n_kills < 30 or n_resumed < 10:  # what was resumed is killed too
        if store.exists():
            assert content_of(store) == whole
            shutil.rmtree(store)
        resumed = (tmp_path / "store.partial").exists()
        enough = n_files(tmp_path / "store.partial") + random.integers(1, 20)
        process = processes.Process(target=pack, args=(tmp_path / "rows.npy", store), kwargs=options)
        process.start()
        while process.is_alive() and n_files(tmp_path / "store.partial") < enough:
            time.sleep(0.001)
        process.kill()
        process.join()
        if process.exitcode == 0:
            continue
        assert process.exitcode == -signal.SIGKILL
        n_kills, n_resumed = n_kills + 1, n_resumed + resumed
        if not store.exists():
            shutil.copytree(tmp_path / "store.partial", tmp_path / "copy.partial")
            pack(tmp_path / "rows.npy", tmp_path / "copy", **options)
            assert content_of(tmp_path / "copy") == whole
            shutil.rmtree(tmp_path / "copy")


def n_files(folder):
    """Return how many files there are in a folder that another process changes."""
    return sum(len(names) for _, _, names in os.walk(folder))


def test_finished_records_are_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("terafactor.data.fingerprint.MAX_WHOLE_VALUES", 0)  # as if the matrix were large
    done = []

    def stop(n_rows):
        done.append(n_rows)
        if sum(done) >= 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(values(), tmp_path / "store", block_rows=BLOCK, n_threads=1, progress=stop)
    finished = [json.loads(path.read_bytes())["shape"][0] for path in tmp_path.rglob("records/0*/zarr.json")]
    assert 60 <= sum(finished) <= 80
    reads = CountingSource(ArraySource(values()))
    pack(reads, tmp_path / "store", block_rows=BLOCK)
    assert reads.n_values == (137 - sum(finished) + 16) * N_FEATURES, "16 rows are for the fingerprint"


def test_two_processes_do_not_write_one_store_on_another_system(tmp_path, other_system, monkeypatch):
    def refuse(descriptor, mode, n_bytes):
        raise PermissionError

    monkeypatch.setattr(sys.modules["msvcrt"], "locking", refuse)
    with pytest.raises(DataError, match="written by another process"):
        pack(values(), tmp_path / "store")


def test_two_processes_do_not_write_one_store(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "store.partial").mkdir()
    descriptor = os.open(tmp_path / "store.partial", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DataError, match="written by another process"):
        pack(values(), tmp_path / "store")
    os.close(descriptor)


OPTIONS = {"block_rows": 2, "dtype": "int16", "standardize": True}


WORKER = """
import json, sys
from terafactor.data import open_description
from terafactor.data.packed.records import write_records
task = json.load(sys.stdin)
write_records(open_description(task["source"]), task["store"], task["numbers"])
"""


def test_processes_write_the_records_of_a_store(tmp_path, content_of):
    array = np.random.default_rng(0).standard_normal((64, 90)).astype(np.float32)
    np.save(tmp_path / "rows.npy", array)
    pack(tmp_path / "rows.npy", tmp_path / "whole", **OPTIONS)
    source = open_source(tmp_path / "rows.npy")
    with unfinished_store(source, tmp_path / "store", **OPTIONS) as (store, numbers):
        workers = []
        for chosen in (numbers[:10], numbers[5:]):  # some records are written by both
            task = {"source": source.describe(), "store": str(store), "numbers": list(chosen)}
            workers.append(subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, text=True))
            workers[-1].stdin.write(json.dumps(task))
            workers[-1].stdin.close()
        assert [worker.wait() for worker in workers] == [0, 0]
    assert content_of(tmp_path / "store") == content_of(tmp_path / "whole")


def test_an_interrupted_store_keeps_its_records_for_any_writer(tmp_path, content_of):
    source = open_source(np.random.default_rng(0).standard_normal((64, 90)))
    with (
        pytest.raises(IndexError),
        unfinished_store(source, tmp_path / "store", **OPTIONS) as (store, numbers),
    ):
        write_records(source, store, [*numbers[5:], 10**6])  # fails at the last one
    kept = {path: path.stat().st_mtime_ns for path in (store / "records").glob("*/zarr.json")}
    assert len(kept) == len(numbers) - 5
    pack(source, tmp_path / "store", **OPTIONS)
    for path, time_written in kept.items():
        assert (tmp_path / "store" / path.relative_to(store)).stat().st_mtime_ns == time_written
    pack(source, tmp_path / "whole", **OPTIONS)
    assert content_of(tmp_path / "store") == content_of(tmp_path / "whole")


def test_two_writers_of_a_record_agree(tmp_path, content_of):
    """A worker that was given up may still be writing when another one has finished its record."""
    source = open_source(np.random.default_rng(0).standard_normal((64, 90)))
    pack(source, tmp_path / "whole", **OPTIONS)
    with unfinished_store(source, tmp_path / "store", **OPTIONS) as (store, numbers):
        write_records(source, store, numbers[1:])
        slow = RecordWriter(source, store)
        write_shards = slow._write_shards

        def overtaken(folder, number, rows):
            statistics = write_shards(folder, number, rows)
            write_records(source, store, [number])
            return statistics

        slow._write_shards = overtaken
        slow.write(0)
    assert content_of(tmp_path / "store") == content_of(tmp_path / "whole")


def test_a_store_without_all_records_is_not_finished(tmp_path):
    source = open_source(np.random.default_rng(0).standard_normal((64, 90)))
    with (
        pytest.raises(DataError, match=r"000002.*zarr\.json"),
        unfinished_store(source, tmp_path / "store", block_rows=2) as (store, _),
    ):
        write_records(source, store, [0, 1])
    assert not (tmp_path / "store").exists()


def test_a_store_that_a_worker_does_not_see_is_named(tmp_path):
    with pytest.raises(DataError, match=r"store\.partial is not visible on host .*share"):
        write_records(open_source(np.eye(4)), tmp_path / "store.partial", [0])
