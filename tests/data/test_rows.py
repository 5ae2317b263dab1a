"""Some rows of a source, as a source."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from terafactor import ArraySource, pack
from terafactor.data import SparseSource, open_source
from terafactor.data.source import MatrixSource, SourceView, read_finite
from terafactor.data.views.rows import SelectedRows, choose_records, choose_rows
from terafactor.errors import DataError
from terafactor.testing import SourceContract


class TestSelectedRowsOfAnArray(SourceContract):
    def make(self, tmp_path):
        X = np.random.default_rng(0).standard_normal((20, 7))
        rows = np.array([0, 1, 4, 5, 6, 11, 19])
        return SelectedRows(ArraySource(X), rows), X[rows]


class TestSelectedRowsOfAStore(SourceContract):
    def make(self, tmp_path):
        X = np.random.default_rng(0).standard_normal((24, 7)).astype(np.float32)
        for part in range(3):
            np.save(tmp_path / f"{part}.npy", X[8 * part : 8 * part + 8])
        pack(str(tmp_path / "*.npy"), tmp_path / "store", block_rows=4)
        rows = np.r_[0:4, 16:24]  # a block of the first record, none of the second, all of the third
        return SelectedRows(open_source(tmp_path / "store"), rows), X[rows]


def test_records_and_blocks_are_those_that_are_left(tmp_path):
    source, _ = TestSelectedRowsOfAStore().make(tmp_path)
    assert sum(map(len, source.records)) == 12
    assert {source.record_label(record) for record in range(len(source.records))} == {"0.npy", "2.npy"}
    assert {len(block) for record in range(len(source.records)) for block in source.row_blocks(record)} == {4}


def test_absent_entries_stay_absent():
    matrix = sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 0]]))
    source = SelectedRows(SparseSource(matrix), np.array([0, 2])).absent_as_missing()
    np.testing.assert_array_equal(source.read(np.arange(2)), [[1, np.nan, 2], [4, np.nan, np.nan]])


@pytest.mark.parametrize("n_rows", [0, 1, 9, 20])
def test_rows_are_chosen_by_the_seed(n_rows):
    source = ArraySource(np.zeros((20, 2)))
    chosen = choose_rows(source, n_rows, 3)
    assert len(set(chosen)) == n_rows
    np.testing.assert_array_equal(chosen, np.sort(chosen))
    np.testing.assert_array_equal(chosen, choose_rows(source, n_rows, 3))


def test_no_block_is_counted_again_for_each_of_the_others():
    class Block(list):
        n_counted = 0

        def __len__(self):
            Block.n_counted += 1
            return super().__len__()

    blocks = [Block(range(start, start + 4)) for start in range(0, 2000, 4)]
    source = SimpleNamespace(shape=(2000, 3), records=[range(2000)], row_blocks=lambda record: blocks)
    assert len(choose_rows(source, 1600, 0)) == 1600
    assert Block.n_counted < 20 * len(blocks)


def test_records_are_chosen_whole(tmp_path):
    source, _ = TestSelectedRowsOfAStore().make(tmp_path)
    assert set(choose_records(source, 1, 0)) in ({*range(4)}, {*range(4, 12)})
    assert len(choose_records(source, 0, 0)) == 0


def test_an_entry_that_cannot_be_used_is_named_as_users_count_rows(tmp_path):
    X = np.ones((9, 3))
    X[7, 2] = np.nan
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    np.save(tmp_path / "b.npy", X)
    some = SelectedRows(open_source([tmp_path / "a.npy", tmp_path / "b.npy"]), np.array([1, 3, 5, 8, 11, 12]))
    with pytest.raises(DataError, match=r"b\.npy contains NaN at row 7, feature 2"):
        read_finite(some, np.arange(6))


def test_a_view_forwards_every_attribute_of_a_source():
    """Whatever is added to sources has to be handed on, too; the description of the base is not that of a view."""
    public = {name for name in vars(MatrixSource) if not name.startswith("_")} | set(MatrixSource.__annotations__)
    view = SourceView(SparseSource(sparse.random_array((9, 5), density=0.2, rng=np.random.default_rng(0))))
    assert public - {"is_sparse", "describe", "origin"} <= set(vars(view)) | set(vars(SourceView))
    assert view.is_sparse == view.base.is_sparse
