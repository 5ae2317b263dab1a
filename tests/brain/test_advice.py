"""Warnings about fits whose maps are likely not useful."""

import logging

import nibabel
import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiMasker
from tests.brain.test_kinds import dense, series

from terafactor import load_model, train
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.maps import global_signal_shares
from terafactor.brain.preparation import masked_images
from terafactor.datasets import matched_correlation
from terafactor.errors import FitWarning, ParameterError

OPTIONS = {"alpha": 1e-3, "batch_size": 20, "n_epochs": 15, "smoothing_fwhm": None, "random_state": 0, "store": False}


def fit(study, images=None, confounds="auto", **changes):
    atlas = BrainDictionaryLearning(**({"n_components": 5, "mask": study.mask} | OPTIONS | changes))
    return atlas.fit(study.images if images is None else images, confounds=confounds)


def test_a_usual_fit_gives_no_warning(study, recwarn, caplog):
    fit(study)
    assert not recwarn.list
    assert [record for record in caplog.records if "compil" not in record.message] == []


@pytest.mark.parametrize("reduction", [1, 3])
def test_too_few_passes(study, reduction):
    with pytest.warns(FitWarning, match=r"each voxel was used in (1\.333|4) steps, too few .*n_epochs=\d+ or None"):
        atlas = fit(study, n_epochs=0.3, reduction=reduction)
    assert atlas.progress_ == ""  # not converged, even if the objective is flat


def test_the_suggested_number_of_passes_is_the_default(study, recwarn):
    with pytest.warns(FitWarning, match="n_epochs=13 or None"):
        fit(study, n_epochs=0.3)
    assert fit(study, n_epochs=None).n_steps_ == 13 * 12
    assert not recwarn.list


def test_a_penalty_that_is_too_strong(study):
    expected = r"alpha=50 is too strong: the maps explain 0\.\d+ % .*of 1,\d+ voxels; try alpha=0\.0008"
    with pytest.warns(FitWarning, match=expected):
        fit(study, alpha=50.0)


def test_the_suggested_penalty_gives_no_warning(study, recwarn):
    fit(study, alpha=0.0008)
    assert not recwarn.list


def test_more_maps_than_volumes(study):
    with pytest.warns(FitWarning, match="n_components=60 maps were learned from 50 volumes"):
        fit(study, study.images[:1], n_components=60)


def constant(study):
    image = nibabel.load(study.images[0])
    return nibabel.Nifti1Image(np.full(image.shape, 5, np.float32), image.affine)


def test_constant_images(study, caplog):
    with pytest.warns(FitWarning, match="the 50 volumes are constant in time inside the mask") as found:
        fit(study, constant(study), confounds=None)
    assert len(found) == 1
    assert "is constant in time inside the mask: nothing can be learned from it" in caplog.text


def test_a_constant_image_among_others_is_named(study, tmp_path, caplog):
    constant(study).to_filename(tmp_path / "flat_bold.nii.gz")
    with caplog.at_level(logging.WARNING, "terafactor"):
        fit(study, [*study.images, tmp_path / "flat_bold.nii.gz"], confounds=None)
    assert caplog.text.count("flat_bold.nii.gz is constant in time") == 1


