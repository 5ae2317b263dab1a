"""The commands for brain images."""

import errno
import json
import os
import shutil
import tomllib
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

from terafactor import load_model
from terafactor.cli.app import app
from terafactor.cli.brain import masker_options
from terafactor.errors import DataError, ParameterError, StorageError

FIT = ["--confounds", "auto", "-k", "4", "--alpha", "1e-3", "--reduction", "3", "--batch-size", "20", "--epochs", "4"]


def run(*arguments):
    result = CliRunner().invoke(app, ["brain", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def out(study, tmp_path_factory):
    """The run directory of a fit."""
    folder = tmp_path_factory.mktemp("runs") / "atlas"
    images = f"{study.folder}/sub-*/func/*_bold.nii.gz"
    run("fit", images, "--mask", study.mask, *FIT, "--smoothing", 0, "--seed", 0, "--out", folder)
    return folder


def test_fit_leaves_maps_model_report_and_store(out):
    assert nibabel.load(out / "maps.nii.gz").shape[3] == 4
    assert len(json.loads((out / "maps.json").read_text())["Maps"]) == 4
    assert load_model(out).components_.shape[0] == 4
    assert "Outlines of 4 maps" in (out / "report.html").read_text()
    assert len(list((out / "maps").glob("*.html"))) == 4
    assert (out / "store" / "zarr.json").is_file()


def test_transform_writes_a_line_per_volume(out, study, tmp_path):
    run("transform", out, study.images[0], "--out", tmp_path / "series.tsv")
    lines = (tmp_path / "series.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["map_000", "map_001", "map_002", "map_003"]
    table = np.loadtxt(lines[1:], delimiter="\t")
    (expected,) = load_model(out).transform(study.images[0], confounds="auto")
    np.testing.assert_allclose(table, expected, rtol=1e-4)
    run("transform", out, study.images[0], "--confounds", "none", "--out", tmp_path / "without.tsv")
    (expected,) = load_model(out).transform(study.images[0], confounds=False)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "without.tsv", skiprows=1), expected, rtol=1e-4)


def test_transform_resamples_an_image_in_another_space_when_asked_to(out, study, tmp_path):
    image = nibabel.load(study.images[0])
    flip = [[0, -1], [1, 1], [2, 1]]  # each axis stays where it is, and the first changes its direction
    image.as_reoriented(flip).to_filename(tmp_path / "flipped.nii.gz")
    line = ["transform", out, tmp_path / "flipped.nii.gz", "--out", tmp_path / "series.tsv"]
    with pytest.raises(DataError, match="--resample"):
        run(*line)
    run(*line, "--resample", "--confounds", "none")
    (expected,) = load_model(out).transform(study.images[0], confounds=False)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "series.tsv", skiprows=1), expected, rtol=1e-3, atol=1e-3)


def test_non_finite_values_are_reported_on_the_terminal(study, tmp_path):
    image = nibabel.load(study.images[0])
    values = image.get_fdata(dtype=np.float32)
    values[0, 0, 0, :7] = np.nan
    nibabel.Nifti1Image(values, image.affine).to_filename(tmp_path / "holes.nii.gz")
    line = ["fit", tmp_path / "holes.nii.gz", "--mask", study.mask, "-k", 2, "--epochs", 1, "--no-viewers"]
    shown = run(*line, "--out", tmp_path / "run").stderr
    assert "warning: " in shown
    assert "holes.nii.gz has 7 values that are not finite: replaced by 0" in shown


def test_transform_takes_one_image_and_names_the_file_it_cannot_write(out, study, tmp_path):
    with pytest.raises(ParameterError, match="matches 4 images"):
        run("transform", out, f"{study.folder}/sub-*/func/*_bold.nii.gz", "--out", tmp_path / "series.tsv")
    with pytest.raises(StorageError, match=r"cannot write .*series\.tsv"):
        run("transform", out, study.images[0], "--out", tmp_path / "absent" / "series.tsv")


def test_transform_leaves_no_truncated_table(out, study, tmp_path, monkeypatch):
    def fail(path, *arguments, **options):
        Path(path).write_text("half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savetxt", fail)
    with pytest.raises(StorageError, match=r"cannot write .*series\.tsv: No space"):
        run("transform", out, study.images[0], "--out", tmp_path / "series.tsv")
    assert list(tmp_path.iterdir()) == []


def test_transform_of_matrices_names_the_command_for_an_atlas(out, tmp_path):
    np.save(tmp_path / "X.npy", np.ones((3, 4)))
    with pytest.raises(DataError, match=r"holds a BrainDictionaryLearning.*: use terafactor brain transform"):
        CliRunner().invoke(
            app,
            ["transform", str(out), str(tmp_path / "X.npy"), "--out", str(tmp_path / "codes.npy")],
            catch_exceptions=False,
        )


