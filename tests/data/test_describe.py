"""Descriptions: another process opens the same matrix, or says why it cannot."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from terafactor import ArraySource, MatrixSource, PatchSource, open_source, pack
from terafactor.data import SparseSource, describe_as, open_description
from terafactor.data.views.joined import JoinedSource
from terafactor.data.views.rows import SelectedRows
from terafactor.errors import DataError, ParameterError
from terafactor.testing import CountingSource, SourceContract

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*:UserWarning")

X = np.random.default_rng(0).standard_normal((37, 23))
S = sparse.random_array((37, 23), density=0.04, rng=np.random.default_rng(0), format="csr")
NAMES = [f"c{number}" for number in range(23)]


def save_npy(folder, name="X.npy"):
    np.save(folder / name, X)
    return folder / name


def save_npz(folder):
    sparse.save_npz(folder / "X.npz", S)
    return folder / "X.npz"


def hdf5_dataset(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "X.h5", "w") as file:
        file["a/b"] = X
    with h5py.File(folder / "X.h5") as file:
        return open_source(file["a/b"])


def zarr_array(folder, inside="a/b"):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "group.zarr", mode="w")
    return group.create_array(inside, data=X, chunks=(10, 7))


def h5ad(folder, matrix):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(matrix).write_h5ad(folder / "X.h5ad")
    return folder / "X.h5ad"


def table(folder, name="X.parquet"):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X, schema=NAMES)
    (frame.write_csv if name.endswith(".csv") else frame.write_parquet)(folder / name)
    return folder / name


def packed(folder):
    return open_source(pack(X, folder / "store", block_rows=2), reader="zarr")


def memory_map(folder):
    return open_source(np.load(save_npy(folder), mmap_mode="r")[3:30])


DESCRIBED = {
    "npy": lambda folder: open_source(save_npy(folder)),
    "memory map": memory_map,
    "npz": lambda folder: open_source(save_npz(folder)),
    "hdf5 dataset": hdf5_dataset,
    "zarr array": lambda folder: open_source(zarr_array(folder)),
    "zarr in a group": lambda folder: open_source(f"{folder}/group.zarr::{zarr_array(folder).path}"),
    "dense h5ad": lambda folder: open_source(h5ad(folder, X)),
    "sparse h5ad": lambda folder: open_source(h5ad(folder, S)),
    "absent in h5ad": lambda folder: open_source(h5ad(folder, S)).absent_as_missing(),
    "absent in npz": lambda folder: open_source(save_npz(folder)).absent_as_missing(),
    "absent in joined npz": lambda folder: open_source([save_npz(folder)] * 2).absent_as_missing(),
    "parquet": lambda folder: open_source(table(folder), columns=np.array(NAMES[9:2:-1])),
    "csv": lambda folder: open_source(table(folder, "X.csv"), drop=("c3", "c7")),
    "reordered parquet": lambda folder: open_source(table(folder)).reorder_features(NAMES[::-1]),
    "reordered csv": lambda folder: open_source(table(folder, "X.csv")).reorder_features(NAMES[::-1]),
    "packed": packed,
    "joined": lambda folder: open_source([save_npy(folder, "a.npy"), save_npy(folder, "b.npy")]),
    "selected rows": lambda folder: SelectedRows(packed(folder), np.arange(0, 37, 3)),
}


class TestRawFile(SourceContract):
    def make(self, tmp_path):
        (tmp_path / "X.bin").write_bytes(b"head" + X.astype(">f4").tobytes())
        source = open_source(f"raw://{tmp_path}/X.bin", shape=X.shape, dtype=">f4", offset=4)
        return source, X.astype(np.float32)


@pytest.mark.parametrize("name", DESCRIBED)
def test_whatever_has_a_path_has_a_description(name, tmp_path):
    source = DESCRIBED[name](tmp_path)
    contract = SourceContract()
    assert source.describe() is not None
    contract.test_a_description_opens_the_same_matrix((source, source.read(np.arange(source.shape[0]))))


def test_what_only_this_process_has_has_none(tmp_path):
    dask = pytest.importorskip("dask.array")
    array, file = ArraySource(X), open_source(save_npy(tmp_path))
    for source in (
        array,
        SparseSource(S),
        SparseSource(S).absent_as_missing(),
        PatchSource([X], (2, 2)),
        open_source(iter([X])),
        open_source(dask.from_array(X)),
        JoinedSource([file, array]),
        SelectedRows(array, np.arange(3)),
        CountingSource(file),  # a view may change what it reads
    ):
        assert source.describe() is None


def test_another_process_opens_a_relative_path_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    text = json.dumps(open_source("X.npy").describe())
    program = (
        "import json, sys, numpy as np; from terafactor.data import open_description; "
        "print(open_description(json.load(sys.stdin)).read(np.array([5])).tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=text, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == X[5].tobytes()


def test_a_path_that_the_worker_does_not_see_is_named_with_the_host(tmp_path):
    path = save_npy(tmp_path)
    description = open_source(path).describe()
    path.unlink()
    with pytest.raises(DataError, match=r"X\.npy is not visible on host .*share") as caught:
        open_description(description)
    assert socket.gethostname() in str(caught.value)


@pytest.mark.parametrize("change", ["size", "time", "store"])
def test_other_data_at_the_same_path_are_refused(change, tmp_path):
    path = save_npy(tmp_path)
    if change == "store":
        path = pack(X, tmp_path / "store", block_rows=2)
    description = open_source(path).describe()
    if change == "size":
        np.save(path, X[:-1])
    elif change == "time":
        os.utime(path, (1, 1))
    else:
        os.rename(path, tmp_path / "before")
        os.utime(pack(2 * X, path, block_rows=2) / "zarr.json", (1, 1))
    with pytest.raises(DataError, match=r"(X\.npy|zarr\.json) on host .* differs from the one opened on host"):
        open_description(description)


def test_a_matrix_of_another_shape_or_type_is_refused(tmp_path):
    description = open_source(save_npy(tmp_path)).describe()
    with pytest.raises(DataError, match=r"X.npy has shape \(37, 23\) and type float64 .* shape \(37, 22\)"):
        open_description(description | {"shape": [37, 22]})
    with pytest.raises(DataError, match=r"type float64 .* type float32"):
        open_description(description | {"dtype": "float32"})


class Ramp(MatrixSource):
    """A source of a user, which describes itself."""

    def __init__(self, n_rows):
        self.shape, self.dtype = (n_rows, 6), np.dtype(np.float64)

    def read(self, rows, columns=None):
        from terafactor.data.source import check_indices

        columns = np.arange(6) if columns is None else columns
        check_indices(rows, self.shape[0], "rows")
        check_indices(columns, 6, "columns")
        return 10.0 * rows[:, np.newaxis] + columns

    def describe(self):
        return describe_as(self, Ramp, n_rows=self.shape[0])


class TestSourceOfAUser(SourceContract):
    def make(self, tmp_path):
        return Ramp(7), Ramp(7).read(np.arange(7))


def test_an_opener_that_the_worker_lacks_is_named():
    description = Ramp(5).describe() | {"opener": "no_such_module:Ramp"}
    with pytest.raises(DataError, match=r"no_such_module:Ramp cannot be imported on host .*every worker"):
        open_description(description)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass its shape and dtype"),
        ({"shape": (37, 23)}, "pass its shape and dtype"),
        ({"shape": (37, 23), "dtype": "no such type"}, "dtype must name a type of numbers"),
        ({"shape": (37, 23), "dtype": "f8", "offset": -8}, "offset must be"),
    ],
)
def test_a_raw_file_needs_its_shape_and_type(options, message, tmp_path):
    (tmp_path / "X.bin").write_bytes(X.tobytes())
    with pytest.raises(ParameterError, match=message):
        open_source(f"raw://{tmp_path}/X.bin", **options)


def test_a_raw_file_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "X.bin").write_bytes(X.tobytes())
    with pytest.raises(DataError, match="truncated"):
        open_source(f"raw://{tmp_path}/X.bin", shape=(38, 23), dtype="f8")
