"""The estimator: recovery of networks, nilearn's interface, reproducibility."""

import dataclasses

import nibabel
import numpy as np
import pytest
from nilearn.decomposition import DictLearning
from nilearn.maskers import MultiNiftiMasker, NiftiMasker
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from terafactor import load_model, train
from terafactor.brain import BrainDictionaryLearning
from terafactor.datasets import matched_correlation
from terafactor.errors import DataError, DataTypeError, ParameterError
from terafactor.solver.state_dict import StateDict
from terafactor.training.model_file import restore_estimator

OPTIONS = {"alpha": 1e-3, "reduction": 3, "batch_size": 20, "n_epochs": 10, "random_state": 0, "smoothing_fwhm": None}


def learned(study, images=None, **changes):
    estimator = BrainDictionaryLearning(**({"n_components": 5, "mask": study.mask} | OPTIONS | changes))
    return estimator.fit(study.images if images is None else images, confounds="auto")


@pytest.fixture(scope="module")
def fitted(study):
    return learned(study)


@pytest.fixture(scope="module")
def truth(study):
    return NiftiMasker(study.mask, standardize=None).fit().transform(study.networks)


def test_finds_the_networks(fitted, truth):
    assert matched_correlation(fitted.components_, truth) > 0.9


def test_maps_are_in_the_ball_mostly_positive_and_in_order(fitted, study):
    assert np.abs(fitted.components_).sum(axis=1).max() <= 1 + 1e-5
    assert (fitted.components_.sum(axis=1) > 0).all()
    alone = fitted.score(study.images, confounds="auto", per_component=True)
    assert alone.argmax() < 2
    assert alone.argmin() > 2


def test_every_voxel_is_visited_thirty_times_by_default(study):
    atlas = learned(study, n_epochs=None)
    assert atlas.feature_counts_.min() >= 30 * 20 * 0.9  # the last batch of a run is shorter


def test_by_default_a_fit_uses_all_voxels_and_at_least_150_steps(study):
    atlas = BrainDictionaryLearning(3, mask=study.mask, random_state=0)
    assert atlas.reduction == 1
    assert atlas.fit(study.images[:1]).n_steps_ >= 150


def test_follows_the_conventions_of_nilearn(fitted, study):
    assert fitted.components_.shape == (5, fitted.masker_.n_elements_)
    assert fitted.n_elements_ == 5
    np.testing.assert_array_equal(fitted.mask_img_.affine, nibabel.load(study.mask).affine)
    assert fitted.components_img_.shape == (*nibabel.load(study.mask).shape, 5)
    np.testing.assert_allclose(
        NiftiMasker(study.mask, standardize=None).fit().transform(fitted.components_img_),
        fitted.components_,
        rtol=1e-6,
    )


def test_series_are_the_optimal_codes_of_the_cleaned_volumes(fitted, study):
    series = fitted.transform(study.images[:2], confounds="auto")
    assert [part.shape for part in series] == [(50, 5), (50, 5)]
    (image,) = fitted.inverse_transform(series[:1])
    assert image.shape[3] == 50
    maps = fitted.components_.astype(float)
    cleaned = _cleaned(fitted, study, 0)
    gradient = (series[0] @ maps - cleaned) @ maps.T + fitted.alpha * series[0]
    assert np.abs(gradient).max() < 1e-4 * np.abs(cleaned @ maps.T).max()
    loss = 0.5 * ((cleaned - series[0] @ maps) ** 2).sum(axis=1) + 0.5 * fitted.alpha * (series[0] ** 2).sum(axis=1)
    assert fitted.objective(study.images[0], confounds="auto") == pytest.approx(loss.mean(), rel=1e-4)


def test_score_is_the_variance_explained_by_least_squares(fitted, study):
    rows = np.concatenate([_cleaned(fitted, study, number) for number in range(4)])
    maps = fitted.components_.astype(float)
    codes = np.linalg.lstsq(maps.T, rows.T, rcond=None)[0]
    expected = 1 - ((rows - codes.T @ maps) ** 2).sum() / (rows**2).sum()
    assert fitted.score(study.images, confounds="auto") == pytest.approx(expected, rel=1e-4)


def test_score_is_at_least_that_of_nilearn(fitted, study):
    peer = nilearn_with(fitted, study)
    images = [str(path) for path in study.images]
    assert fitted.score(study.images, confounds=False) > peer.score(images)
    np.testing.assert_allclose(
        # Per map, nilearn subtracts the mean of principal components, whose signs are arbitrary; we subtract nothing.
        fitted.score(study.images, confounds=False, per_component=True),
        peer.score(images, per_component=True),
        rtol=3e-2,
        atol=1e-4,
    )


