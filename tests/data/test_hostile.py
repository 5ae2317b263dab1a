"""Files that would run code, fill the memory or never end, and disks that fail."""

import errno
import gzip
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, open_source, pack
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.ratings import read_ratings

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*:UserWarning", "ignore:.*codecs.*:UserWarning")


def values(n_rows=20):
    return np.random.default_rng(0).standard_normal((n_rows, 9))


class Executed:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def write_zarr(path, **options):
    import zarr

    return zarr.create_array(path, data=values(), **options)


def change_metadata(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.fixture
def other_codec():
    """A codec that another package has registered, which fails the test when it decodes."""
    numcodecs = pytest.importorskip("numcodecs")

    class Other(numcodecs.abc.Codec):
        codec_id = "other"

        def encode(self, buf):
            return buf

        def decode(self, buf, out=None):
            pytest.fail("the codec was run")

    numcodecs.register_codec(Other)
    yield Other.codec_id
    del numcodecs.registry.codec_registry["other"]


@pytest.mark.parametrize("dtype", ["<f8", "|O"])
@pytest.mark.parametrize("place", ["filters", "compressor"])
@pytest.mark.parametrize("codec", ["pickle", "json2", "other"])
def test_codecs_of_zarr_2_that_can_run_code_are_refused(tmp_path, other_codec, place, codec, dtype):
    write_zarr(tmp_path / "a.zarr", zarr_format=2, chunks=(20, 9))
    change = {"filters": [{"id": codec}], "compressor": None} if place == "filters" else {place: {"id": codec}}
    change_metadata(tmp_path / "a.zarr" / ".zarray", lambda document: document.update(change, dtype=dtype))
    (tmp_path / "a.zarr" / "0.0").write_bytes(pickle.dumps(Executed()))
    with pytest.raises(DataError, match=rf"a.zarr .*{codec}|No Zarr data type"):
        open_source(tmp_path / "a.zarr").read(np.arange(3))


def test_an_array_that_claims_trillions_of_rows_is_refused(tmp_path):
    write_zarr(tmp_path / "a.zarr", zarr_format=2, chunks=(7, 9))
    change_metadata(tmp_path / "a.zarr" / ".zarray", lambda document: document.update(shape=[2**44, 9]))
    with pytest.raises(DataError, match=r"a\.zarr has 17,592,186,044,416 rows in chunks of 7.*at least 1,048,576 rows"):
        open_source(tmp_path / "a.zarr").row_blocks(0)


def test_codecs_of_open_zarr_arrays_are_checked_too(tmp_path, other_codec):
    import zarr

    write_zarr(tmp_path / "a.zarr", zarr_format=2)
    change_metadata(tmp_path / "a.zarr" / ".zarray", lambda document: document.update(compressor={"id": other_codec}))
    array = zarr.open_array(tmp_path / "a.zarr", mode="r")
    with pytest.raises(DataError, match=r"a.zarr uses the codec 'other', which is not among those known to be safe"):
        open_source(array)


@pytest.mark.parametrize("sharded", [True, False])
def test_codecs_of_zarr_3_that_can_run_code_are_refused(tmp_path, sharded):
    write_zarr(tmp_path / "a.zarr", chunks=(5, 3), shards=(10, 9) if sharded else None)
    codecs = [{"name": "numcodecs.pickle", "configuration": {}}]

    def change(document):
        if sharded:
            document["codecs"][0]["configuration"]["codecs"] = codecs
        else:
            document["codecs"] = codecs

    change_metadata(tmp_path / "a.zarr" / "zarr.json", change)
    with pytest.raises(DataError, match=r"a.zarr"):
        open_source(tmp_path / "a.zarr").read(np.arange(3))


@pytest.mark.parametrize("compressor", ["blosc", "zstd", "gzip", "lz4", "zlib", "bz2", "lzma", None])
def test_codecs_that_compress_are_read(tmp_path, compressor):
    numcodecs = pytest.importorskip("numcodecs")
    codec = compressor and numcodecs.get_codec({"id": compressor})
    filters = [numcodecs.Shuffle(8)]
    write_zarr(tmp_path / "a.zarr", zarr_format=2, chunks=(7, 9), compressors=codec, filters=filters)
    np.testing.assert_array_equal(open_source(tmp_path / "a.zarr").read(np.arange(20)), values())


def test_objects_in_hdf5_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", data=np.array([[b"a", b"b"]], object), dtype=h5py.string_dtype())
    with pytest.raises(DataError, match="which is not a number"):
        open_source(f"{tmp_path}/a.h5::X")


@pytest.fixture
def limit(monkeypatch):
    """A limit of 100 000 bytes of memory."""
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", "100000")


def write_text(path):
    line = b"0,0,0,0,0,0,0,0\n"
    content = line * 10_000
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_npz(path):
    sparse.save_npz(path, sparse.csr_array(np.ones((200, 200))), compressed=True)
    return path


def write_tall_npz(path):
    sparse.save_npz(path, sparse.coo_array(([1.0], ([3], [4])), shape=(10**12, 8)))
    return path


def write_h5ad(path, n_rows, n_entries):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": np.array([n_rows, n_entries + 1])})
        starts = np.zeros(n_rows + 1, np.int64)
        starts[1:] = n_entries
        group.create_dataset("indptr", data=starts, compression="gzip")
        group.create_dataset("indices", data=np.arange(n_entries), compression="gzip")
        group.create_dataset("data", data=np.ones(n_entries), compression="gzip")
    return path


def write_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape=(200, 200), chunks=(200, 200), dtype="f8", compression="gzip")
    return path


