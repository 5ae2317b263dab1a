"""Sparse matrices as sources, in memory and from files."""

import re
import zipfile

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, MatrixCompletion, RandomMasks, open_source
from terafactor.data import ArraySource, SparseSource
from terafactor.data.views.joined import JoinedSource
from terafactor.data.views.rows import SelectedRows
from terafactor.errors import DataError, DataTypeError
from terafactor.testing import SourceContract


def make_matrix(dtype=np.float64):
    return sparse.random_array((37, 23), density=0.2, rng=np.random.default_rng(0), dtype=dtype)


class TestSparseSource(SourceContract):
    def make(self, tmp_path):
        matrix = make_matrix()
        return SparseSource(matrix), matrix.toarray()


class TestAbsentIsMissing(SourceContract):
    def make(self, tmp_path):
        matrix = make_matrix(np.float32).tocsr()
        expected = np.full(matrix.shape, np.nan, np.float32)
        coordinates = matrix.tocoo()
        expected[coordinates.row, coordinates.col] = coordinates.data
        return SparseSource(matrix, absent=np.nan), expected


class TestNpz(SourceContract):
    def make(self, tmp_path):
        sparse.save_npz(tmp_path / "matrix.npz", make_matrix(np.float32).tocsc())
        return open_source(tmp_path / "matrix.npz"), make_matrix(np.float32).toarray()


class TestSomeRowsOfSparse(SourceContract):
    def make(self, tmp_path):
        rows = np.arange(3, 37, 2)
        return SelectedRows(SparseSource(make_matrix()), rows), make_matrix().toarray()[rows]


class TestSeveralSparse(SourceContract):
    def make(self, tmp_path):
        first, second = make_matrix().tocsr(), make_matrix().tocsr()[:9]
        return JoinedSource([SparseSource(first), SparseSource(second)]), sparse.vstack([first, second]).toarray()


class TestSparseObject(SourceContract):
    def make(self, tmp_path):
        return open_source(make_matrix().tocsr()), make_matrix().toarray()


def write_h5ad(path, matrix):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(matrix)
    data.write_h5ad(path)
    return data


@pytest.mark.filterwarnings("ignore")
class TestSparseH5ad(SourceContract):
    def make(self, tmp_path):
        write_h5ad(tmp_path / "cells.h5ad", make_matrix(np.float32).tocsr())
        return open_source(tmp_path / "cells.h5ad"), make_matrix(np.float32).toarray()


@pytest.mark.filterwarnings("ignore")
class TestAbsentIsMissingInH5ad(SourceContract):
    def make(self, tmp_path):
        matrix = make_matrix().tocsr()
        write_h5ad(tmp_path / "cells.h5ad", matrix)
        expected = SparseSource(matrix, absent=np.nan).read(np.arange(37))
        return open_source(tmp_path / "cells.h5ad").absent_as_missing(), expected


@pytest.mark.filterwarnings("ignore")
class TestSparseAnnData(SourceContract):
    def make(self, tmp_path):
        data = write_h5ad(tmp_path / "cells.h5ad", make_matrix().tocsr())
        return open_source(data), make_matrix().toarray()


def test_stored_share():
    matrix = make_matrix().tocsr()
    share = matrix.nnz / (37 * 23)
    source = SparseSource(matrix)
    assert source.stored_share == share
    assert source.absent_as_missing().stored_share == 1
    assert source.stored_bytes(np.arange(37)) == matrix.nnz * 12
    assert JoinedSource([source, source]).stored_share == share
    assert JoinedSource([source, ArraySource(matrix.toarray())]).stored_share == 1
    with pytest.raises(DataTypeError, match="dense"):
        ArraySource(matrix.toarray()).read_stored(np.arange(3))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_any_form_reads_the_same(form, kind):
    matrix = kind(make_matrix().tocsr()).asformat(form)
    np.testing.assert_array_equal(SparseSource(matrix).read(np.arange(37)), make_matrix().toarray())


def test_duplicates_are_added_up_and_the_given_matrix_is_left_alone():
    matrix = sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 2])), shape=(2, 3))
    np.testing.assert_array_equal(SparseSource(matrix).read(np.arange(2)), [[0, 3, 0], [0, 0, 4]])
    assert matrix.nnz == 3


