"""Confounds: given, found in the tables of fMRIPrep, or missing."""

import dataclasses
import logging
import shutil

import numpy as np
import pandas as pd
import pytest

from terafactor import load_model
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.confounds import resolve_confounds
from terafactor.brain.preparation import masked_images
from terafactor.errors import DataError
from terafactor.solver.state_dict import StateDict
from terafactor.training.model_file import restore_estimator


def test_auto_reads_motion_and_drifts_from_the_table_of_the_run(study):
    found = resolve_confounds("auto", study.images)
    table = np.genfromtxt(study.confounds[2], names=True)
    np.testing.assert_allclose(found[2].values, np.stack([table[name] for name in table.dtype.names], axis=1))
    assert found[2].sample_mask is None


@pytest.mark.parametrize(
    "image",
    [
        "sub-1_task-rest_bold.nii.gz",
        "sub-1_task-rest_space-T1w_desc-preproc_bold.nii.gz",
        "sub-1_task-rest_space-MNIInfant_cohort-1_res-2_desc-preproc_bold.nii.gz",
        "sub-1_task-rest_space-fsLR_den-91k_bold.dtseries.nii",
        "sub-1_task-rest_hemi-L_space-fsaverage5_bold.func.gii",
    ],
)
def test_auto_knows_the_names_of_fmriprep(tmp_path, image):
    (tmp_path / "sub-1_task-rest_desc-confounds_timeseries.tsv").write_text("trans_x\tcsf\n1\t5\n2\t6\n")
    (found,) = resolve_confounds("auto", [str(tmp_path / image)])
    np.testing.assert_array_equal(found.values, [[1], [2]])


def test_auto_drops_volumes_before_the_steady_state(tmp_path):
    lines = ["trans_x\tnon_steady_state_outlier00", "n/a\t1", "0.1\t0", "0.2\t0"]
    (tmp_path / "sub-1_desc-confounds_timeseries.tsv").write_text("\n".join(lines) + "\n")
    (found,) = resolve_confounds("auto", [str(tmp_path / "sub-1_bold.nii.gz")])
    np.testing.assert_array_equal(found.sample_mask, [1, 2])
    assert found.length(3) == 2


def test_a_table_without_known_columns_is_named(tmp_path):
    (tmp_path / "sub-1_desc-confounds_timeseries.tsv").write_text("csf\n1\n")
    with pytest.raises(DataError, match=r"sub-1_desc-confounds.*csf"):
        resolve_confounds("auto", [str(tmp_path / "sub-1_bold.nii.gz")])


def test_missing_confounds_are_logged(study, tmp_path, caplog):
    alone = tmp_path / "sub-09_task-rest_bold.nii.gz"
    with caplog.at_level(logging.WARNING, "terafactor"):
        found = resolve_confounds("auto", [study.images[0], alone])
    assert found[0].values is not None
    assert found[1].values is None
    assert "no confounds for 1 image(s)" in caplog.text
    assert "sub-09" in caplog.text


def test_confounds_are_removed(study):
    cleaned = masked_images(study.images[:1], "auto", study.mask, {}).read(np.arange(50))
    (confounds,) = resolve_confounds("auto", study.images[:1])
    centered = confounds.values - confounds.values.mean(axis=0)
    assert np.abs(centered.T @ cleaned).max() < 1e-2 * np.abs(centered).sum()


def test_given_confounds_match_the_images(study):
    arrays = list(np.random.default_rng(0).standard_normal((4, 50, 2)))
    found = resolve_confounds([*arrays[:3], None], study.images)
    assert [entry.values is None for entry in found] == [False, False, False, True]
    assert found[0].digest() != found[1].digest()
    with pytest.raises(DataError, match="3 entries for 4 images"):
        resolve_confounds(arrays[:3], study.images)
    with pytest.raises(DataError, match=r"cannot read absent\.tsv: No such file"):
        resolve_confounds(["absent.tsv"] * 4, study.images)


def test_confounds_of_another_length_name_the_image(study):
    source = masked_images(study.images[:1], [np.ones((20, 1))], study.mask, {})
    with pytest.raises(DataError, match="sub-01_task-rest_run-1"):
        source.read(np.array([0]))