def write_one_chunk(path):
    import zarr

    zarr.create_array(path, shape=(10**6, 10**6), chunks=(10**6, 10**6), dtype="f8")
    return path


def write_table(path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": np.zeros(200_000), "b": np.zeros(200_000)})
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_ipc(path, compression="zstd")
    return path


LARGE = {
    "t.parquet": write_table,
    "t.arrow": write_table,
    "t.csv": write_text,
    "t.csv.gz": write_text,
    "entries.npz": write_npz,
    "rows.npz": write_tall_npz,
    "rows.h5ad": lambda path: write_h5ad(path, 20_000, 5),
    "row.h5ad": lambda path: write_h5ad(path, 5, 20_000),
    "chunk.h5": write_hdf5,
    "chunk.zarr": write_one_chunk,
}


@pytest.mark.parametrize("name", LARGE)
def test_data_larger_than_the_limit_are_refused_before_they_are_loaded(tmp_path, limit, name):
    path = LARGE[name](tmp_path / name)
    with pytest.raises(
        DataError,
        match=rf"{name}.* would take at least [0-9,]+ bytes of memory, more than .*100,000 bytes.*TERAFACTOR_MAX_BYTES",
    ):
        open_source(path)


@pytest.mark.parametrize("name", [name for name in LARGE if name not in ("rows.npz", "chunk.zarr")])
def test_the_limit_is_what_is_available_by_default_and_can_be_raised(tmp_path, monkeypatch, name):
    path = LARGE[name](tmp_path / name)
    monkeypatch.delenv("TERAFACTOR_MAX_BYTES", raising=False)
    monkeypatch.setattr("terafactor._memory.available_memory", lambda: 100_000)
    with pytest.raises(DataError, match=r"more than the 100,000 bytes"):
        open_source(path)
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(2**30))
    assert min(open_source(path).shape) >= 2


def test_a_limit_that_is_not_a_number_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", "much")
    with pytest.raises(ParameterError, match="TERAFACTOR_MAX_BYTES must be a number of bytes, got 'much'"):
        open_source(write_text(tmp_path / "t.csv"))


