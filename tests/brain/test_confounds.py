"""Confounds: given, found in the tables of fMRIPrep, or missing."""

import logging

import numpy as np
import pandas as pd
import pytest

from terafactor.brain.confounds import resolve_confounds
from terafactor.brain.preparation import masked_images
from terafactor.errors import DataError


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
