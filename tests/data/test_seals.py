"""Parts of a packed store that are in the wrong place, or of other data, are refused; old stores still load."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, open_source, pack
from terafactor.data.packed.layout import encode
from terafactor.data.packed.reader import PackedSource
from terafactor.data.packed.shard import append_checksum
from terafactor.errors import DataError

X = np.random.default_rng(0).standard_normal((24, 12))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of ``X`` and of other data, in 6 records of one block each, and a long one."""
    folder = tmp_path_factory.mktemp("stores")
    for dtype in ("float64", "int16"):
        pack(X, folder / dtype, block_rows=4, dtype=dtype)
        pack(X + 1e-9, folder / f"other {dtype}", block_rows=4, dtype=dtype)
    pack(np.tile(X, (16, 1)), folder / "long", block_rows=4)
    return folder


@pytest.fixture(scope="module")
def version1(tmp_path_factory):
    """Stores of ``X`` written by version 1, in float64 and int16."""
    folder = tmp_path_factory.mktemp("version1")
    with tarfile.open(Path(__file__).parent / "stores" / "version1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def copy_of(store, folder):
    return Path(shutil.copytree(store, folder / "store"))


def exchange(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def read_all(store, reader="direct"):
    source = PackedSource(store, reader=reader)
    return source.read(np.arange(source.shape[0]))


@pytest.mark.parametrize("reader", ["direct", "zarr"])
@pytest.mark.parametrize(
    ("store", "one", "other"),
    [
        ("float64", "records/000001/c/0/0", "records/000004/c/0/0"),
        ("long", "records/000001/c/0/0", "records/000001/c/2/0"),
        ("int16", "scales/c/1/0", "scales/c/4/0"),
    ],
    ids=["records", "blocks", "scales"],
)
def test_exchanged_shards_are_refused(stores, tmp_path, store, one, other, reader):
    path = copy_of(stores / store, tmp_path)
    exchange(path / one, path / other)
    with pytest.raises(DataError, match=r"of record 1 .*chunk 0 of .* belongs to another place or to other data"):
        read_all(path, reader)


@pytest.mark.parametrize("reader", ["direct", "zarr"])
def test_exchanged_tiles_are_refused(stores, tmp_path, reader):
    path = copy_of(stores / "float64", tmp_path)
    size = PackedSource(path).layout.tile_type.itemsize
    shard = path / "records/000001/c/0/0"
    content = shard.read_bytes()
    shard.write_bytes(content[size : 2 * size] + content[:size] + content[2 * size :])
    with pytest.raises(DataError, match=r"block 0 of record 1 .*chunk 0 of .* belongs to another place"):
        read_all(path, reader)


@pytest.mark.parametrize("reader", ["direct", "zarr"])
@pytest.mark.parametrize(
    ("dtype", "file"),
    [("float64", "records/000002/c/0/0"), ("int16", "records/000002/c/0/0"), ("int16", "scales/c/2/0")],
)
def test_shards_of_other_data_are_refused(stores, tmp_path, dtype, file, reader):
    path = copy_of(stores / dtype, tmp_path)
    shutil.copy(stores / f"other {dtype}" / file, path / file)
    with pytest.raises(DataError, match=r"of record 2 .*belongs to another place or to other data"):
        read_all(path, reader)


def test_exchanged_permutations_are_refused(stores, tmp_path):
    path = copy_of(stores / "float64", tmp_path)
    exchange(path / "permutations/c/0/0", path / "permutations/c/1/0")
    with pytest.raises(DataError, match=r"permutation 0 of .* is damaged"):
        open_source(path)


@pytest.mark.parametrize("change", [(0, 12), (0, -1), (0, 2**31 - 1), (None, 5)], ids=str)
def test_permutations_that_are_none_are_refused(version1, tmp_path, change):
    path = copy_of(version1 / "float64", tmp_path)
    file = path / "permutations/c/3/0"
    order = np.frombuffer(file.read_bytes()[:-4], "<i4").copy()
    place, value = change
    order[slice(None) if place is None else place] = value
    file.write_bytes(append_checksum(order.tobytes()))
    with pytest.raises(DataError, match=r"permutation 3 of .* is damaged"):
        open_source(path)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": {"n_features": 12, "block_rows": 0, "tile_width": 1, "dtype": "float64"}},
        {"layout": {"n_features": 12, "block_rows": 4, "tile_width": 1, "dtype": "object"}},
        {"layout": {}},
        {"records": []},
        {"records": [{"name": "x", "start": 0, "stop": -5}] * 6},
        {"statistics": []},
        {"n_permutations": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_metadata_that_cannot_be_ours_are_refused(stores, tmp_path, change):
    from terafactor.data.packed import layout

    path = copy_of(stores / "float64", tmp_path)
    content = json.loads((path / "zarr.json").read_bytes())["attributes"]["terafactor"] | change
    del content["checksum"]
    (path / "zarr.json").write_bytes(encode(layout._with_digest(content)))
    with pytest.raises(DataError, match="was not written by terafactor"):
        open_source(path)


def test_metadata_that_claim_more_rows_than_fit_in_memory_are_refused(stores, tmp_path):
    from terafactor.data.packed import layout

    path = copy_of(stores / "float64", tmp_path)
    content = json.loads((path / "zarr.json").read_bytes())["attributes"]["terafactor"]
    content["records"][0]["stop"] += 10**15
    del content["checksum"]
    (path / "zarr.json").write_bytes(encode(layout._with_digest(content)))
    with pytest.raises(DataError, match="store would take at least"):
        open_source(path)


@pytest.mark.parametrize("value", [np.frombuffer(b"\xff" * 4, "<f4")[0], np.inf, 0.0, -1.0], ids=str)
def test_scales_that_are_not_positive_are_refused(version1, tmp_path, value):
    path = copy_of(version1 / "int16", tmp_path)
    file = path / "scales/c/2/0"
    content = bytearray(file.read_bytes())
    content[:8] = append_checksum(np.array([value], "<f4").tobytes())  # the CRC of four bytes 0xFF is 0xFFFFFFFF
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"the scales of record 2 .* must be positive and finite"):
        read_all(path)


@pytest.mark.parametrize("reader", ["direct", "zarr"])
@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_stores_of_version_1_load_and_learn(version1, stores, dtype, reader):
    old, new = (open_source(folder / dtype, reader=reader) for folder in (version1, stores))
    np.testing.assert_array_equal(old.read(np.arange(24)), new.read(np.arange(24)))
    rows, columns = np.array([23, 4, 11]), np.array([7, 0, 3])
    np.testing.assert_array_equal(old.read(rows, columns), new.read(rows, columns))
    atoms = [
        MaskedDictionaryLearning(3, reduction=3, batch_size=4, n_epochs=2, random_state=0).fit(source).components_
        for source in (old, new)
    ]
    np.testing.assert_array_equal(*atoms)


def test_damage_of_a_store_of_version_1_is_noticed(version1, tmp_path):
    path = copy_of(version1 / "float64", tmp_path)
    shard = path / "records/000001/c/0/0"
    shard.write_bytes(b"\x01" + shard.read_bytes()[1:])
    with pytest.raises(DataError, match=r"block 0 of record 1 .*does not match its checksum"):
        read_all(path)


@pytest.mark.parametrize("name", ["scales", "permutations", "records", "records/000000", None])
def test_metadata_of_a_part_instead_of_the_store_are_refused(stores, tmp_path, name):
    path = copy_of(stores / "int16", tmp_path)
    (path / "zarr.json").unlink()
    if name is not None:
        shutil.copy(path / name / "zarr.json", path / "zarr.json")
    with pytest.raises(DataError, match=r"store/zarr\.json is (damaged|missing)"):
        open_source(path)


def test_a_store_of_a_later_version_is_refused(stores, tmp_path):
    path = copy_of(stores / "float64", tmp_path)
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"version": 2', '"version": 3'))
    with pytest.raises(DataError, match=r"has version 3 of the packed store; this version of terafactor reads 1 and 2"):
        open_source(path)