def test_a_stored_nan_is_named():
    matrix = make_matrix().tocsr()
    matrix.data[5] = np.nan
    row = np.searchsorted(matrix.indptr, 5, side="right") - 1
    with pytest.raises(DataError, match=f"NaN.*row {row}, column {matrix.indices[5]}"):
        SparseSource(matrix)
    SparseSource(matrix, allow_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("missing", [None, "absent"])
def test_files_learn_what_the_matrix_in_memory_does(tmp_path, missing):
    matrix = make_matrix().tocsr()
    sparse.save_npz(tmp_path / "matrix.npz", matrix)
    write_h5ad(tmp_path / "cells.h5ad", matrix)
    learner = MaskedDictionaryLearning(
        3,
        alpha=0.1,
        batch_size=6,
        reduction=RandomMasks(2, "masked"),
        init=np.eye(3, 23),
        missing=missing,
        random_state=0,
    )
    atoms = learner.fit(matrix).components_
    codes, objective = learner.transform(matrix), learner.objective(matrix)
    for path in (tmp_path / "matrix.npz", tmp_path / "cells.h5ad"):
        np.testing.assert_array_equal(learner.transform(path), codes)
        assert learner.objective(path) == objective
    np.testing.assert_array_equal(learner.fit(tmp_path / "matrix.npz").components_, atoms)


@pytest.mark.filterwarnings("ignore")
def test_rows_of_a_file_in_their_order_give_the_same_bits(tmp_path):
    matrix = make_matrix().tocsr()
    write_h5ad(tmp_path / "cells.h5ad", matrix)
    learners = [
        MaskedDictionaryLearning(3, reduction=RandomMasks(1, "masked"), missing="absent", random_state=0)
        for _ in range(2)
    ]
    for learner, X in zip(learners, (matrix, tmp_path / "cells.h5ad"), strict=True):
        learner.partial_fit(X)
    np.testing.assert_array_equal(learners[0].components_, learners[1].components_)


def test_absent_means_nothing_in_a_dense_file(tmp_path):
    np.save(tmp_path / "dense.npy", make_matrix().toarray())
    with pytest.raises(DataTypeError, match=r"missing='absent' is for sparse matrices, and .*dense.npy is dense"):
        MaskedDictionaryLearning(3, missing="absent").fit(tmp_path / "dense.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_in_a_file_is_named(tmp_path, value):
    matrix = make_matrix().tocsr()
    matrix.data[5] = value
    row = np.searchsorted(matrix.indptr, 5, side="right") - 1
    sparse.save_npz(tmp_path / "matrix.npz", matrix)
    with pytest.raises(DataError, match=rf"matrix.npz contains .* at row {row}, (feature|column) {matrix.indices[5]}"):
        MaskedDictionaryLearning(3).fit(tmp_path / "matrix.npz")


def test_stored_nan_of_a_file_may_be_missing(tmp_path):
    matrix = make_matrix().tocsr()
    matrix.data[5] = np.nan
    sparse.save_npz(tmp_path / "matrix.npz", matrix)
    learner = MaskedDictionaryLearning(3, missing="nan", init=np.eye(3, 23), random_state=0)
    atoms = learner.fit(matrix).components_
    np.testing.assert_array_equal(learner.fit(tmp_path / "matrix.npz").components_, atoms)


class Unpickled:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def save_parts(path, **changes):
    matrix = make_matrix().tocsr()
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "data": matrix.data, "shape": matrix.shape}
    np.savez(path, **({"format": b"csr"} | parts | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.array([Unpickled()], object)}, "data.npy in .*never unpickled"),
        ({"indices": np.full(170, 23)}, "matrix.npz is not a valid sparse matrix: index 23 at position 0"),
        ({"indices": np.full(170, -1)}, "matrix.npz is not a valid sparse matrix: index -1 at position 0"),
        ({"indptr": np.arange(9)}, "not a sparse matrix written by scipy.sparse.save_npz"),
        ({"indptr": np.arange(38)[::-1]}, "not a sparse matrix written by scipy.sparse.save_npz"),
        ({"indptr": np.append(np.zeros(37, int), 10**6)}, "not a sparse matrix written by scipy.sparse.save_npz"),
        ({"indptr": np.full(38, np.nan)}, "matrix.npz is not a"),
        ({"format": b"csc", "shape": (23, 37), "indices": np.full(170, 23)}, "matrix.npz is not a"),
        ({"format": b"csc", "shape": (23, 37), "indptr": np.append(np.arange(37)[::-1], 170)}, "matrix.npz is not a"),
        ({"shape": (0, 23), "indptr": np.zeros(1, int), "indices": np.zeros(0, int), "data": np.zeros(0)}, "shape"),
    ],
    ids=[
        "objects",
        "beyond the last column",
        "before the first column",
        "other rows",
        "falling indptr",
        "indptr beyond the end",
        "indptr of NaN",
        "by columns, beyond the end",
        "by columns, falling",
        "no rows",
    ],
)
def test_bad_npz_files_are_refused(tmp_path, changes, message):
    save_parts(tmp_path / "matrix.npz", **changes)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "matrix.npz")