def test_an_archive_that_lies_about_its_size_is_refused(tmp_path, limit):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.eye(9)))
    with zipfile.ZipFile(tmp_path / "a.npz") as whole, zipfile.ZipFile(tmp_path / "b.npz", "w", 8) as bomb:
        for name in whole.namelist():
            bomb.writestr(name, whole.read(name) + bytes(10**7 if name == "data.npy" else 0))
    with pytest.raises(DataError, match=r"b\.npz"):
        open_source(tmp_path / "b.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["X.npy", "X.csv", "X.parquet", "X.h5", "X.npz", "X.unknown"])
def test_a_named_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for data in (tmp_path / name, f"npy://{tmp_path}/{name}", str(tmp_path / "X*")):
        with pytest.raises(DataError, match=rf"{name} is not a regular file"):
            open_source(data)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_in_a_packed_store_is_refused(tmp_path):
    pack(np.random.default_rng(0).standard_normal((12, 20)), tmp_path / "store", block_rows=4, dtype="int16")
    files = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    for path in files:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(DataError):
            open_source(tmp_path / "store").read(np.arange(12))
        path.unlink()
        path.write_bytes(content)
    assert open_source(tmp_path / "store").read(np.arange(12)).shape == (12, 20)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("version", [2, 3])
def test_a_named_pipe_in_a_zarr_array_is_refused(tmp_path, version):
    import zarr

    values = np.random.default_rng(0).standard_normal((12, 20))
    array = zarr.create_array(tmp_path / "X.zarr", data=values, chunks=(4, 20), zarr_format=version)
    chunk = tmp_path / "X.zarr" / array.metadata.encode_chunk_key((1, 0))
    chunk.unlink()
    os.mkfifo(chunk)
    source = open_source(tmp_path / "X.zarr")
    np.testing.assert_array_equal(source.read(np.arange(4)), values[:4])
    with pytest.raises(DataError, match=rf"{chunk.name} is not a regular file"):
        source.read(np.arange(12))


def test_packing_a_matrix_that_claims_too_many_rows_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_dataset("X", (10**14, 4), "f4", chunks=(1000, 4))
    with pytest.raises(DataError, match=r"the list of blocks of .*X.h5.* would take at least"):
        pack(tmp_path / "X.h5", tmp_path / "store")


def test_hdf5_datasets_with_values_in_other_files_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(bytes(64))
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_dataset("X", (2, 4), "f8", external=[(str(tmp_path / "secret"), 0, 64)])
    with pytest.raises(DataError, match=r"X.h5::/X keeps its values in another file, .*secret, which is not read"):
        open_source(tmp_path / "X.h5")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_among_the_files_of_a_virtual_hdf5_dataset_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    values = np.arange(12.0).reshape(3, 4)
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["X"] = values
    layout = h5py.VirtualLayout((3, 4), "f8")
    layout[:] = h5py.VirtualSource("part.h5", "X", (3, 4))
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    np.testing.assert_array_equal(open_source(tmp_path / "X.h5").read(np.arange(3)), values)
    (tmp_path / "part.h5").unlink()
    os.mkfifo(tmp_path / "part.h5")
    with pytest.raises(DataError, match=r"part.h5 is not a regular file"):
        open_source(tmp_path / "X.h5")


def test_a_device_is_refused():
    with pytest.raises(DataError, match="/dev/zero is not a regular file"):
        open_source("npy:///dev/zero")


def fail(*arguments, **options):
    raise OSError(errno.EIO, "Input/output error")


def failing_source(kind, folder, monkeypatch):
    """Return a source whose reads fail as those from a broken disk do, and the file that it should name."""
    if kind == "npy":
        np.save(folder / "X.npy", values())
        source = open_source(folder / "X.npy")
        monkeypatch.setattr(os, "preadv", fail)
        return source, "X.npy"
    if kind == "packed":
        pack(values(), folder / "store", block_rows=4)
        source = open_source(folder / "store")
        monkeypatch.setattr(os, "preadv", fail)
        return source, "store/records/000000/c/0/0"
    if kind == "zarr":
        write_zarr(folder / "a.zarr")
        source = open_source(folder / "a.zarr")
        monkeypatch.setattr(type(source._array), "__getitem__", fail)
        return source, "a.zarr"
    h5py = pytest.importorskip("h5py")
    if kind == "h5ad":
        source = open_source(write_h5ad(folder / "cells.h5ad", 5, 7))
    else:
        with h5py.File(folder / "a.h5", "w") as file:
            file["X"] = values()
        source = open_source(folder / "a.h5")
    monkeypatch.setattr(h5py.Dataset, "__getitem__", fail)
    return source, "cells.h5ad" if kind == "h5ad" else "a.h5"


@pytest.mark.parametrize("kind", ["npy", "packed", "zarr", "hdf5", "h5ad"])
def test_a_failing_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch, kind):
    source, name = failing_source(kind, tmp_path, monkeypatch)
    with pytest.raises(StorageError, match=rf"cannot read .*{name}.*: Input/output error"):
        source.read(np.arange(3))
    with pytest.raises(StorageError, match=rf"cannot read .*{name}.*: Input/output error"):
        MaskedDictionaryLearning(2, random_state=0).fit(source)


