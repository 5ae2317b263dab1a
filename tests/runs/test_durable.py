"""Crash-safe files, and symbolic links in run directories."""

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from terafactor import (
    ArraySource,
    CheckpointPolicy,
    MaskedDictionaryLearning,
    load_model,
    open_source,
    pack,
    report_runs,
    train,
)
from terafactor._durable import _warn_once, make_durable, write_durably
from terafactor.data.output import new_matrix, open_matrix
from terafactor.errors import ParameterError, StorageError, TerafactorError
from terafactor.runs import RunDirectory
from terafactor.runs.metrics import Metrics


@pytest.fixture(name="flushed")
def macos(monkeypatch):
    """Let the system be one whose fsync leaves the content in the cache of the drive; return what was flushed."""
    flushed = []
    system = types.SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda descriptor, command: flushed.append(command))
    monkeypatch.setitem(sys.modules, "fcntl", system)
    return flushed


def test_the_cache_of_the_drive_is_flushed_where_fsync_does_not(tmp_path, monkeypatch, flushed):
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("fsync is not enough"))
    write_durably(tmp_path / "file", b"content")
    make_durable(tmp_path / "file")
    Metrics(tmp_path / "file").make_durable()
    assert flushed == [51] * 4


def test_a_drive_that_cannot_flush_its_cache_is_synced(tmp_path, monkeypatch, flushed):
    def refuse(descriptor, command):
        raise OSError

    monkeypatch.setattr(sys.modules["fcntl"], "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", flushed.append)
    (tmp_path / "file").write_bytes(b"content")
    make_durable(tmp_path / "file")
    assert len(flushed) == 1


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse to follow links")
class TestLinks:
    """Symbolic links planted in a run directory, which would make a run write to files of their maker's choice."""

    FILES = (
        "log.txt", "metrics.jsonl", ".lock", "report.html", "config.toml", ".report.html.unfinished",
        ".config.toml.unfinished", ".metrics.jsonl.unfinished", "checkpoints/step-000000003",
        "checkpoints/step-000000009", "checkpoints/.step-000000009.unfinished", ".model.unfinished",
    )  # fmt: skip
    FOLDERS = (
        "checkpoints", "checkpoints/step-000000006", "checkpoints/step-000000009", "model", ".model.replaced",
        ".model.unfinished", "checkpoints/.step-000000009.unfinished", "checkpoints/.step-000000003.removed",
    )  # fmt: skip

    @pytest.fixture
    def elsewhere(self, tmp_path):
        folder = tmp_path / "elsewhere"
        (folder / "step-000000001").mkdir(parents=True)
        (folder / "file.txt").write_text("mine")
        (folder / "step-000000001" / ".notes.unfinished").write_text("mine, too")
        return folder

    @pytest.mark.parametrize("command", ["train", "resume", "report"])
    @pytest.mark.parametrize("name", [*FILES, *(f"{name}/" for name in FOLDERS)])
    def test_are_not_followed(self, X, tmp_path, elsewhere, command, name):
        run = tmp_path / "run"
        if command != "train":
            callbacks = [die_at(7)] if command == "resume" else []
            with contextlib.suppress(KilledError):
                train(estimator(), X, run, checkpoints=CheckpointPolicy(None, 3), callbacks=callbacks)
        self.plant(run / name.rstrip("/"), elsewhere if name.endswith("/") else elsewhere / "file.txt")
        before = contents(elsewhere)
        with contextlib.suppress(TerafactorError):
            if command == "report":
                report_runs(run)
            else:
                train(estimator(), X, run, resume=command == "resume", checkpoints=CheckpointPolicy(None, 3))
        assert contents(elsewhere) == before

    def plant(self, path, target):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def test_at_the_path_of_a_model_or_an_export_are_replaced(self, X, tmp_path, elsewhere):
        model = estimator().fit(X)
        model.save(elsewhere / "model")
        before = contents(elsewhere)
        for name in ("model", ".model.unfinished", ".model.replaced"):
            (tmp_path / name).symlink_to(elsewhere / "model")
        for name in ("model.npz", ".model.unfinished.npz", ".model.npz.unfinished"):
            (tmp_path / name).symlink_to(elsewhere / "file.txt")
        model.save(tmp_path / "model", overwrite=True)
        model.export(tmp_path / "model.npz", overwrite=True)
        assert contents(elsewhere) == before
        assert not (tmp_path / "model").is_symlink()
        assert "components_" in np.load(tmp_path / "model.npz")

    def test_of_the_checkpoints_folder_are_named(self, X, tmp_path, elsewhere):
        self.plant(tmp_path / "run" / "checkpoints", elsewhere)
        with pytest.raises(StorageError, match=r"run/checkpoints: it is a symbolic link"):
            train(estimator(), X, tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("with_reader", [False, True])
@pytest.mark.parametrize("name", ["log.txt", ".lock"])
def test_a_pipe_in_a_run_directory_is_named(X, tmp_path, name, with_reader):
    """Opening a pipe to write would wait for a reader; with one, the run would write to another process."""
    run = tmp_path / "run"
    run.mkdir()
    os.mkfifo(run / name)
    with contextlib.ExitStack() as stack:
        if with_reader:
            stack.callback(os.close, os.open(run / name, os.O_RDONLY | os.O_NONBLOCK))
        with pytest.raises(StorageError, match=re.escape(f"cannot write {run / name}: ")):
            train(estimator(), X, run)


class KilledError(Exception):
    pass


def die_at(step):
    def callback(snapshot):
        if snapshot.step == step:
            raise KilledError

    return callback


def estimator(**parameters):
    return MaskedDictionaryLearning(3, n_epochs=1, batch_size=10, random_state=0, **parameters)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestTemporaryFiles:
    def test_of_a_killed_process_are_removed(self, X, tmp_path):
        for name in (".report.html.0123456789ab.unfinished", ".model.replaced", "checkpoints/.step-000000003.removed"):
            (tmp_path / "run" / name).mkdir(parents=True)
            (tmp_path / "run" / name / "part").write_text("half of it")
        train(estimator(), X, tmp_path / "run")
        train(estimator(), X, tmp_path / "run", resume=True)
        assert [path.name for path in (tmp_path / "run").rglob(".*") if path.name != ".lock"] == []

    def test_of_a_failed_write_are_removed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(StorageError, match="no space"):
            write_durably(tmp_path / "file", b"content")
        assert list(tmp_path.iterdir()) == []


class TestTwoProcesses:
    """Two writers of one path: each writes all of it, and the last one wins."""

    def test_save_one_model(self, X, tmp_path):
        models = [estimator(alpha=alpha).fit(X) for alpha in (0.1, 0.2)]
        models[0].save(tmp_path / "model")

        def save_often(model):
            for _ in range(25):
                model.save(tmp_path / "model", overwrite=True)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(save_often, models))
        found = load_model(tmp_path / "model").components_
        assert any(np.array_equal(found, model.components_) for model in models)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_load_a_model_while_it_is_saved(self, X, tmp_path):
        models = [estimator(alpha=alpha).fit(X) for alpha in (0.1, 0.2)]
        models[0].save(tmp_path / "model")

        def save_often():
            for index in range(100):
                models[index % 2].save(tmp_path / "model", overwrite=True)

        with ThreadPoolExecutor(1) as pool:
            saved, loaded = pool.submit(save_often), []
            while not saved.done():
                loaded.append(load_model(tmp_path / "model"))
            saved.result()
        assert all(model.alpha in (0.1, 0.2) for model in loaded)

    def test_a_model_is_never_absent_while_it_is_replaced(self, X, tmp_path):
        model = estimator().fit(X)
        model.save(tmp_path / "model")
        rename, seen = os.rename, []

        def look(*paths):
            rename(*paths)
            seen.append(load_model(tmp_path / "model").n_steps_)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", look)
            model.save(tmp_path / "model", overwrite=True)
        assert seen == [model.n_steps_] * 2

    @pytest.mark.parametrize("name", ["codes.npy", "codes.zarr"])
    def test_write_one_matrix(self, tmp_path, name):
        rows, dtype = np.ones((4, 3), np.float32), np.dtype(np.float32)
        first = new_matrix(tmp_path / name, (4, 3), dtype)
        write = first.__enter__()
        write(rows[:2])
        with new_matrix(tmp_path / name, (4, 3), dtype) as write_other:
            write_other(2 * rows)
        write(rows[2:])
        with pytest.raises(ParameterError, match=f"{name} exists"):
            first.__exit__(None, None, None)
        np.testing.assert_array_equal(open_matrix(tmp_path / name)[:], 2 * rows)
        assert [path.name for path in tmp_path.iterdir()] == [name]


