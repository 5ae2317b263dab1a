"""Stores and sources that several tests of packing share."""

import os

import numpy as np
import pytest

from terafactor import ArraySource, pack
from terafactor.data.views.joined import JoinedSource


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Let files stay in the cache of the system: only a power failure would show the difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def packed_array():
    """Rows (137, 530) in float32; not to be changed."""
    return np.random.default_rng(0).standard_normal((137, 530)).astype(np.float32)


@pytest.fixture(scope="session")
def records_of():
    """A function that cuts an array into records of given lengths."""

    def cut(array, *lengths):
        parts = np.split(array, np.cumsum(lengths))
        return JoinedSource([ArraySource(np.ascontiguousarray(part)) for part in parts if len(part)])

    return cut


@pytest.fixture(scope="session")
def shared(tmp_path_factory, packed_array, records_of):
    """A store of 17 records of 1 to 14 rows in blocks of 4, and what it holds; not to be changed."""
    folder = tmp_path_factory.mktemp("packed")
    pack(records_of(packed_array, *[4, 14] * 7, 3, 1), folder / "store", block_rows=4)
    return folder / "store", packed_array


@pytest.fixture(scope="session")
def content_of():
    """A function that reads all files of a folder."""

    def read(folder):
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return read