def test_a_table_that_cannot_be_read_any_more_is_named(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame(values()).write_parquet(tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises((DataError, StorageError), match=r"t\.parquet"):
        source.read(np.arange(3))
    (tmp_path / "t.parquet").unlink()
    with pytest.raises((DataError, StorageError), match=r"t\.parquet"):
        source.read(np.arange(3))


def test_a_zarr_chunk_that_cannot_be_decoded_is_named(tmp_path):
    write_zarr(tmp_path / "a.zarr", chunks=(20, 9))
    source = open_source(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "c" / "0" / "0").write_bytes(b"no zstd")
    with pytest.raises(DataError, match=r"a\.zarr cannot be read"):
        source.read(np.arange(3))


@pytest.mark.parametrize("read", [open_source, read_ratings])
def test_a_table_on_which_polars_panics_is_named(tmp_path, monkeypatch, read):
    """Some damaged files end in a panic of its threads, which is not an Exception."""
    polars = pytest.importorskip("polars")
    polars.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0]}).write_parquet(tmp_path / "t.parquet")

    def panic(*arguments, **options):
        raise polars.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr(polars, "scan_parquet", panic)
    with pytest.raises(DataError, match=r"t.parquet cannot be read as"):
        read(tmp_path / "t.parquet")


def test_damage_inside_headers_is_named(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(3))
    content = (tmp_path / "X.npy").read_bytes()
    for damaged in (content.replace(b"}", b" "), content.replace(b", }    ", b", 1:2} ")):
        assert len(damaged) == len(content)
        assert damaged != content
        (tmp_path / "X.npy").write_bytes(damaged)
        with pytest.raises(DataError, match=r"X.npy is not a .npy file of numbers"):
            open_source(tmp_path / "X.npy")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = np.eye(3)
    content = (tmp_path / "X.h5").read_bytes()
    assert content.count(b"HEAP") == 1
    (tmp_path / "X.h5").write_bytes(content.replace(b"HEAP", b"H?AP"))
    with pytest.raises(DataError, match=r"X.h5"):
        open_source(f"{tmp_path}/X.h5")


def rewrite_npz(path, **arrays):
    with np.load(path) as found:
        np.savez(path, **dict(found) | arrays)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("coo", {"shape": np.array([3.0, 3.0])}),
        ("dia", {"format": np.array(True)}),
        ("bsr", {"data": np.array(1.0)}),
        ("bsr", {"indptr": np.array([0, 1, 2, 0])}),
    ],
)
def test_arrays_that_make_no_sparse_matrix_are_refused(tmp_path, kind, change):
    sparse.save_npz(tmp_path / "a.npz", sparse.eye_array(3, format=kind))
    rewrite_npz(tmp_path / "a.npz", **change)
    for read in (open_source, read_ratings):
        with pytest.raises(DataError, match=r"a\.npz"):
            read(tmp_path / "a.npz")


def test_a_compressed_array_that_is_damaged_is_refused(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.eye(30)))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    start = content.index(b"indices.npy") + len("indices.npy")
    content[start + 20 : start + 40] = b"\xff" * 20
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"indices\.npy in .*a\.npz is not a \.npy file"):
        open_source(tmp_path / "a.npz")


@pytest.mark.parametrize("chunks", [[0, 9], [20, 0]])
def test_chunks_of_zarr_without_rows_or_columns_are_refused(tmp_path, chunks):
    write_zarr(tmp_path / "a.zarr", zarr_format=2)
    change_metadata(tmp_path / "a.zarr" / ".zarray", lambda document: document.update(chunks=chunks))
    with pytest.raises(DataError, match=r"a\.zarr"):
        open_source(tmp_path / "a.zarr").read(np.arange(3))


@pytest.mark.parametrize("part", [b"OHDR", b"FRHP", b"SNOD", b"TREE", b"HEAP"])
@pytest.mark.parametrize("inside", ["X", "layers/counts"])
def test_damage_inside_an_h5ad_file_is_named(tmp_path, part, inside):
    h5py = pytest.importorskip("h5py")
    write_h5ad(tmp_path / "a.h5ad", 5, 7)
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        file.copy("X", "layers/counts")
    content = (tmp_path / "a.h5ad").read_bytes()
    (tmp_path / "a.h5ad").write_bytes(content.replace(part, b"????"))
    if part in content:
        with pytest.raises((DataError, StorageError), match=r"a\.h5ad"):
            open_source(f"{tmp_path}/a.h5ad::{inside}").read(np.arange(5))