class TestClusterDisk:
    """File systems without locks, or on which folders cannot be flushed."""

    @pytest.fixture(params=[errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK], ids=errno.errorcode.get)
    def number(self, request):
        _warn_once.cache_clear()
        yield request.param
        _warn_once.cache_clear()

    def test_runs_complete_and_resume_with_one_warning_each(self, X, tmp_path, monkeypatch, caplog, number):
        without_locks_and_folder_sync(monkeypatch, number)
        with caplog.at_level(logging.WARNING, "terafactor"):
            with pytest.raises(KilledError):
                train(estimator(), X, tmp_path / "run", checkpoints=CheckpointPolicy(None, 2), callbacks=[die_at(5)])
            resumed = train(estimator(), X, tmp_path / "run", resume=True)
            assert not RunDirectory(tmp_path / "run").in_use
        assert caplog.text.count("has no locks") == caplog.text.count("cannot flush folders") == 1
        np.testing.assert_array_equal(resumed.components_, load_model(tmp_path / "run").components_)

    def test_stores_are_packed(self, X, tmp_path, monkeypatch, number):
        without_locks_and_folder_sync(monkeypatch, number)
        pack(ArraySource(X), tmp_path / "store")
        assert open_source(tmp_path / "store").shape == X.shape

    def test_an_error_of_the_disk_is_still_an_error(self, tmp_path, monkeypatch):
        without_locks_and_folder_sync(monkeypatch, errno.EIO)
        with pytest.raises(StorageError, match="Input/output error"):
            write_durably(tmp_path / "file", b"content")
        with pytest.raises(StorageError, match=r"cannot lock .*Input/output error"), RunDirectory(tmp_path).locked():
            pass


def without_locks_and_folder_sync(monkeypatch, number):
    """Let flock, and fsync of folders, fail with an error number."""
    import fcntl

    fsync = os.fsync

    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "fsync", lambda file: refuse() if stat.S_ISDIR(os.fstat(file).st_mode) else fsync(file))
