"""Fingerprints identify matrices."""

import numpy as np
import pytest

from terafactor import ArraySource, open_source
from terafactor.data.fingerprint import fingerprint
from terafactor.testing import CountingSource


def values(n_rows=40, n_features=30):
    return np.random.default_rng(0).standard_normal((n_rows, n_features))


def write(folder, name, array, cuts=(15,)):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.split(array, cuts)):
        np.save(folder / f"{name}{number}.npy", part)
    return open_source(str(folder / f"{name}*.npy"))


def test_it_is_the_same_wherever_the_data_lie(tmp_path):
    first, second = (fingerprint(write(tmp_path / folder, "part", values())) for folder in ("here", "there"))
    assert first == second
    assert len(first) == 64


def test_it_is_the_same_whatever_the_data_are_called(tmp_path):
    assert len({fingerprint(write(tmp_path / name, name, values())) for name in ("part", "piece")}) == 1


def test_names_of_several_large_files_are_part_of_the_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr("terafactor.data.fingerprint.MAX_WHOLE_VALUES", 0)  # so that these are large
    for cuts, expected in [((), 1), ((15,), 2)]:
        sources = [write(tmp_path / f"{name} {expected}", name, values(), cuts) for name in ("part", "piece")]
        assert len(set(map(fingerprint, sources))) == expected


def test_shape_dtype_sizes_and_values_change_it(tmp_path):
    other = values()
    other[0, 0] += 1
    last = values()
    last[-1, -1] += 1
    found = {
        fingerprint(write(tmp_path / "a", "part", values())),
        fingerprint(write(tmp_path / "c", "part", values(), cuts=(16,))),
        fingerprint(write(tmp_path / "d", "part", values().astype(np.float32))),
        fingerprint(write(tmp_path / "e", "part", values()[:, :-1])),
        fingerprint(write(tmp_path / "f", "part", other)),
        fingerprint(write(tmp_path / "g", "part", last)),
    }
    assert len(found) == 6


def test_a_store_that_moves_stays_the_same(tmp_path, shared):
    (tmp_path / "moved").symlink_to(shared[0])
    assert fingerprint(open_source(tmp_path / "moved")) == fingerprint(open_source(shared[0]))


@pytest.mark.parametrize("place", [(0, 0), (17, 3), (39, 29)])
def test_any_change_of_a_small_matrix_changes_it(place):
    other = values()
    other[place] = np.nextafter(other[place], np.inf)
    assert fingerprint(ArraySource(values())) != fingerprint(ArraySource(other))


@pytest.mark.parametrize("n_rows", [1, 5, 3000])
def test_little_of_a_large_matrix_is_read(n_rows, monkeypatch):
    monkeypatch.setattr("terafactor.data.fingerprint.MAX_WHOLE_VALUES", 2**14)  # so that all of these are large
    source = CountingSource(ArraySource(np.ones((n_rows, 20_000), np.float32)))
    fingerprint(source)
    assert source.n_values <= 16 * 4096