def test_a_single_table_belongs_to_a_single_image(study):
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((50, 2)), columns=["trans_x", "csf"])
    (found,) = resolve_confounds(table, study.images[:1])
    assert found.values is table


class TestNewImages:
    """The confounds of the fit apply to new images."""

    @staticmethod
    def fitted(study, confounds):
        options = {"batch_size": 20, "n_epochs": 1, "store": False, "random_state": 0}
        return BrainDictionaryLearning(3, mask=study.mask, **options).fit(study.images[:2], confounds=confounds)

    def test_auto_applies_to_new_images(self, study, tmp_path):
        atlas, image = self.fitted(study, "auto"), study.images[3]
        atlas.save(tmp_path / "model")
        for model in (atlas, load_model(tmp_path / "model")):
            assert model.confounds_ == "auto"
            np.testing.assert_array_equal(model.transform(image)[0], model.transform(image, confounds="auto")[0])
            assert model.score(image) == model.score(image, confounds="auto") != model.score(image, confounds=False)
            assert model.objective(image) == model.objective(image, confounds="auto")

    def test_explicit_confounds_override_those_of_the_fit(self, study):
        atlas, image = self.fitted(study, "auto"), study.images[3]
        without, other = atlas.transform(image, confounds=False)[0], np.random.default_rng(0).standard_normal((50, 2))
        assert (without != atlas.transform(image)[0]).any()
        assert (without != atlas.transform(image, confounds=[other])[0]).any()
        np.testing.assert_array_equal(without, atlas.transform(image, confounds=[None])[0])

    def test_new_images_without_a_table_are_named(self, study, tmp_path, caplog):
        shutil.copy(study.images[0], tmp_path / "alone_bold.nii.gz")
        self.fitted(study, "auto").transform(tmp_path / "alone_bold.nii.gz")
        assert "no confounds for 1 image(s)" in caplog.text
        assert "alone_bold.nii.gz" in caplog.text

    def test_tables_of_the_fit_require_those_of_new_images(self, study, tmp_path, caplog):
        atlas = self.fitted(study, study.confounds[:2])
        atlas.transform(study.images[3], confounds=study.confounds[3])
        atlas.transform(study.images[3], confounds=False)
        assert caplog.text == ""
        atlas.save(tmp_path / "model")
        load_model(tmp_path / "model").transform(study.images[3])
        assert "learned with confounds, and 1 image(s) come without: pass confounds" in caplog.text

    def test_a_fit_without_confounds_uses_none(self, study, caplog):
        atlas = self.fitted(study, False)
        assert atlas.confounds_ is None
        found, expected = atlas.transform(study.images[3]), atlas.transform(study.images[3], confounds=False)
        np.testing.assert_array_equal(found[0], expected[0])
        assert caplog.text == ""

    def test_models_of_earlier_versions_use_none(self, study):
        artifact = self.fitted(study, "auto")._task().artifact()
        numbers = {name: value for name, value in artifact.state_dict.numbers.items() if name != "brain.confounds"}
        older = dataclasses.replace(artifact, state_dict=StateDict(numbers, artifact.state_dict.arrays))
        assert restore_estimator(older).confounds_ is None

    def test_an_unknown_setting_in_a_file_is_refused(self, study):
        artifact = self.fitted(study, "auto")._task().artifact()
        numbers = dict(artifact.state_dict.numbers) | {"brain.confounds": "/tmp/table.tsv"}
        hostile = dataclasses.replace(artifact, state_dict=StateDict(numbers, artifact.state_dict.arrays))
        with pytest.raises(DataError, match=r"invalid confounds in the model file: '/tmp/table\.tsv'"):
            restore_estimator(hostile)


@pytest.mark.parametrize("content", [b"", b"trans_x\n\xff\xff\n", b"trans_x\n1\nmuch\n", b"trans_x\ninf\n",
                                     b"trans_x\tnon_steady_state_outlier00\n1\tx\n", b'trans_x\n"1\n'])  # fmt: skip
def test_a_table_that_does_not_hold_numbers_is_named(tmp_path, content):
    (tmp_path / "sub-1_desc-confounds_timeseries.tsv").write_bytes(content)
    with pytest.raises(DataError, match=r"sub-1_desc-confounds_timeseries\.tsv"):
        resolve_confounds("auto", [tmp_path / "sub-1_bold.nii.gz"])