def test_report_names_maps_by_overlap(out, study, tmp_path):
    networks = nibabel.load(study.networks)
    values = np.asarray(networks.dataobj)
    regions = np.where(values.max(axis=3) > 0.2, 1 + values.argmax(axis=3), 0).astype(np.int16)
    nibabel.Nifti1Image(regions, networks.affine).to_filename(tmp_path / "regions.nii.gz")
    (tmp_path / "names.txt").write_text("\n".join(f"network {number}" for number in range(5)) + "\n")
    run("report", out, "--labels", tmp_path / "regions.nii.gz", "--names", tmp_path / "names.txt", "--no-viewers")
    assert "network" in (out / "report.html").read_text()
    assert all("network" in entry["label"] for entry in json.loads((out / "maps.json").read_text())["Maps"])
    run("report", out, "--labels", tmp_path / "regions.nii.gz", "--no-viewers")
    assert all(entry["label"] in "12345" for entry in json.loads((out / "maps.json").read_text())["Maps"])


def test_names_without_a_label_image_are_refused(out, tmp_path):
    (tmp_path / "names.txt").write_text("one\n")
    result = CliRunner().invoke(app, ["brain", "report", str(out), "--names", str(tmp_path / "names.txt")])
    assert result.exit_code == 2
    assert "--labels" in result.output


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_names_in_a_pipe_are_refused(out, study, tmp_path):
    os.mkfifo(tmp_path / "names.txt")
    with pytest.raises(DataError, match=r"names\.txt is not a regular file"):
        run("report", out, "--labels", study.networks, "--names", tmp_path / "names.txt", "--no-viewers")


def test_a_rewritten_report_links_to_the_pages_of_maps_next_to_it(out, tmp_path):
    (out / "report.html").unlink()
    CliRunner().invoke(app, ["report", str(out)], catch_exceptions=False)
    assert 'href="maps/map-000.html"' in (out / "report.html").read_text()
    CliRunner().invoke(app, ["report", str(out), "--out", str(tmp_path / "elsewhere.html")], catch_exceptions=False)
    assert "map-000.html" not in (tmp_path / "elsewhere.html").read_text()


def test_resume_reads_the_images_of_the_run(out):
    before = load_model(out).n_steps_
    (out / "maps.nii.gz").unlink()
    result = CliRunner().invoke(app, ["resume", str(out), "--epochs", "6"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert load_model(out).n_steps_ == before * 6 // 4
    maps = np.asarray(nibabel.load(out / "maps.nii.gz").dataobj)
    np.testing.assert_allclose(maps, np.asarray(load_model(out).components_img_.dataobj))


def test_resume_writes_no_store_outside_of_the_run(out, tmp_path):
    shutil.copytree(out, tmp_path / "run")
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    config["parameters"]["store"] = str(tmp_path / "elsewhere" / "store")
    (tmp_path / "run" / "config.toml").write_text(tomli_w.dumps(config))
    result = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "--epochs", "6"])
    assert isinstance(result.exception, DataError)
    assert "elsewhere/store, which does not exist: restore it" in str(result.exception)
    assert not (tmp_path / "elsewhere").exists()


def test_a_loaded_model_names_no_store_that_does_not_exist(out, tmp_path):
    shutil.copytree(out / "model", tmp_path / "model")
    assert load_model(tmp_path / "model").store == str(out / "store")
    (out / "store").rename(tmp_path / "store")
    found = load_model(tmp_path / "model").store
    (tmp_path / "store").rename(out / "store")
    assert found is None


def test_no_pack_and_a_store_elsewhere(study, tmp_path):
    images = study.images[:2]
    run("fit", *images, "--mask", study.mask, *FIT, "--no-pack", "--no-viewers", "--out", tmp_path / "streamed")
    assert not (tmp_path / "streamed" / "store").exists()
    store = tmp_path / "elsewhere"
    for name in ("one", "two"):
        arguments = ["--store", store, "--seed", 0, "--no-viewers", "--set", "high_pass=0.01"]
        run("fit", *images, "--mask", study.mask, *FIT, *arguments, "--out", tmp_path / name)
    run("fit", "--config", tmp_path / "two" / "config.toml", "--no-viewers", "--out", tmp_path / "three")
    models = [(tmp_path / name / "model" / "manifest.json").read_bytes() for name in ("one", "two", "three")]
    assert len(set(models)) == 1
    result = run("fit", "--config", tmp_path / "streamed" / "config.toml", "--no-viewers", "--out", tmp_path / "again")
    assert "packing" not in result.output
    assert not (tmp_path / "again" / "store").exists()
    masker = load_model(tmp_path / "one").masker_
    assert (masker.high_pass, masker.t_r) == (0.01, 2.0)  # the time between volumes from the headers


def test_a_glob_without_matches_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no file matches"):
        CliRunner().invoke(
            app, ["brain", "fit", "absent-*.nii.gz", "--out", str(tmp_path / "out")], catch_exceptions=False
        )


def test_options_of_the_masker_are_parsed():
    found = masker_options(6.0, ["high_pass=0.01", "detrend=false", "standardize=psc", "t_r=none"])
    assert found == {
        "smoothing_fwhm": 6.0,
        "high_pass": 0.01,
        "detrend": False,
        "standardize": "psc",
        "t_r": None,
    }
