"""Model files: only plain options of a fixed list reach nilearn, for each kind of masker."""

import dataclasses

import nibabel
import numpy as np
import pytest
from nilearn.datasets import load_fsaverage
from nilearn.surface import SurfaceImage
from tests.brain.test_kinds import dense, series

from terafactor import load_model
from terafactor.brain import BrainDictionaryLearning
from terafactor.errors import DataError
from terafactor.runs.artifact import write_artifact
from terafactor.solver.state_dict import StateDict
from terafactor.training.model_file import restore_estimator

OPTIONS = {"n_components": 2, "n_epochs": 1, "batch_size": 10, "random_state": 0, "store": False}


def fitted(kind, **options):
    if kind == "cifti":
        return BrainDictionaryLearning(**OPTIONS, **options).fit([dense(series())])
    if kind == "surface":
        values = series(30, 2 * 10242).T
        mesh = load_fsaverage("fsaverage5")["pial"]
        image = SurfaceImage(mesh=mesh, data={"left": values[:10242], "right": values[10242:]})
        return BrainDictionaryLearning(**OPTIONS, **options).fit([image])
    mask = nibabel.Nifti1Image(np.ones((4, 4, 4), np.uint8), np.eye(4))
    image = nibabel.Nifti1Image(100 + series(30, 64).T.reshape(4, 4, 4, 30), np.eye(4))
    return BrainDictionaryLearning(**OPTIONS, mask=mask, **options).fit([image])


@pytest.fixture(scope="module", params=["volume", "surface", "cifti"])
def artifact(request):
    return fitted(request.param)._task().artifact()


def with_options(artifact, **options):
    numbers = dict(artifact.state_dict.numbers)
    numbers["brain.options"] = {**numbers["brain.options"], **options}
    return dataclasses.replace(artifact, state_dict=StateDict(numbers, artifact.state_dict.arrays))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("made_up", 1),
        ("__class__", "object"),
        ("confounds", "/tmp/table.tsv"),
        ("standardize", 7),
        ("standardize", ["zscore"]),
        ("standardize", {"location": "/tmp"}),
        ("standardize_confounds", 3.0),
        ("detrend", "yes"),
        ("high_variance_confounds", "all"),
        ("t_r", "2"),
        ("t_r", True),
        ("high_pass", [0.1]),
        ("low_pass", float("nan")),
        ("smoothing_fwhm", "/tmp"),
        ("smoothing_fwhm", 2**31),
        ("smoothing_fwhm", [4.0, 4.0, 1e9]),
        ("smoothing_fwhm", ["a", 1, 1]),
        ("dtype", "object"),
        ("dtype", "O"),
        ("dtype", 3),
        ("mask_strategy", 3),
        ("target_shape", ["a", 1, 1]),
        ("target_affine", [[1, 2], [3]]),
        ("clean_args", {"confounds": "/tmp/table.tsv"}),
        ("clean_args", {"filter": ["cosine"]}),
        ("clean_args", {"butterworth__order": {"a": 1}}),
        ("clean_args", [1]),
    ],
)
def test_an_invalid_option_in_a_file_is_refused(artifact, option, value, tmp_path):
    write_artifact(with_options(artifact, **{option: value}), tmp_path / "model")
    with pytest.raises(DataError, match=f"invalid options of a masker in the model file: {option}="):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("value", [print, object(), lambda: None, np.ones(3)])
@pytest.mark.parametrize("option", ["standardize", "detrend", "t_r", "clean_args", "dtype"])
def test_objects_are_refused(artifact, option, value):
    with pytest.raises(DataError, match=f"invalid options of a masker in the model file: {option}="):
        restore_estimator(with_options(artifact, **{option: value}))


@pytest.mark.parametrize("option", ["memory", "memory_level", "mask_img", "mask_args", "reports", "verbose", "n_jobs"])
def test_options_that_do_not_change_the_output_are_dropped(artifact, option, tmp_path):
    write_artifact(with_options(artifact, **{option: str(tmp_path / "pickles")}), tmp_path / "model")
    before, after = (
        restore_estimator(artifact).masker_.get_params(),
        load_model(tmp_path / "model").masker_.get_params(),
    )
    assert str(tmp_path / "pickles") not in map(str, after.values())
    if option != "mask_img":
        assert before.get(option) == after.get(option)


@pytest.mark.parametrize(("kind", "option"), [("cifti", "smoothing_fwhm"), ("surface", "target_affine")])
def test_options_of_another_kind_of_masker_are_refused(kind, option):
    value = 4.0 if option == "smoothing_fwhm" else np.eye(3).tolist()
    with pytest.raises(DataError, match=f"{option}=.*maskers of images of kind"):
        restore_estimator(with_options(fitted(kind)._task().artifact(), **{option: value}))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("volume", {"smoothing_fwhm": np.float64(4.0), "dtype": np.float32, "standardize": "psc"}),
        ("volume", {"high_pass": 0.01, "t_r": 2, "clean_args": {"filter": "cosine"}, "smoothing_fwhm": None}),
        ("volume", {"target_affine": np.eye(4), "target_shape": (4, 4, 4), "standardize": None}),
        (
            "volume",
            {"high_pass": 0.01, "t_r": 2, "clean_args": {"butterworth__padtype": "even", "ensure_finite": True}},
        ),
        ("surface", {"t_r": np.float64(2.0), "standardize": "psc", "standardize_confounds": False}),
        ("cifti", {"low_pass": 0.1, "t_r": 2.0, "detrend": False}),
    ],
)
def test_options_of_users_survive_the_file(kind, options, tmp_path):
    atlas = fitted(kind, **options)
    atlas.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model").masker_.get_params()
    for name, value in options.items():
        if name == "dtype":
            assert np.dtype(loaded[name]) == value
        elif name != "target_affine":  # that of the mask, which is resampled
            np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize("entry", [3e-319, 1e300])
def test_affines_on_which_lapack_may_hang_are_refused(entry):
    artifact = fitted("volume")._task().artifact()
    affine = artifact.state_dict.arrays["brain.affine"].copy()
    affine[:3, :2] = entry
    state_dict = StateDict(artifact.state_dict.numbers, {**artifact.state_dict.arrays, "brain.affine": affine})
    with pytest.raises(DataError, match="invalid mask in the model file: its affine describes no voxels"):
        restore_estimator(dataclasses.replace(artifact, state_dict=state_dict))
