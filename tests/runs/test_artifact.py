"""The file format of models and checkpoints."""

import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.runs.artifact import ARRAYS, MANIFEST, Artifact, _canonical, read_artifact, write_artifact
from terafactor.solver.state_dict import StateDict


def make(**arrays):
    state_dict = StateDict({"n_steps": 3, "mean": 0.1, "names": ["a", "ü"]}, arrays)
    return Artifact("Thing", {"alpha": 0.5, "init": None}, state_dict, "f" * 8)


def assert_same(one, other):
    assert (one.kind, dict(one.parameters), one.fingerprint) == (other.kind, dict(other.parameters), other.fingerprint)
    assert dict(one.state_dict.numbers) == dict(other.state_dict.numbers)
    assert set(one.state_dict.arrays) == set(other.state_dict.arrays)
    for name, array in one.state_dict.arrays.items():
        found = other.state_dict.arrays[name]
        assert array.dtype == found.dtype
        assert array.flags.c_contiguous == found.flags.c_contiguous
        np.testing.assert_array_equal(array, found)


@pytest.fixture
def written(tmp_path):
    artifact = make(
        rows=np.arange(12.0).reshape(3, 4), columns=np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3))
    )
    return write_artifact(artifact, tmp_path / "model"), artifact


def test_round_trip_keeps_values_and_memory_order(written):
    folder, artifact = written
    assert_same(read_artifact(folder), artifact)
    assert sorted(path.name for path in folder.iterdir()) == [ARRAYS, MANIFEST]


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), min_size=0, max_size=3),
    dtype=st.sampled_from(["float32", "float64", "int32", "int64", "uint8", "bool"]),
    numbers=st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    ),
)
def test_round_trip_of_any_content(tmp_path_factory, shape, dtype, numbers):
    folder = tmp_path_factory.mktemp("any") / "model"
    array = np.arange(int(np.prod(shape)), dtype="int64").reshape(shape).astype(dtype)
    artifact = Artifact("Thing", {}, StateDict(numbers, {"x": array}))
    assert_same(read_artifact(write_artifact(artifact, folder)), artifact)


def test_equal_content_gives_equal_files(tmp_path):
    for name in ("one", "two"):
        write_artifact(make(x=np.arange(5.0)), tmp_path / name)
    for file in (MANIFEST, ARRAYS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_an_existing_folder_is_replaced_only_with_overwrite(written):
    folder, artifact = written
    with pytest.raises(ParameterError, match="overwrite=True"):
        write_artifact(make(x=np.zeros(1)), folder)
    assert_same(read_artifact(folder), artifact)
    write_artifact(make(x=np.zeros(1)), folder, overwrite=True)
    assert set(read_artifact(folder).state_dict.arrays) == {"x"}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_foreign_folder_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("all of it")
    with pytest.raises(ParameterError, match="choose another path"):
        write_artifact(make(x=np.zeros(1)), tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "all of it"


def test_a_kill_between_the_two_renames_loses_nothing(written):
    folder, artifact = written
    folder.rename(folder.with_name(".model.replaced"))
    assert_same(read_artifact(folder), artifact)


def test_two_thousand_damages_are_all_noticed(written):
    folder, _ = written
    chance = random.Random(0)
    contents = {name: (folder / name).read_bytes() for name in (MANIFEST, ARRAYS)}
    for _ in range(2000):
        name = chance.choice([MANIFEST, ARRAYS])
        damaged = bytearray(contents[name])
        if chance.random() < 0.8:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(len(damaged)) :]
        (folder / name).write_bytes(damaged)
        with pytest.raises(DataError, match=r"model"):
            read_artifact(folder)
        (folder / name).write_bytes(contents[name])
    read_artifact(folder)


@pytest.mark.parametrize("name", [MANIFEST, ARRAYS])
def test_a_missing_file_is_named(written, name):
    folder, _ = written
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        read_artifact(folder)


def resign(folder: Path, **changes):
    """Change a manifest as someone would who knows the format, digest included."""
    manifest = json.loads((folder / MANIFEST).read_bytes()) | changes
    del manifest["sha256"]
    digest = hashlib.sha256(_canonical(manifest)).hexdigest()
    (folder / MANIFEST).write_bytes(_canonical(manifest | {"sha256": digest}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": [2, 0]}, "format version 2.0, but this version of terafactor reads 1.x"),
        ({"version": "1"}, "two integers"),
        ({"format": "else"}, "not a manifest of terafactor"),
        ({"kind": 3}, "kind of .* must be a string, got 3"),
        ({"numbers": []}, r"numbers of .* must be a table of fields, got \[\]"),
        ({"arrays": {"rows": {"dtype": "float64", "shape": [3, 4], "order": "C"}}}, "its manifest lists"),
        ({"arrays": {"x": {"dtype": "object", "shape": [1], "order": "C"}}}, "of array 'x' of .* must be"),
        ({"arrays": {"x": {"dtype": "float64", "shape": [2**60], "order": "C"}}}, "of array 'x' of .* must be"),
        ({"arrays": {"x": {"dtype": "float64", "shape": [-1], "order": "C"}}}, "of array 'x' of .* must be"),
        ({"files": {}}, "has no arrays.safetensors"),
    ],
)
def test_hostile_manifests_are_refused(written, changes, message):
    folder, _ = written
    resign(folder, **changes)
    with pytest.raises(DataError, match=message):
        read_artifact(folder)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_who_may_read_the_folder_may_read_its_files(written):
    folder, _ = written
    assert {path.stat().st_mode & 0o666 for path in folder.iterdir()} == {folder.stat().st_mode & 0o666}


def test_a_newer_minor_version_is_read(written):
    folder, artifact = written
    resign(folder, version=[1, 7], something_new=1)
    assert_same(read_artifact(folder), artifact)


def test_the_shape_in_the_manifest_must_be_that_in_the_file(written):
    folder, _ = written
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["arrays"]["rows"]["shape"] = [4, 3]
    resign(folder, arrays=manifest["arrays"])
    with pytest.raises(DataError, match=r"does not have the shape \(4, 3\)"):
        read_artifact(folder)


def test_an_endless_manifest_is_not_read(written, monkeypatch):
    folder, _ = written
    with open(folder / MANIFEST, "r+b") as file:
        file.truncate(2**29)
    with pytest.raises(DataError, match="but a manifest has at most"):
        read_artifact(folder)


def test_a_read_only_place_is_named(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageError, match=r"cannot write .*model.*Permission denied"):
        write_artifact(make(x=np.zeros(1)), tmp_path / "model")