def nilearn_with(fitted, study):
    """Return nilearn's estimator with the maps of ours."""
    peer = DictLearning(5, mask=study.mask, smoothing_fwhm=None, standardize="zscore_sample", random_state=0)
    masker = MultiNiftiMasker(study.mask, standardize="zscore_sample", detrend=True).fit()
    peer.masker_, peer.mask_img_, peer.components_ = masker, masker.mask_img_, fitted.components_
    peer._fit_cache()
    return peer


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_replaces_dict_learning(study):
    """The same lines work with either class."""
    for kind, alpha in ((DictLearning, 1), (BrainDictionaryLearning, 1e-3)):
        model = kind(
            n_components=4,
            alpha=alpha,
            mask=str(study.mask),
            smoothing_fwhm=None,
            standardize="zscore_sample",
            memory=None,
            memory_level=0,
            n_jobs=1,
            random_state=0,
            n_epochs=1,
            verbose=0,
        )
        model.fit([str(path) for path in study.images], confounds=[str(path) for path in study.confounds])
        assert model.components_img_.shape[3] == model.n_elements_ == 4
        loadings = model.transform([str(study.images[0])], confounds=[str(study.confounds[0])])
        assert loadings[0].shape == (50, 4)
        assert model.inverse_transform(loadings)[0].shape[3] == 50
        assert 0 < model.score([str(path) for path in study.images]) < 1


class TestParameters:
    def test_options_of_the_masker_are_parameters(self):
        estimator = BrainDictionaryLearning(7, smoothing_fwhm=6, standardize=None)
        assert estimator.get_params()["smoothing_fwhm"] == 6
        copy = clone(estimator).set_params(n_components=8, low_pass=0.1)
        assert copy.get_params()["low_pass"] == 0.1
        assert copy.n_components == 8
        assert "low_pass" not in estimator.get_params()

    @pytest.mark.parametrize(
        "check",
        [
            check_get_params_invariance,
            check_no_attributes_set_in_init,
            check_parameters_default_constructible,
            check_set_params,
        ],
    )
    def test_checks_of_scikit_learn(self, check):
        check("BrainDictionaryLearning", BrainDictionaryLearning())

    def test_a_masker_is_copied_with_its_options(self, study):
        masker = NiftiMasker(study.mask, smoothing_fwhm=8, standardize="zscore_sample")
        atlas = learned(study, mask=masker, n_epochs=1, smoothing_fwhm=12)
        assert atlas.masker_.smoothing_fwhm == 12
        assert masker.smoothing_fwhm == 8
        assert not hasattr(masker, "mask_img_")

    def test_memory_is_passed_to_the_masker(self, study, tmp_path):
        atlas = learned(study, n_epochs=1, memory=str(tmp_path / "cache"), memory_level=1)
        assert atlas.masker_.memory == str(tmp_path / "cache")

    def test_a_model_file_cannot_set_a_cache(self, study, tmp_path):
        """joblib would load pickles from it, which the author of the file may have written."""
        atlas = learned(study, n_epochs=1, memory=str(tmp_path / "cache"), memory_level=1)
        atlas.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert loaded.masker_.memory != str(tmp_path / "cache")
        assert "memory" not in loaded.get_params()

    @pytest.mark.parametrize("option", ["memory", "mask_args", "clean_args", "reports", "made_up"])
    def test_options_in_a_file_are_plain_and_known(self, study, option):
        artifact = learned(study, n_epochs=1)._task().artifact()
        numbers = dict(artifact.state_dict.numbers)
        numbers["brain.options"] = {**numbers["brain.options"], option: {"location": ["/tmp", object()]}}
        hostile = dataclasses.replace(artifact, state_dict=StateDict(numbers, artifact.state_dict.arrays))
        if option in ("clean_args", "made_up"):
            with pytest.raises(DataError, match=f"invalid options of a masker in the model file: {option}"):
                restore_estimator(hostile)
        else:
            assert restore_estimator(hostile).masker_.get_params()[option] in (None, True)

    def test_an_unknown_parameter_is_refused_when_fitted(self, study):
        with pytest.raises(ParameterError, match="redduction is neither"):
            learned(study, redduction=3)