class TestGlobalSignal:
    """A signal that all voxels share, with different weights."""

    @pytest.fixture
    def images(self, study):
        inside = np.asarray(nibabel.load(study.mask).dataobj) > 0
        random = np.random.default_rng(0)
        weights = 1 + 0.3 * random.standard_normal((inside.sum(), 1))
        images = []
        for path in study.images:
            image = nibabel.load(path)
            values = np.asarray(image.dataobj, np.float32)
            change = values[inside] - values[inside].mean(axis=1, keepdims=True)
            values[inside] += 1.5 * change.std(axis=1, keepdims=True) * weights * random.standard_normal(50)
            images.append(nibabel.Nifti1Image(values, image.affine, image.header))
        return images

    @pytest.fixture
    def truth(self, study):
        return NiftiMasker(study.mask, standardize=None).fit().transform(study.networks)

    def tables(self, study):
        return [pd.read_csv(path, sep="\t") for path in study.confounds]

    def test_shares_are_those_of_the_mean_over_voxels_and_of_the_next_component(self):
        random = np.random.default_rng(0)
        signal, weights = random.standard_normal((40, 1)), 1 + 0.1 * random.standard_normal((1, 300))
        assert global_signal_shares(signal * weights) == pytest.approx((1, 0), abs=1e-6)
        rows = signal * weights + random.standard_normal((40, 300))
        mean = rows.mean(axis=1, keepdims=True)
        explained = mean @ np.linalg.lstsq(mean, rows, rcond=None)[0]
        strongest = np.linalg.svd(rows - explained, compute_uv=False)[0]
        expected = np.array([(explained**2).sum(), strongest**2]) / (rows**2).sum()
        np.testing.assert_allclose(global_signal_shares(rows), expected)
        assert global_signal_shares(np.zeros((3, 4))) == (0, 0)

    def test_a_few_networks_are_not_a_global_signal(self, recwarn):
        BrainDictionaryLearning(3, batch_size=10, n_epochs=10, random_state=0, store=False).fit([dense(series())])
        assert global_signal_shares(series())[0] > 0.3
        assert not recwarn.list

    def test_a_warning_has_the_share_and_the_remedy(self, study, images):
        with pytest.warns(FitWarning, match=r"global signal.* explains (6|7)\d % .*global_signal='regress'"):
            fit(study, images, self.tables(study))

    def test_regressing_it_out_recovers_the_networks(self, study, images, truth, recwarn):
        regressed = fit(study, images, self.tables(study), global_signal="regress")
        assert not recwarn.list
        with pytest.warns(FitWarning):
            kept = fit(study, images, self.tables(study))
        found = [matched_correlation(atlas.components_, truth) for atlas in (regressed, kept)]
        assert found[0] > 0.85
        assert found[0] > found[1] + 0.05

    @pytest.mark.parametrize("confounds", ["none", "frames", "paths", "auto"])
    def test_series_are_uncorrelated_with_it(self, study, confounds):
        given = {"none": None, "frames": self.tables(study)[:1], "paths": study.confounds[:1], "auto": "auto"}[
            confounds
        ]
        options = {"smoothing_fwhm": None}
        source = masked_images(study.images[:1], given, study.mask, options, global_signal="regress")
        raw = NiftiMasker(study.mask, standardize=None).fit().transform(study.images[0])
        time = np.arange(50) - 24.5
        signal = raw.mean(axis=1) - raw.mean()
        signal -= time * (time @ signal) / (time @ time)  # series are detrended
        assert np.abs(signal @ source.series(0)).max() < 1e-3 * np.linalg.norm(signal) * np.sqrt(50)

    def test_new_images_are_cleaned_of_it_too(self, study, tmp_path):
        atlas = fit(study, n_epochs=1, global_signal="regress", reduction=1)
        atlas.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert loaded.global_signal == "regress"
        np.testing.assert_array_equal(loaded.transform(study.images[0])[0], atlas.transform(study.images[0])[0])
        kept = loaded.set_params(global_signal=None).transform(study.images[0])[0]
        assert (kept != atlas.transform(study.images[0])[0]).any()

    def test_cifti_series_and_stores(self, tmp_path, recwarn):
        options = {"n_components": 3, "batch_size": 10, "n_epochs": 4, "random_state": 0, "store": tmp_path / "store"}
        image = dense(series())
        atlas = BrainDictionaryLearning(**options, global_signal="regress").fit([image])
        assert not recwarn.list
        rows, signal = atlas._fitted_source([image], None).series(0), series().mean(axis=1)
        time = np.arange(30) - 14.5
        signal -= signal.mean() + time * (time @ signal) / (time @ time)  # series are detrended
        assert np.abs(signal @ rows).max() < 1e-3 * np.linalg.norm(signal) * np.sqrt(30)
        with pytest.raises(ValueError, match="holds other images"):
            BrainDictionaryLearning(**options).fit([image])

    def test_other_values_are_refused(self, study):
        with pytest.raises(ParameterError, match="global_signal must be 'regress' or None, got 'basic'"):
            fit(study, global_signal="basic")


def test_a_run_logs_the_warnings(study, tmp_path, caplog):
    atlas = BrainDictionaryLearning(5, mask=study.mask, **(OPTIONS | {"alpha": 50.0}))
    train(atlas, {"images": [str(path) for path in study.images]}, tmp_path / "run")
    assert "alpha=50 is too strong" in caplog.text
