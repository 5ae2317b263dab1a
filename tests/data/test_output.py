"""Matrices written row by row."""

import contextlib
import errno

import numpy as np
import pytest

from terafactor.data import output
from terafactor.data.output import new_matrix, open_matrix
from terafactor.errors import ParameterError, StorageError


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_holds_what_was_written(tmp_path, suffix, dtype):
    values = np.random.default_rng(0).standard_normal((37, 5)).astype(dtype)
    out = tmp_path / "deep" / f"codes{suffix}"
    with new_matrix(out, values.shape, values.dtype) as write:
        for part in np.array_split(values, 4):
            assert not out.exists()
            write(part)
    found = open_matrix(out)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[:], values)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_what_fails_leaves_nothing(tmp_path, suffix):
    def write_half(out):
        with new_matrix(out, (4, 2), np.dtype("f4")) as write:
            write(np.ones((2, 2), np.float32))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_half(tmp_path / f"a{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_other_names_and_files_that_exist_are_refused(tmp_path):
    (tmp_path / "a.npy").write_text("mine")
    for name, message in (("a.npy", "exists, and is not overwritten"), ("a.csv", "end in .npy or .zarr, got .*a.csv")):
        with pytest.raises(ParameterError, match=message), new_matrix(tmp_path / name, (4, 2), np.dtype("f4")):
            pass
    assert (tmp_path / "a.npy").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_a_disk_that_is_full_when_the_file_is_closed_is_named(tmp_path, monkeypatch, suffix):
    real = output.WRITERS[suffix]

    @contextlib.contextmanager
    def full(*arguments):
        with real(*arguments) as write:
            yield write
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(output.WRITERS, suffix, full)
    out = tmp_path / f"codes{suffix}"
    with (
        pytest.raises(StorageError, match=rf"codes{suffix}.*No space left|No space left.*codes{suffix}"),
        new_matrix(out, (4, 2), np.dtype("f4")) as write,
    ):
        write(np.ones((4, 2), np.float32))
    assert list(tmp_path.iterdir()) == []
