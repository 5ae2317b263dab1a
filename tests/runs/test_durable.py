"""Files that are on the disk when we say so."""

import os
import sys
import types

import pytest

from terafactor._durable import make_durable, write_durably
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