def test_other_archives_are_refused(tmp_path):
    np.savez(tmp_path / "arrays.npz", a=np.eye(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("arrays", "text", "empty"):
        with pytest.raises(DataError, match=rf"{name}.npz is not a sparse matrix"):
            open_source(tmp_path / f"{name}.npz")


def test_an_archive_that_claims_more_than_it_holds_allocates_nothing(tmp_path):
    save_parts(tmp_path / "whole.npz")
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole, zipfile.ZipFile(tmp_path / "huge.npz", "w") as huge:
        for name in whole.namelist():
            content = whole.read(name)
            if name == "data.npy":
                content = content.replace(b"(170,), }        ", b"(17000000000,), }")
            huge.writestr(name, content)
    with pytest.raises(DataError, match=r"data.npy in .*huge.npz claims 136000000000 bytes of numbers, but has 1360"):
        open_source(tmp_path / "huge.npz")


def replace_part(group, name, values):
    del group[name]
    group.create_dataset(name, data=values.astype("S") if values.dtype.kind == "U" else values)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda group: group.attrs.__setitem__("encoding-type", "csc_matrix"), r"stored by columns.*tocsr\(\)"),
        (lambda group: group.attrs.__setitem__("encoding-type", "awkward"), "a group that holds awkward"),
        (lambda group: group["indptr"].__setitem__(3, 10**6), "indptr of .* does not match"),
        (lambda group: group["indptr"].__setitem__(0, 2), "indptr of .* does not match"),
        (lambda group: group["indptr"].__setitem__(slice(2, 4), [9, 1]), "indptr of .* does not match"),
        (lambda group: replace_part(group, "indptr", np.zeros(9, int)), "indptr of .* does not match"),
        (lambda group: replace_part(group, "indptr", group["indptr"][:][np.newaxis]), "indptr of .* does not match"),
        (lambda group: replace_part(group, "indices", group["indices"][:-3]), "indptr of .* does not match"),
        (
            lambda group: replace_part(group, "indices", group["indices"][:].reshape(1, -1)),
            "indptr of .* does not match",
        ),
        (lambda group: replace_part(group, "indices", group["indices"][:].astype(str)), "indptr of .* does not match"),
        (lambda group: group["indices"].__setitem__(3, 23), "column indices outside 0 to 22"),
        (lambda group: group["indices"].__setitem__(3, -1), "column indices outside 0 to 22"),
    ],
    ids=[
        "by columns",
        "something else",
        "indptr too large",
        "late start",
        "falling",
        "short indptr",
        "2-D indptr",
        "few indices",
        "2-D indices",
        "indices of text",
        "beyond the last column",
        "before the first column",
    ],
)
def test_bad_groups_of_h5ad_files_are_refused(tmp_path, change, message):
    h5py = pytest.importorskip("h5py")
    write_h5ad(tmp_path / "cells.h5ad", make_matrix().tocsr())
    with h5py.File(tmp_path / "cells.h5ad", "r+") as file:
        change(file["X"])
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "cells.h5ad").read(np.arange(37))


