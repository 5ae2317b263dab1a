"""An error at any file operation of a run: it names the file, and an older checkpoint always loads."""

import builtins
import contextlib
import errno
import itertools
import os
import resource
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from scipy import sparse
from tests.runs.test_durable import without_locks_and_folder_sync
from tests.runs.test_train import files

from terafactor import CheckpointPolicy, MaskedDictionaryLearning, MatrixCompletion, pack, train
from terafactor.errors import DataError, StorageError
from terafactor.runs import RunDirectory
from terafactor.runs.checkpoint import checkpoints, newest

POLICY = CheckpointPolicy(seconds=None, steps=2)
KINDS = {"no space": errno.ENOSPC, "disk error": errno.EIO, "read-only": errno.EROFS}


def estimator():
    return MaskedDictionaryLearning(2, batch_size=20, reduction=2, n_epochs=1, random_state=0, n_threads=1)


def ratings_estimator():
    return MatrixCompletion(2, batch_size=20, n_epochs=1, random_state=0, n_threads=1)


class FailingDisk:
    """Counts the file operations below a folder, and lets one of them fail."""

    def __init__(self, folder: Path, fails_at: int | None = None, number: int = errno.EIO, *, short: bool = False):
        self.folder, self.fails_at, self.number, self.short = str(folder), fails_at, number, short
        self.count = 0

    def check(self, *places) -> None:
        if any(self.folder in os.fspath(place) for place in places if isinstance(place, str | os.PathLike)):
            self.count += 1
            if self.count - 1 == self.fails_at:
                raise OSError(self.number, os.strerror(self.number))  # like most, it does not name the file

    def guard(self, function):
        def guarded(*arguments, **options):
            with contextlib.suppress(OSError) if options.get("ignore_errors") else contextlib.nullcontext():
                self.check(*arguments)
            return function(*arguments, **options)

        return guarded

    def open(self, place, mode="r", *arguments, **options):
        self.check(place)
        file = self._open(place, mode, *arguments, **options)
        return file if mode.startswith("r") else FailingFile(file, place, self)

    def fsync(self, descriptor):
        self.check(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._fsync(descriptor)

    @contextlib.contextmanager
    def installed(self, *, all_calls: bool = False):
        with pytest.MonkeyPatch.context() as patch:
            if all_calls:
                self._fsync = os.fsync
                patch.setattr(os, "fsync", self.fsync)
                for name in ("listdir", "scandir", "stat", "lstat", "unlink", "rmdir", "mkdir"):
                    patch.setattr(os, name, self.guard(getattr(os, name)))
            self._open = builtins.open
            patch.setattr(builtins, "open", self.open)
            for name in ("open", "rename", "replace"):
                patch.setattr(os, name, self.guard(getattr(os, name)))
            for name in ("mkdir", "rename", "write_bytes", "read_bytes"):
                patch.setattr(Path, name, self.guard(getattr(Path, name)))
            patch.setattr(shutil, "rmtree", self.guard(shutil.rmtree))
            save = safetensors.numpy.save_file
            patch.setattr(
                safetensors.numpy, "save_file", lambda arrays, place: (self.check(place), save(arrays, place))
            )
            yield self


class FailingFile:
    """A file whose every write may fail, after half of the bytes when short."""

    def __init__(self, file, place, disk):
        self.file, self.place, self.disk = file, place, disk

    def write(self, content):
        try:
            self.disk.check(self.place)
        except OSError:
            if self.disk.short:
                self.file.write(content[: len(content) // 2])
                self.file.flush()
            raise
        return self.file.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


X = np.random.default_rng(0).standard_normal((100, 8))


RATINGS = sparse.csr_array(np.round(4 + X))


def work_on_run(make, rows, folder):
    """Start a run, or resume it."""
    train(make(), rows, folder, resume=RunDirectory(folder).is_run, checkpoints=POLICY)


def work_on_store(folder):
    """Pack, or complete an unfinished store."""
    if not folder.exists():
        pack(X[:40], folder, block_rows=20, dtype="int16", n_threads=1)


def content_of(folder):
    """Return what each file of a store holds."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WORK = {
    "dictionary": (partial(work_on_run, estimator, X), files),
    "ratings": (partial(work_on_run, ratings_estimator, RATINGS), files),
    "store": (work_on_store, content_of),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(estimator(), X, folder, checkpoints=POLICY)
    return X, files(folder)


@pytest.mark.parametrize("kind", WORK)
def test_an_error_at_every_file_operation(tmp_path, kind):
    work, content = WORK[kind]
    with FailingDisk(tmp_path / "run").installed() as disk:
        work(tmp_path / "run")
    expected = content(tmp_path / "run")
    assert disk.count > 40
    kinds = itertools.cycle([(number, short) for number in KINDS.values() for short in (False, True)])
    reported = 0
    every = 1 if kind == "dictionary" or "TERAFACTOR_FUZZ" in os.environ else 5
    for place, (number, short) in zip(range(0, disk.count, every), kinds, strict=False):
        folder = tmp_path / f"run{place}"
        with FailingDisk(folder, place, number, short=short).installed():
            error = error_of(work, folder)
        if error is not None:
            reported += 1
            assert isinstance(error, StorageError | DataError), (place, error)
            assert str(folder) in str(error), (place, error)
        if checkpoints(folder / "checkpoints"):
            assert newest(folder / "checkpoints") is not None
        work(folder)
        assert content(folder) == expected
    assert reported > 0.8 * disk.count / every


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs the names of open files")
def test_an_error_at_system_calls_on_a_disk_without_locks_and_folder_sync(undisturbed, tmp_path, monkeypatch):
    X, expected = undisturbed
    without_locks_and_folder_sync(monkeypatch, errno.EINVAL)
    with FailingDisk(tmp_path / "run").installed(all_calls=True) as disk:
        train(estimator(), X, tmp_path / "run", checkpoints=POLICY)
    assert files(tmp_path / "run") == expected
    assert disk.count > 150
    for place in range(0, disk.count, 1 if "TERAFACTOR_FUZZ" in os.environ else 8):
        folder = tmp_path / f"run{place}"
        with FailingDisk(folder, place).installed(all_calls=True):
            error = error_of(train, estimator(), X, folder, checkpoints=POLICY)
        assert error is None or (isinstance(error, StorageError) and str(folder) in str(error)), (place, error)
        train(estimator(), X, folder, resume=RunDirectory(folder).is_run, checkpoints=POLICY)
        assert files(folder) == expected


def error_of(function, *arguments, **options):
    """Call a function, and return the error that it ends with."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return error
    return None


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
@pytest.mark.parametrize("limit", [0, 10, 300, 600, 1000])
def test_a_file_that_cannot_grow(undisturbed, tmp_path, limit):
    """The system itself refuses, also to what writes the arrays: as a full disk does in the middle of a file."""
    X, expected = undisturbed
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(StorageError, match=str(tmp_path)):
            train(estimator(), X, tmp_path / "run", checkpoints=POLICY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    train(estimator(), X, tmp_path / "run", resume=RunDirectory(tmp_path / "run").is_run, checkpoints=POLICY)
    assert files(tmp_path / "run") == expected
