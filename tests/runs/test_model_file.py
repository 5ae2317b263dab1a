"""Saving, loading and exporting fitted estimators."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall, RandomMasks, load_model
from terafactor.errors import DataError, ParameterError, TerafactorError
from terafactor.runs import read_artifact

GOLDEN = Path(__file__).parent / "golden"


def fitted(X, **parameters):
    defaults = {"n_components": 3, "alpha": 0.1, "batch_size": 7, "reduction": 3, "random_state": 0}
    return MaskedDictionaryLearning(**(defaults | parameters)).fit(X)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"reduction": RandomMasks(2, "masked")},
        {"reduction": RandomMasks(2, "masked", "exact"), "constraint": "l1"},
        {"penalty": ElasticNet(0.3), "constraint": NormBall("elastic-net", 2.0, 0.4), "positive_dict": True},
        {"reduction": 1, "tol": 1e-9, "missing": "nan"},
        {"reduction": np.int64(2)},  # as grids of parameters have them
    ],
)
def test_a_loaded_model_is_the_one_saved(X, tmp_path, parameters):
    model = fitted(X, **parameters)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    ours, theirs = model.get_params(), loaded.get_params()
    assert ours == theirs
    np.testing.assert_array_equal(loaded.components_, model.components_)
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.objective(X) == model.objective(X)
    assert (loaded.n_steps_, loaded.statistics_) == (model.n_steps_, model.statistics_)
    np.testing.assert_array_equal(loaded.partial_fit(X).components_, model.partial_fit(X).components_)


def test_saving_leaves_the_model_as_it_is(X, tmp_path):
    model, twin = (fitted(X, reduction=RandomMasks(2, "masked", "exact")) for _ in range(2))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(model.partial_fit(X).components_, twin.partial_fit(X).components_)


def test_names_of_features_are_kept(X, tmp_path):
    frame = pd.DataFrame(X, columns=[f"voxel {i}" for i in range(X.shape[1])])
    fitted(frame).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.rename(columns={"voxel 0": "other"}))


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        MaskedDictionaryLearning().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


EXPORTED = {
    "components_", "feature_counts_", "n_features_in_", "n_steps_", "n_iter_", "shards_", "round_steps_",
}  # fmt: skip
EXPORTED |= {"alpha_", "batch_size_", "reduction_"}


def test_export_is_plain_arrays(X, tmp_path):
    model = fitted(X)
    model.export(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["components_"], model.components_)
        assert arrays["reduction_"] == model.reduction_
        assert set(arrays) == EXPORTED
    with pytest.raises(ParameterError, match=r"\.npz"):
        model.export(tmp_path / "model.txt")


def test_export_replaces_a_file_only_with_overwrite(X, tmp_path):
    (tmp_path / "model.npz").write_text("mine")
    with pytest.raises(ParameterError, match=r"model\.npz exists: pass overwrite=True"):
        fitted(X).export(tmp_path / "model.npz")
    assert (tmp_path / "model.npz").read_text() == "mine"
    fitted(X).export(tmp_path / "model.npz", overwrite=True)
    assert "components_" in np.load(tmp_path / "model.npz")


def test_export_hands_over_arrays_only(X, tmp_path, monkeypatch):
    """NumPy before 2.2 knows no option of savez: whatever is named is an array to it."""
    names, savez = [], np.savez
    monkeypatch.setattr(np, "savez", lambda file, **arrays: (names.extend(arrays), savez(file, **arrays)))
    fitted(X).export(tmp_path / "model.npz")
    assert set(names) == EXPORTED


def test_names_of_features_are_exported_without_objects(X, tmp_path):
    frame = pd.DataFrame(X, columns=[f"voxel {i}" for i in range(X.shape[1])])
    fitted(frame).export(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        assert list(arrays["feature_names_in_"]) == list(frame.columns)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_an_unknown_kind_or_parameter_is_refused(X, tmp_path):
    from tests.runs.test_artifact import resign

    fitted(X).save(tmp_path / "model")
    parameters = dict(read_artifact(tmp_path / "model").parameters)
    resign(tmp_path / "model", parameters=parameters | {"command": "rm"})
    with pytest.raises(DataError, match="parameters that MaskedDictionaryLearning does not: command"):
        load_model(tmp_path / "model")
    resign(tmp_path / "model", parameters=parameters, kind="os:system")
    with pytest.raises(DataError, match=r"none of .*MaskedDictionaryLearning"):
        load_model(tmp_path / "model")


def test_parts_that_do_not_belong_together_are_refused(X, tmp_path):
    from tests.runs.test_artifact import resign

    fitted(X).save(tmp_path / "model")
    parameters = dict(read_artifact(tmp_path / "model").parameters)
    resign(tmp_path / "model", parameters=parameters | {"n_components": 4})
    with pytest.raises(DataError, match="3 atoms, but n_components is 4"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_every_format_version_still_loads(folder):
    """One folder per format version, written when it was current and never changed since."""
    X = np.arange(40.0).reshape(8, 5) % 7
    expected = np.loadtxt(folder / "codes.txt")
    np.testing.assert_allclose(load_model(folder / "model").transform(X), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_atoms_that_are_not_finite_are_refused(X, tmp_path, bad):
    model = fitted(X)
    model._state.dictionary[1, 2] = bad
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="array 'dictionary' of the file has NaN or infinity"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("bad", [np.inf, np.nan, 0.5, -1])
def test_a_reduction_that_no_fit_uses_is_refused(X, tmp_path, bad):
    from tests.runs.test_artifact import resign

    fitted(X).save(tmp_path / "model")
    numbers = dict(read_artifact(tmp_path / "model").state_dict.numbers)
    resign(tmp_path / "model", numbers=numbers | {"reduction": bad})
    with pytest.raises(TerafactorError, match=r"reduction must be a number >= 1|invalid reduction in the file"):
        load_model(tmp_path / "model")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nope is not a model or checkpoint: it does not exist"):
        load_model(tmp_path / "nope")