def change(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


DAMAGES = {
    "index too large": lambda indptr, indices, data: (indptr, change(indices, 5, 10**6), data),
    "index of the end": lambda indptr, indices, data: (indptr, change(indices, 5, 30), data),
    "huge index": lambda indptr, indices, data: (indptr, change(indices.astype(np.int64), 5, 2**62), data),
    "negative index": lambda indptr, indices, data: (indptr, change(indices, 5, -3), data),
    "falling indptr": lambda indptr, indices, data: (change(indptr, 3, indptr[5] + 1), indices, data),
    "indptr beyond the end": lambda indptr, indices, data: (change(indptr, -1, 10**6), indices, data),
    "indptr that ends at 0": lambda indptr, indices, data: (change(indptr, -1, 0), indices, data),
    "negative indptr": lambda indptr, indices, data: (change(indptr, 0, -5), indices, data),
    "indptr that starts late": lambda indptr, indices, data: (change(indptr, 0, 2), indices, data),
    "short indptr": lambda indptr, indices, data: (indptr[:-4], indices, data),
    "long indptr": lambda indptr, indices, data: (np.append(indptr, indptr[-1]), indices, data),
    "empty indptr": lambda indptr, indices, data: (indptr[:0], indices, data),
    "indptr of floats": lambda indptr, indices, data: (change(indptr.astype(float), 3, np.nan), indices, data),
    "indptr in two dimensions": lambda indptr, indices, data: (indptr[np.newaxis], indices, data),
    "wrapping indptr": lambda indptr, indices, data: (change(indptr.astype(np.uint64), 3, 2**64 - 1), indices, data),
    "few indices": lambda indptr, indices, data: (indptr, indices[:-7], data),
    "indices of floats": lambda indptr, indices, data: (indptr, indices.astype(float), data),
    "indices of objects": lambda indptr, indices, data: (indptr, indices.astype(object), data),
    "indices in two dimensions": lambda indptr, indices, data: (indptr, indices[np.newaxis], data),
    "few values": lambda indptr, indices, data: (indptr, indices, data[:-7]),
    "many values": lambda indptr, indices, data: (indptr, indices, np.append(data, 1.0)),
    "values in two dimensions": lambda indptr, indices, data: (indptr, indices, data[np.newaxis]),
}


def damaged(name, kind):
    """Return a sparse matrix whose arrays do not match, which no constructor would build."""
    matrix = sparse.random_array((30, 20), density=0.3, format=kind, rng=np.random.default_rng(0))
    matrix.indptr, matrix.indices, matrix.data = DAMAGES[name](matrix.indptr, matrix.indices, matrix.data)
    return matrix


OPENERS = {
    "fit": lambda X: MaskedDictionaryLearning(3, random_state=0).fit(X),
    "open_source": open_source,
    "SparseSource": SparseSource,
    "ratings": lambda X: MatrixCompletion(2, random_state=0).fit(X),
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_matrix_that_leads_outside_its_arrays_is_refused(name, kind, opener):
    with pytest.raises(DataError, match="is not a valid sparse matrix"):
        OPENERS[opener](damaged(name, kind))


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("name", DAMAGES)
def test_codes_that_lead_outside_their_arrays_are_refused(name, kind):
    model = MaskedDictionaryLearning(20, alpha=0.1, n_epochs=1, random_state=0).fit(np.eye(30))
    with pytest.raises(DataError, match="codes is not a valid sparse matrix"):
        model.inverse_transform(damaged(name, kind))


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_sparse_arrays_that_are_not_matrices_are_refused(shape, opener):
    with pytest.raises(DataError, match=re.escape(f"has {'the ' if opener != 'open_source' else ''}shape {shape}")):
        OPENERS[opener](sparse.coo_array(np.ones(shape)))


def test_a_matrix_without_entries_is_learned_from():
    model = MaskedDictionaryLearning(3, alpha=0.1, random_state=0).fit(sparse.csr_array((30, 6)))
    np.testing.assert_array_equal(model.transform(sparse.csr_array((30, 6))), 0)


def damaged_otherwise(kind):
    matrix = sparse.random_array((30, 20), density=0.3, format="coo", rng=np.random.default_rng(0))
    if kind == "coo":
        matrix.coords = (matrix.coords[0] + 1000, matrix.coords[1])
        return matrix
    matrix = matrix.asformat(kind.split()[0])
    if kind == "bsr":
        matrix.indices = matrix.indices + 1000
    elif kind == "bsr that ends at 0":  # which SciPy takes for an empty matrix
        matrix.indptr[-1] = 0
    elif kind == "dok":
        matrix._dict[(10**6, 3)] = 1.0
    else:
        matrix.rows[0] = [10**6] * len(matrix.rows[0])
    return matrix


@pytest.mark.parametrize("opener", ["fit", "open_source", "SparseSource"])
@pytest.mark.parametrize("kind", ["coo", "bsr", "bsr that ends at 0", "dok", "lil"])
def test_other_forms_that_lead_outside_their_arrays_are_refused(kind, opener):
    with pytest.raises(DataError, match="is not a valid sparse matrix"):
        OPENERS[opener](damaged_otherwise(kind))


def test_unsorted_and_duplicate_indices_are_valid():
    matrix = sparse.csr_array(np.ones((3, 4)))
    matrix.indices = np.array([3, 2, 1, 0, 1, 1, 2, 0, 0, 1, 2, 3])
    for source in (open_source(matrix), SparseSource(matrix)):
        np.testing.assert_array_equal(source.read(np.arange(3)), [[1, 1, 1, 1], [1, 2, 1, 0], [1, 1, 1, 1]])


def test_a_sparse_source_of_objects_is_refused():
    matrix = sparse.csr_array(np.eye(3))
    matrix.data = matrix.data.astype(object)
    with pytest.raises(DataError, match="SparseSource takes a float32 or float64 matrix, got object"):
        SparseSource(matrix)


def test_flags_that_are_wrong_are_not_trusted():
    matrix = sparse.random_array((30, 20), density=0.3, format="csr", rng=np.random.default_rng(0))
    dense = matrix.toarray()
    assert matrix.has_canonical_format  # computed here, and cached
    first = slice(matrix.indptr[4], matrix.indptr[5])
    matrix.indices[first], matrix.data[first] = matrix.indices[first][::-1].copy(), matrix.data[first][::-1].copy()
    np.testing.assert_array_equal(SparseSource(matrix).read(np.arange(30), np.arange(3, 18)), dense[:, 3:18])
