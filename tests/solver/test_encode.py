"""Codes of all rows, a bounded number at a time."""

import sys

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning
from terafactor.solver.encode import consecutive_parts
from terafactor.testing import CountingSource

encode_module = sys.modules["terafactor.solver.encode"]  # the package has a function of that name


class Blocks(CountingSource):
    """Rows in two records, which come in blocks of 7."""

    in_memory = False

    def __init__(self, array):
        super().__init__(ArraySource(array))
        self.in_memory = False

    @property
    def records(self):
        return [range(50), range(50, self.shape[0])]

    def row_blocks(self, record):
        rows = self.records[record]
        return [range(at, min(at + 7, rows.stop)) for at in range(rows.start, rows.stop, 7)]


@pytest.mark.parametrize("at_once", [1, 10, 16, 1000])
def test_parts_follow_each_other_and_leave_blocks_whole(monkeypatch, X, at_once):
    monkeypatch.setattr(encode_module, "MAX_VALUES", at_once * X.shape[1])
    source = Blocks(X)
    parts = list(consecutive_parts(source))
    assert [row for part in parts for row in part] == list(range(len(X)))
    assert all(len(part) <= max(7, at_once) for part in parts)
    if 4 * at_once >= 7:
        starts = {block.start for record in range(2) for block in source.row_blocks(record)}
        assert {part.start for part in parts} <= starts


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_codes_go_straight_to_a_file(tmp_path, monkeypatch, X, suffix):
    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    expected = learner.transform(X)
    monkeypatch.setattr(encode_module, "MAX_VALUES", 10 * X.shape[1])
    codes = learner.transform(Blocks(X), out=tmp_path / f"codes{suffix}")
    assert codes.shape == expected.shape
    np.testing.assert_allclose(codes[:], expected, atol=1e-12)


def test_a_failing_source_leaves_no_file(tmp_path, X):
    class Broken(Blocks):
        def read(self, rows, columns=None):
            if 60 in rows:
                raise OSError("the disk is broken")
            return super().read(rows, columns)

    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    with pytest.raises(OSError, match=r"^the disk is broken$"):
        learner.transform(Broken(X), out=tmp_path / "codes.npy")
    assert list(tmp_path.iterdir()) == []


def test_it_tells_how_far_it_is(monkeypatch, X):
    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    monkeypatch.setattr(encode_module, "MAX_VALUES", 10 * X.shape[1])
    done = []
    encode_module.encode(ArraySource(X), learner.components_, learner._problem(), progress=done.append)
    assert sum(done) == len(X)
    assert len(done) == 9