class TestData:
    def test_computes_a_mask_from_the_first_volumes(self, study):
        atlas = learned(study, mask=None, n_epochs=1)
        given = np.asarray(nibabel.load(study.mask).dataobj) > 0
        found = np.asarray(atlas.mask_img_.dataobj) > 0
        assert (given & found).sum() > 0.8 * (given | found).sum()

    def test_more_maps_than_volumes(self, study):
        atlas = BrainDictionaryLearning(60, mask=study.mask, **OPTIONS).fit(study.images[0])
        assert np.isfinite(atlas.components_).all()
        assert atlas.components_.shape[0] == 60

    def test_runs_of_different_length(self, study):
        images = [nibabel.load(study.images[0]), nibabel.load(study.images[1]).slicer[..., :23]]
        atlas = BrainDictionaryLearning(3, mask=study.mask, **OPTIONS).fit(images)
        assert [len(part) for part in atlas.transform(images)] == [50, 23]

    def test_the_store_is_used_again_for_the_same_images(self, study, tmp_path):
        first = learned(study, n_epochs=1, store=tmp_path / "store")
        written = (tmp_path / "store" / "zarr.json").stat().st_mtime_ns
        again = learned(study, n_epochs=1, store=tmp_path / "store")
        assert (tmp_path / "store" / "zarr.json").stat().st_mtime_ns == written
        np.testing.assert_array_equal(first.components_, again.components_)
        with pytest.raises(DataError, match="holds other images"):
            learned(study, n_epochs=1, store=tmp_path / "store", detrend=False)
        with pytest.raises(DataError, match="holds other images"):
            learned(study, n_epochs=1, store=tmp_path / "store", runs=np.repeat([0, 1], 25))

    def test_packing_shows_progress_without_a_terminal(self, study, monkeypatch, capsys):
        monkeypatch.setattr("terafactor.solver.progress.SHOW_AFTER", 0)
        learned(study, n_epochs=1)
        assert "packing" not in capsys.readouterr().err
        learned(study, n_epochs=1, verbose=1)
        assert "masking and packing, " in capsys.readouterr().err

    @pytest.mark.parametrize("in_a_run", [False, True])
    @pytest.mark.parametrize("where", ["packing", "starting", "learning"])
    def test_a_failed_refit_leaves_model_and_mask_as_they_were(self, study, where, in_a_run, monkeypatch, tmp_path):
        def fail(*args, **kwargs):
            raise OSError("no space left")

        atlas = learned(study, n_epochs=1)
        before, series = dict(vars(atlas)), atlas.transform(study.images[:1])
        head = nibabel.load(study.mask)
        half = head.get_fdata() * (np.arange(head.shape[0]) < head.shape[0] // 2)[:, None, None]
        atlas.set_params(mask=nibabel.Nifti1Image(half.astype(np.uint8), head.affine))
        if where == "packing":
            monkeypatch.setattr("terafactor.brain.preparation.pack", fail)
        else:
            atlas.set_params(**({"dict_init": study.mask} if where == "starting" else {"callbacks": [fail]}))
        with pytest.raises((OSError, ParameterError)):
            train(atlas, study.images, tmp_path / "run") if in_a_run else atlas.fit(study.images)
        assert [
            name for name, value in before.items() if name.endswith("_") and getattr(atlas, name) is not value
        ] == []
        np.testing.assert_array_equal(atlas.transform(study.images[:1]), series)

    def test_a_temporary_store_vanishes(self, study, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        learned(study, n_epochs=1)
        assert not list(tmp_path.glob("terafactor-*"))

    def test_image_by_image_learns_as_well(self, study, truth):
        atlas = learned(study, store=False)
        assert matched_correlation(atlas.components_, truth) > 0.9

    def test_initial_maps(self, study, fitted, tmp_path):
        from_image = learned(study, dict_init=fitted.components_img_, n_epochs=2)
        fitted.components_img_.to_filename(tmp_path / "maps.nii.gz")
        from_file = learned(study, dict_init=tmp_path / "maps.nii.gz", n_epochs=2)
        np.testing.assert_array_equal(from_image.components_, from_file.components_)
        assert (from_image.components_ != learned(study, n_epochs=2).components_).any()
        with pytest.raises(ParameterError, match="dict_init has 5 maps, but n_components is 4"):
            learned(study, dict_init=fitted.components_img_, n_components=4)


def test_the_same_bits_for_any_number_of_threads(study, fitted):
    np.testing.assert_array_equal(learned(study, n_threads=2).components_, learned(study, n_threads=1).components_)
    np.testing.assert_array_equal(learned(study).components_, fitted.components_)


def test_a_model_survives_its_file(fitted, study, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    np.testing.assert_array_equal(loaded.background_, fitted.background_)
    before, after = (model.transform(study.images[0], confounds="auto")[0] for model in (fitted, loaded))
    np.testing.assert_array_equal(before, after)


def test_a_masker_survives_the_file(study, tmp_path):
    masker = NiftiMasker(study.mask, smoothing_fwhm=8, standardize="psc", detrend=True)
    atlas = BrainDictionaryLearning(3, mask=masker, batch_size=20, n_epochs=1, random_state=0).fit(study.images)
    atlas.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(study.images[0])[0], atlas.transform(study.images[0])[0])


def test_a_run_that_resumes_gives_the_same_bits(study, tmp_path):
    data = {"images": [str(path) for path in study.images], "confounds": [str(path) for path in study.confounds]}

    def new(name, **changes):
        return BrainDictionaryLearning(3, mask=study.mask, store=tmp_path / name, **(OPTIONS | changes))

    whole = train(new("store"), data, tmp_path / "whole", holdout=0)
    stop_after(new("store"), data, tmp_path / "parts", 17)
    resumed = train(new("store"), data, tmp_path / "parts", resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(load_model(tmp_path / "parts").components_, whole.components_)


def stop_after(estimator, data, directory, n_steps):
    """Train until a signal would have stopped the run."""
    import os
    import signal

    from terafactor.errors import RunInterruptedError

    def kill(snapshot):
        if snapshot.step == n_steps:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(RunInterruptedError):
        train(estimator, data, directory, holdout=0, callbacks=[kill])


def test_unfitted_models_and_loadings_without_a_list_are_refused(fitted):
    with pytest.raises(NotFittedError):
        BrainDictionaryLearning().transform("anything.nii.gz")
    with pytest.raises(DataTypeError, match="list of arrays"):
        fitted.inverse_transform(np.zeros((3, 5)))


def _cleaned(atlas, study, number):
    from terafactor.brain.preparation import masked_images

    source = masked_images(study.images[number], "auto", atlas.masker_, {})
    return source.read(np.arange(source.shape[0])).astype(float)


@pytest.mark.parametrize(
    "wrong",
    [
        {"reduction": 0.5},
        {"alpha": -1.0},
        {"n_epochs": 0},
        {"batch_size": 0},
        {"callbacks": None},
        {"positive_dict": "no"},
    ],
)
def test_invalid_parameters_are_refused_before_images_are_read(study, tmp_path, wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        learned(study, store=tmp_path / "store", **wrong)
    assert not list(tmp_path.iterdir())


def test_fit_transform_uses_the_same_confounds(study):
    atlas = BrainDictionaryLearning(3, mask=study.mask, batch_size=20, n_epochs=1, random_state=0)
    series = atlas.fit_transform((path for path in study.images[:2]), confounds=study.confounds[:2])
    expected = atlas.transform(study.images[:2], confounds=study.confounds[:2])
    for found, needed in zip(series, expected, strict=True):
        np.testing.assert_array_equal(found, needed)


def test_constant_images_have_no_explained_variance(study):
    image = nibabel.load(study.images[0])
    constant = nibabel.Nifti1Image(np.full(image.shape, 5, np.float32), image.affine)
    atlas = BrainDictionaryLearning(3, mask=study.mask, batch_size=20, n_epochs=1, random_state=0).fit(constant)
    assert np.isfinite(atlas.components_).all()
    assert not atlas.transform(constant)[0].any()
    assert atlas.score(constant) == 0


def test_voxels_of_another_size_survive_the_file(study, tmp_path):
    options = {"target_affine": np.diag([15.0, 15, 15]), "batch_size": 20, "n_epochs": 1, "random_state": 0}
    atlas = BrainDictionaryLearning(3, mask=study.mask, **options).fit(study.images[:2])
    atlas.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.components_img_.affine, atlas.components_img_.affine)
    np.testing.assert_array_equal(loaded.transform(study.images[0])[0], atlas.transform(study.images[0])[0])


def test_images_of_another_kind_than_the_maps_are_refused(fitted, tmp_path):
    from tests.brain.test_kinds import dense, series

    dense(series()).to_filename(tmp_path / "run.dtseries.nii")
    with pytest.raises(DataError, match=r"run\.dtseries\.nii is a CIFTI series, but .* is a volume"):
        fitted.transform(tmp_path / "run.dtseries.nii")


@pytest.mark.parametrize("wrong", [np.ones((3, 5)), "absent.nii.gz", __file__])
def test_initial_maps_must_be_an_image(study, wrong):
    atlas = BrainDictionaryLearning(3, mask=study.mask, dict_init=wrong, store=False)
    with pytest.raises(DataError, match="dict_init must be an image of maps"):
        atlas.fit(study.images[:1])


def test_a_mask_must_be_an_image(study):
    with pytest.raises(DataError, match=r"the mask cannot be used: .*test_estimator\.py"):
        BrainDictionaryLearning(3, mask=__file__, store=False).fit(study.images[:1])
