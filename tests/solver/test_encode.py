"""Codes of all rows, a bounded number at a time."""

import sys

import numpy as np
import pytest
from scipy import sparse

from terafactor import ArraySource, MaskedDictionaryLearning
from terafactor.data import SparseSource
from terafactor.data.output import shared_matrix
from terafactor.data.views.joined import JoinedSource
from terafactor.dictionary.parameters import problem_of
from terafactor.solver import parts as parts_module
from terafactor.solver.encode import encode_rows_into, mean_loss, sum_losses
from terafactor.solver.parts import consecutive_parts, row_tasks
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
def test_parts_follow_each_other_and_leave_blocks_whole(X, at_once):
    source = Blocks(X)
    parts = list(consecutive_parts(source, at_once))
    assert [row for part in parts for row in part] == list(range(len(X)))
    assert all(len(part) <= max(7, at_once) for part in parts)
    if 4 * at_once >= 7:
        starts = {block.start for record in range(2) for block in source.row_blocks(record)}
        assert {part.start for part in parts} <= starts


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_codes_go_straight_to_a_file(tmp_path, monkeypatch, X, suffix):
    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    expected = learner.transform(X)
    monkeypatch.setattr(parts_module, "VALUES_PER_PART", 10 * X.shape[1])
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


def test_encoding_reports_its_progress(monkeypatch, X):
    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    monkeypatch.setattr(parts_module, "VALUES_PER_PART", 10 * X.shape[1])
    done = []
    encode_module.encode(ArraySource(X), learner.components_, problem_of(learner), progress=done.append)
    assert sum(done) == len(X)
    assert len(done) == 9


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_are_coded_without_being_made_dense(monkeypatch, kind, dtype, tolerance, alpha, n_threads):
    X = kind(sparse.random_array((150, 900), density=0.03, dtype=dtype, rng=np.random.default_rng(0)))
    learner = MaskedDictionaryLearning(9, alpha=alpha, random_state=0, n_threads=n_threads).fit(X)
    codes, objective = learner.transform(X.toarray()), learner.objective(X.toarray())
    monkeypatch.setattr(SparseSource, "read", None)
    monkeypatch.setattr(parts_module, "VALUES_PER_PART", 1000)  # a few parts
    found = learner.transform(X)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, codes, atol=tolerance * np.abs(codes).max())
    assert learner.objective(X) == pytest.approx(objective, rel=tolerance)


def test_absent_entries_that_are_missing_are_not_zeros(X):
    matrix = sparse.csr_array(np.where(np.random.default_rng(0).random(X.shape) < 0.04, X, 0))
    learner = MaskedDictionaryLearning(3, missing="absent", n_epochs=1, random_state=0).fit(matrix)
    with_nan = np.where(matrix.toarray() == 0, np.nan, matrix.toarray())
    codes = learner.transform(matrix)
    np.testing.assert_allclose(codes, learner.set_params(missing="nan").transform(with_nan), atol=1e-9)


def holey(X):
    X = X.copy()
    X[::3, 1:5] = np.nan
    X[7] = np.nan
    return X


TASK_SOURCES = {
    "blocks": (lambda X: Blocks(X), False),
    "small records": (lambda X: JoinedSource([ArraySource(part) for part in np.array_split(X, 13)]), False),
    "missing values": (lambda X: ArraySource(holey(X), allow_nan=True), True),
    "sparse": (lambda X: SparseSource(sparse.csr_array(X * (np.random.default_rng(0).random(X.shape) < 0.03))), False),
}


@pytest.mark.parametrize("name", TASK_SOURCES)
def test_tasks_give_the_bits_of_one_process(name, tmp_path, monkeypatch, X):
    make, missing = TASK_SOURCES[name]
    source = make(X)
    learner = MaskedDictionaryLearning(4, random_state=0).fit(X)
    given = source, learner.components_, problem_of(learner)
    monkeypatch.setattr(parts_module, "VALUES_PER_PART", 20 * X.shape[1] * source.stored_share)
    tasks = row_tasks(source, 4, missing=missing)
    assert [row for parts in tasks for part in parts for row in part] == list(range(len(X)))
    assert sum(map(len, tasks)) > 2
    assert len(tasks) <= len(source.records)
    # Tasks may run in any order; their sums are added in the order of rows.
    found = [sum_losses(*given, parts, missing=missing) for parts in reversed(tasks)][::-1]
    expected = encode_module.objective(*given, missing=missing)
    assert mean_loss([each for sums in found for each in sums]) == expected
    for suffix in (".npy", ".zarr"):
        encode_module.encode_to(tmp_path / f"serial{suffix}", *given, missing=missing)
        with shared_matrix(tmp_path / f"tasks{suffix}", (len(X), 4), source.dtype) as scratch:
            for parts in reversed(tasks):
                encode_rows_into(scratch, *given, parts, missing=missing)
        assert content(tmp_path / f"tasks{suffix}") == content(tmp_path / f"serial{suffix}")
    assert len(list(tmp_path.iterdir())) == 4  # no scratch files


def content(path):
    """Return the bytes of a file, or of all files of a folder by name."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}