@pytest.mark.parametrize("metadata", ["no json", "[]", "null", '{"index_columns": 3}', "[" * 100_000])
def test_metadata_of_pandas_that_cannot_be_read_are_refused(tmp_path, metadata):
    polars = pytest.importorskip("polars")
    polars.DataFrame(values()).write_parquet(tmp_path / "t.parquet", metadata={"pandas": metadata})
    with pytest.raises(DataError, match=r"t\.parquet cannot be read as a table"):
        open_source(tmp_path / "t.parquet")


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("claim", [2**60, -7])
def test_a_compressed_buffer_that_claims_too_much_is_refused(tmp_path, compression, claim):
    """polars would end the process."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": np.zeros(1000), "b": np.arange(1000)})
    frame.write_ipc(tmp_path / "t.arrow", compression=compression)
    assert open_source(tmp_path / "t.arrow").read(np.arange(1000))[:, 1].tolist() == list(range(1000))
    content = (tmp_path / "t.arrow").read_bytes()
    size = (8000).to_bytes(8, "little")
    assert content.count(size) >= 2
    (tmp_path / "t.arrow").write_bytes(content.replace(size, claim.to_bytes(8, "little", signed=True)))
    with pytest.raises(DataError, match=r"t\.arrow (would take|has a compressed buffer of)"):
        open_source(tmp_path / "t.arrow")


def test_an_arrow_file_with_a_damaged_signature_is_refused(tmp_path):
    """polars reads it, so its buffers would go unchecked."""
    polars = pytest.importorskip("polars")
    polars.DataFrame(values()).write_ipc(tmp_path / "t.arrow", compression="zstd")
    content = (tmp_path / "t.arrow").read_bytes()
    (tmp_path / "t.arrow").write_bytes(b"a" + content[1:])
    with pytest.raises(DataError, match=r"t\.arrow cannot be read as a table"):
        open_source(tmp_path / "t.arrow")


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 100])
def test_an_arrow_file_that_was_cut_is_refused(tmp_path, cut):
    polars = pytest.importorskip("polars")
    polars.DataFrame(values()).write_ipc(tmp_path / "t.arrow", compression="zstd")
    content = (tmp_path / "t.arrow").read_bytes()
    for damaged in (content[:cut], content[:cut] + content[len(content) - cut :]):
        (tmp_path / "t.arrow").write_bytes(damaged)
        with pytest.raises(DataError, match=r"t\.arrow"):
            open_source(tmp_path / "t.arrow")


def test_a_long_header_counts_with_all_its_copies(tmp_path, monkeypatch):
    (tmp_path / "names.csv").write_text("a" * 20_000 + ",b\n1,2\n")
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", "100000")
    with pytest.raises(DataError, match=r"names.csv would take at least 240,024 bytes of memory, more than .*100,000"):
        open_source(tmp_path / "names.csv")


@pytest.mark.parametrize("name", ["t.csv", "ratings.csv", "netflix/mv_0000001.txt"])
def test_text_on_which_polars_panics_is_named(tmp_path, monkeypatch, name):
    polars = pytest.importorskip("polars")
    (tmp_path / "netflix").mkdir()
    (tmp_path / name).write_text("1:\n1,5,2005-09-06\n" if "mv" in name else "user,item,rating\n1,2,3\n")

    def panic(*arguments, **options):
        raise polars.exceptions.PanicException("slice index starts at 1 but ends at 0")

    monkeypatch.setattr(polars, "read_csv", panic)
    path = tmp_path / name if "mv" not in name else tmp_path / "netflix"
    with pytest.raises(DataError, match=name):
        (open_source if name == "t.csv" else read_ratings)(path)


def test_a_csv_file_with_a_field_of_any_length_is_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b" + "x" * 140_000 + "\n1,\n3\n")
    with pytest.raises(DataError, match=r"line 1 of .*table.csv holds no numbers"):
        open_source(path)


def test_an_error_about_a_csv_file_quotes_little_of_it(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,b\n1,2\n3,"' + "4\n" * 100_000)
    with pytest.raises(DataError, match=r"table.csv cannot be read") as caught:
        open_source(path)
    assert len(str(caught.value)) < 2000
