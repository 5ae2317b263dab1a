"""A store that is not what was written is refused."""

import shutil

import numpy as np
import pytest

from terafactor import open_source, pack
from terafactor.data.packed.reader import PackedSource
from terafactor.errors import DataError


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store of integers in 6 records, and what it reads as."""
    path = tmp_path_factory.mktemp("small") / "store"
    pack(np.random.default_rng(0).standard_normal((24, 40)), path, block_rows=4, dtype="int16")
    return path, open_source(path).read(np.arange(24))


def damage(path, random):
    """Flip a bit of a file, cut it short, or remove it."""
    content = bytearray(path.read_bytes())
    kind = random.integers(4)
    if kind <= 1:
        place = random.integers(8 * len(content))
        content[place // 8] ^= 1 << (place % 8)
        path.write_bytes(content)
    elif kind == 2:
        path.write_bytes(content[: random.integers(len(content))])
    else:
        path.unlink()


def read_what_needs(path, store, reader):
    """Read the rows of the record to which a file belongs; all rows if it belongs to the store."""
    source = PackedSource(store, reader=reader)
    kind, *names = path.relative_to(store).parts
    numbers = [int(name) for name in names if name.isdigit()]
    one = kind in ("records", "scales") and numbers
    source.read(np.asarray(source.records[numbers[0]]) if one else np.arange(source.shape[0]))


@pytest.mark.parametrize(("reader", "n_times"), [("direct", 2000), ("zarr", 100)])
def test_no_damage_goes_unnoticed(small, tmp_path, reader, n_times):
    original, array = small
    random = np.random.default_rng(0)
    shutil.copytree(original, tmp_path / "store")
    files = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    by_size = np.array([path.stat().st_size for path in files], float)
    for turn in range(n_times):
        # Half the time any file, half the time any byte.
        path = files[random.choice(len(files), p=None if turn % 2 else by_size / by_size.sum())]
        intact = path.read_bytes()
        damage(path, random)
        with pytest.raises(DataError):
            read_what_needs(path, tmp_path / "store", reader)
        path.write_bytes(intact)
    np.testing.assert_array_equal(open_source(tmp_path / "store").read(np.arange(len(array))), array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "block 1 of record 3 .*c/1/0 cannot be opened"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "block 1 of record 3 .*bytes where"),
        (lambda path: path.write_bytes(b"\x01" + path.read_bytes()[1:]), "block 1 of record 3 .*chunk 0 of .*checksum"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-40] + 40 * b"\xff"),
            "block 1 of record 3 .*index of its chunks",
        ),
    ],
    ids=["deleted", "truncated", "flipped", "missing chunk"],
)
@pytest.mark.parametrize("reader", ["direct", "zarr"])
def test_damage_is_named_by_record_and_chunk(shared, tmp_path, change, message, reader):
    shutil.copytree(shared[0], tmp_path / "store")
    source = open_source(tmp_path / "store", reader=reader)
    change(tmp_path / "store" / "records" / "000003" / "c" / "1" / "0")
    rows = np.asarray(source.row_blocks(3)[1])
    source.read(np.asarray(source.row_blocks(3)[0]))
    with pytest.raises(DataError, match=message):
        source.read(rows)


def test_damaged_scales_are_named_by_record(small, tmp_path):
    shutil.copytree(small[0], tmp_path / "store")
    source = open_source(tmp_path / "store")
    (tmp_path / "store" / "scales" / "c" / "2" / "0").unlink()
    with pytest.raises(DataError, match=r"the scales of record 2 .*cannot be opened"):
        source.read(np.arange(24))
