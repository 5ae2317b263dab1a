"""Opening data as a source."""

import errno
import sys

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, MatrixSource, RandomMasks, open_source
from terafactor.data.open import absolute_address, formats
from terafactor.errors import DataError, DataTypeError, MissingDependencyError, StorageError


def test_a_source_is_returned_as_it_is():
    source = ArraySource(np.eye(3))
    assert open_source(source) is source


def test_an_array_of_integers_becomes_floats():
    assert open_source(np.eye(3, dtype=np.int8)).dtype == np.float32
    assert open_source(np.eye(3, dtype=np.int64)).dtype == np.float64


@pytest.mark.parametrize("data", [3, {}, [], [1, 2], object()])
def test_the_error_for_an_unknown_object_lists_the_formats(data):
    with pytest.raises(DataTypeError, match="supported:") as caught:
        open_source(data)
    assert all(form.description in str(caught.value) for form in formats())


def test_the_error_for_an_unknown_file_lists_the_formats(tmp_path):
    (tmp_path / "what.xyz").write_text("")
    with pytest.raises(DataError, match=r"the format of .*what.xyz is unknown; supported:"):
        open_source(tmp_path / "what.xyz")
    with pytest.raises(DataError, match="pass a glob"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("missing.npy", "missing.npy does not exist"),
        ("missing*.npy", "no file matches 'missing\\*.npy'"),
        ("unknown://x.npy", "unknown:// is none of npy://"),
        ("http://example.org/x.npy", "http:// is a URL, and these are not supported: download the file first"),
        ("", "is not a path"),
    ],
)
def test_text_that_leads_nowhere_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        open_source(text)


@pytest.mark.parametrize("scheme", ["", "npy://"])
def test_a_folder_is_not_an_npy_file(tmp_path, scheme):
    (tmp_path / "X.npy").mkdir()
    with pytest.raises(DataError, match=r"X.npy is a folder, not a .npy file: .* pass a glob, such as .*X.npy/\*.npy"):
        open_source(f"{scheme}{tmp_path}/X.npy")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    np.save(tmp_path / "X.npy", np.eye(3))
    monkeypatch.setattr("terafactor.data.sources.npy.open", refuse, raising=False)
    with pytest.raises(StorageError, match=r"cannot read .*X.npy: Permission denied"):
        open_source(tmp_path / "X.npy")


def test_a_scheme_overrides_the_name_of_the_file(tmp_path):
    np.save(tmp_path / "values.npy", np.eye(3))
    (tmp_path / "values.npy").rename(tmp_path / "values.dat")
    assert open_source(f"npy://{tmp_path}/values.dat").shape == (3, 3)


def test_a_file_whose_name_looks_like_a_glob_is_found(tmp_path):
    np.save(tmp_path / "a[1].npy", np.eye(3))
    assert open_source(f"{tmp_path}/a[1].npy").shape == (3, 3)


def test_a_glob_in_a_folder_whose_name_looks_like_one_finds_its_files(tmp_path, monkeypatch):
    folder = tmp_path / "päth [brackets]" / "[1]"
    folder.mkdir(parents=True)
    for name in "ab":
        np.save(folder / f"{name}.npy", np.eye(3))
    assert open_source(f"{folder}/*.npy").shape == (6, 3)
    monkeypatch.chdir(folder.parent)
    address = absolute_address("[1]/*.npy")
    monkeypatch.chdir(tmp_path)
    assert open_source(address).shape == (6, 3)


def test_what_is_inside_a_file_of_one_matrix_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(DataError, match="holds one matrix"):
        open_source(f"{tmp_path}/a.npy::b")


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("h5py", "a.h5", "hdf5"), ("h5py", "a.h5ad", "anndata"), ("polars", "a.parquet", "tables")],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, module, name, extra):
    (tmp_path / name).write_text("")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"needs {module}.*terafactor\[{extra}\]"):
        open_source(tmp_path / name)


def test_the_estimator_opens_paths(tmp_path, X):
    np.save(tmp_path / "X.npy", X)
    learner = MaskedDictionaryLearning(4, reduction=RandomMasks(3, "masked"), random_state=0)
    expected = learner.fit(X).components_
    for data in (tmp_path / "X.npy", str(tmp_path / "X.npy"), [tmp_path / "X.npy"]):
        np.testing.assert_array_equal(learner.fit(data).components_, expected)
    np.testing.assert_array_equal(learner.transform(tmp_path / "X.npy"), learner.transform(X))


@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_found_while_reading(tmp_path, X, value, reduction):
    bad = X[40:].copy()
    bad[7, 11] = value
    np.save(tmp_path / "a.npy", X[:40])
    np.save(tmp_path / "b.npy", bad)
    message = "b.npy contains (NaN|infinity).* at row 7, feature 11"
    with pytest.raises(DataError, match=message):
        MaskedDictionaryLearning(2, reduction=reduction, n_epochs=20, random_state=0).fit(str(tmp_path / "*.npy"))
    learner = MaskedDictionaryLearning(2).fit(X)
    with pytest.raises(DataError, match=message):
        learner.transform(str(tmp_path / "*.npy"))


def test_every_format_has_a_scheme_of_its_own():
    names = [form.name for form in formats()]
    assert len(names) == len(set(names))
    assert issubclass(type(open_source(np.eye(2))), MatrixSource)
