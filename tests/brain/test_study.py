"""The simulated study: files of images and confounds, and the true networks."""

import json

import nibabel
import numpy as np
import pandas as pd

from terafactor.datasets import make_brain_study


def test_files_have_the_names_of_bids_derivatives(study):
    assert json.loads((study.folder / "dataset_description.json").read_text())["DatasetType"] == "derivative"
    names = [path.relative_to(study.folder).as_posix() for path in study.images]
    assert names[1] == "sub-01/func/sub-01_task-rest_run-2_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
    assert study.confounds[1].name == "sub-01_task-rest_run-2_desc-confounds_timeseries.tsv"
    assert all(path.is_file() for path in [*study.images, *study.confounds, study.mask, study.networks])


def test_images_are_in_the_space_of_the_mask(study):
    mask = nibabel.load(study.mask)
    for path in study.images:
        image = nibabel.load(path)
        assert image.shape == (*mask.shape, 50)
        np.testing.assert_array_equal(image.affine, mask.affine)
        assert image.header.get_zooms()[3] == 2.0
    assert nibabel.load(study.networks).shape == (*mask.shape, 5)


def test_networks_are_in_the_series_and_confounds_explain_a_part(study):
    inside = np.asarray(nibabel.load(study.mask).dataobj) > 0
    series = np.asarray(nibabel.load(study.images[0]).dataobj)[inside].astype(float).T
    series -= series.mean(axis=0)
    networks = np.asarray(nibabel.load(study.networks).dataobj)[inside].T
    confounds = pd.read_csv(study.confounds[0], sep="\t").to_numpy()
    assert confounds.shape == (50, 7)
    confounds = confounds - confounds.mean(axis=0)
    cleaned = series - confounds @ np.linalg.lstsq(confounds, series, rcond=None)[0]
    noise = np.random.default_rng(0).permutation(networks.T).T
    assert (cleaned**2).sum() < 0.9 * (series**2).sum()
    assert _explained(cleaned, networks) > 3 * _explained(cleaned, noise)


def test_a_run_depends_on_the_seed_and_not_on_the_others(study, tmp_path):
    options = {"n_networks": 5, "n_volumes": 50, "resolution": 10, "noise": 1.0}
    alone = make_brain_study(tmp_path / "alone", n_subjects=1, n_runs=1, seed=1, **options)
    other = make_brain_study(tmp_path / "other", n_subjects=1, n_runs=1, seed=2, **options)
    first = np.asarray(nibabel.load(study.images[0]).dataobj)
    np.testing.assert_array_equal(np.asarray(nibabel.load(alone.images[0]).dataobj), first)
    assert (np.asarray(nibabel.load(other.images[0]).dataobj) != first).any()


def _explained(series, maps):
    codes = np.linalg.lstsq(maps.T, series.T, rcond=None)[0]
    return 1 - ((series - codes.T @ maps) ** 2).sum() / (series**2).sum()
