"""Crash-safe files, and symbolic links in run directories."""

import contextlib
import os
import sys
import types

import pytest

from terafactor import MaskedDictionaryLearning, train
from terafactor._durable import make_durable, write_durably
from terafactor.errors import StorageError, TerafactorError
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
    """Links planted in a run directory, which would make us write where their maker wants."""

    @pytest.fixture
    def elsewhere(self, tmp_path):
        target = tmp_path / "elsewhere.txt"
        target.write_text("mine")
        return target

    @pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", "lock"])
    def test_are_not_appended_through(self, X, tmp_path, elsewhere, name):
        run = tmp_path / "run"
        run.mkdir()
        planted = RunDirectory(run)
        path = {"log.txt": planted.log_file, "metrics.jsonl": planted.metrics_file, "lock": planted.lock_file}[name]
        path.symlink_to(elsewhere)
        with contextlib.suppress(StorageError):  # or the link was replaced by a file
            train(MaskedDictionaryLearning(3, n_epochs=1, random_state=0), X, run)
        assert elsewhere.read_text() == "mine"

    @pytest.mark.parametrize("name", ["report.html", "config.toml"])
    def test_are_replaced_and_not_written_through(self, X, tmp_path, elsewhere, name):
        run = tmp_path / "run"
        run.mkdir()
        for planted in (name, f".{name}.unfinished"):
            (run / planted).symlink_to(elsewhere)
        with contextlib.suppress(TerafactorError):
            train(MaskedDictionaryLearning(3, n_epochs=1, random_state=0), X, run)
        assert elsewhere.read_text() == "mine"

    def test_what_a_killed_process_left_is_removed(self, X, tmp_path):
        (tmp_path / "run").mkdir()
        left = tmp_path / "run" / ".report.html.0123456789ab.unfinished"
        left.write_text("half of it")
        train(MaskedDictionaryLearning(3, n_epochs=1, random_state=0), X, tmp_path / "run")
        assert not left.exists()

    def test_what_fails_leaves_no_temporary_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(StorageError, match="no space"):
            write_durably(tmp_path / "file", b"content")
        assert list(tmp_path.iterdir()) == []
