"""Images as a matrix: each is read once, and errors name the image."""

import gzip
import logging
import os
import shutil
import tracemalloc

import nibabel
import numpy as np
import pytest
from nilearn.maskers import NiftiMasker

from terafactor import MaskedDictionaryLearning, open_source, pack
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.find import find_images
from terafactor.brain.preparation import masked_images
from terafactor.brain.surfaces import check_gifti_size
from terafactor.data import open_description
from terafactor.data.fingerprint import fingerprint
from terafactor.data.views.rows import whole_records
from terafactor.errors import DataError, DataTypeError, ParameterError
from terafactor.testing import SourceContract


def volumes(shape=(4, 4, 4, 12), seed=0, affine=None):
    values = 100 + np.random.default_rng(seed).standard_normal(shape)
    return nibabel.Nifti1Image(values.astype(np.float32), np.eye(4) if affine is None else affine)


def whole_mask(shape=(4, 4, 4)):
    return nibabel.Nifti1Image(np.ones(shape, np.uint8), np.eye(4))


@pytest.fixture
def copies(study, tmp_path):
    """Copies of the images of the study, to be damaged."""
    return [shutil.copy(path, tmp_path / path.name) for path in study.images]


class TestImagesSource(SourceContract):
    def make(self, tmp_path):
        paths = []
        for number, length in enumerate((12, 7, 9)):
            paths.append(str(tmp_path / f"run-{number}_bold.nii.gz"))
            volumes((4, 4, 4, length), seed=number).to_filename(paths[-1])
        masker = NiftiMasker(whole_mask(), standardize="zscore_sample", detrend=True).fit()
        expected = np.concatenate([masker.transform(path) for path in paths])
        options = {"smoothing_fwhm": None}
        return masked_images(paths, None, whole_mask(), options, n_threads=2), expected.astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"high_pass": 0.01, "smoothing_fwhm": 5.0},
        {"target_affine": 12 * np.eye(3)},
        {"runs": np.repeat([0, 1], 25)},
    ],
)
def test_a_description_cleans_as_the_images_it_was_made_from(study, options):
    confounds = None if "runs" in options else "auto"
    source = masked_images(study.images, confounds, study.mask, options, global_signal="regress")
    description = source.describe()
    assert description is not None
    opened = open_description(description)
    rows = np.arange(source.shape[0])
    np.testing.assert_array_equal(opened.read(rows), source.read(rows))
    if "target_affine" not in options:  # its masker is restored with the affine of the resampled mask
        assert fingerprint(opened) == fingerprint(source)


def test_descriptions_refuse_changed_images(copies, study):
    description = masked_images(copies, None, study.mask, {}).describe()
    os.utime(copies[1], (1, 1))
    with pytest.raises(DataError, match=rf"{copies[1].name} on host .* differs from the one opened"):
        open_description(description)


def test_images_in_memory_and_maskers_of_users_have_no_description(study):
    class OtherMasker(NiftiMasker):
        pass

    assert masked_images([volumes()], None, whole_mask(), {}).describe() is None
    assert masked_images(study.images, None, NiftiMasker(study.mask).fit(), {}).describe() is not None
    assert masked_images(study.images, None, OtherMasker(study.mask).fit(), {}).describe() is None


def test_packing_reads_each_image_once(study, tmp_path):
    source = masked_images(study.images, "auto", study.mask, {}, n_threads=2)
    stored = open_source(pack(source, tmp_path / "store", block_rows=20, n_threads=2))
    assert source.n_read == [1, 1, 1, 1]
    rows = np.arange(source.shape[0])
    np.testing.assert_array_equal(stored.read(rows), source.read(rows))


def test_without_packing_each_image_is_read_once_per_pass(study):
    source = masked_images(study.images, "auto", study.mask, {})
    first = MaskedDictionaryLearning(3, reduction=2, batch_size=20, n_epochs=3, random_state=0).fit(source)
    # Fewer if a pass begins with the image that the last pass ended with, and two more for the sample of rows.
    assert max(source.n_read) <= 3 + 1
    assert sum(source.n_read) <= 3 * len(source.n_read) + 2
    again = MaskedDictionaryLearning(3, reduction=2, batch_size=20, n_epochs=3, random_state=0).fit(source)
    np.testing.assert_array_equal(first.components_, again.components_)


def test_a_truncated_image_is_named_and_the_finished_ones_stay_packed(copies, study, tmp_path):
    whole = copies[2].read_bytes()
    copies[2].write_bytes(whole[: len(whole) // 2])
    source = masked_images(copies, None, study.mask, {})
    with pytest.raises(DataError, match=r"sub-02_task-rest_run-1.*truncated"):
        pack(source, tmp_path / "store", block_rows=50, n_threads=1)
    finished = {path.name for path in (tmp_path / "store.partial" / "records").glob("0*")}
    assert {"000000", "000001"} <= finished
    assert "000002" not in finished
    copies[2].write_bytes(whole)
    repaired = masked_images(copies, None, study.mask, {})
    pack(repaired, tmp_path / "store", block_rows=50, n_threads=1)
    assert repaired.n_read[:3] == [0, 0, 1]
    assert open_source(tmp_path / "store").fingerprint == fingerprint(repaired)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_an_image_that_no_mask_can_be_computed_from_is_named(tmp_path, ending):
    paths = [tmp_path / f"run-{number}_bold{ending}" for number in range(3)]
    for seed, path in enumerate(paths):
        volumes(seed=seed).to_filename(path)
    paths[1].write_bytes(paths[1].read_bytes()[:400])
    with pytest.raises(DataError, match=r"no mask can be computed from .*run-1_bold.*truncated"):
        masked_images(paths, None, None, {})


def test_packing_resumes_after_an_interruption(study, tmp_path):
    source = masked_images(study.images, None, study.mask, {})
    done = []

    def stop(n_rows):
        done.append(n_rows)
        if sum(done) >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "store", block_rows=50, n_threads=1, progress=stop)
    resumed = masked_images(study.images, None, study.mask, {})
    pack(resumed, tmp_path / "store", block_rows=50, n_threads=1)
    assert resumed.n_read == [0, 1, 1, 1]  # the second was read, but not yet finished


@pytest.mark.parametrize("change", ["affine", "shape"])
def test_an_image_in_another_space_is_named(copies, study, change):
    image = nibabel.load(copies[1])
    if change == "affine":
        moved = image.affine.copy()
        moved[0, 3] += 5
        wrong = nibabel.Nifti1Image(np.asarray(image.dataobj), moved)
    else:
        wrong = nibabel.Nifti1Image(np.asarray(image.dataobj)[1:], image.affine)
    wrong.to_filename(copies[1])
    with pytest.raises(DataError, match=rf"sub-01_task-rest_run-2.*{change}.*resample=True"):
        masked_images(copies, None, study.mask, {})
    resampled = masked_images(copies, None, study.mask, {}, resample=True)
    assert np.isfinite(resampled.read(np.arange(resampled.shape[0]))).all()


def test_images_in_another_space_than_the_mask_are_named(study):
    with pytest.raises(DataError, match=r"sub-01_task-rest_run-1.*as in the mask"):
        masked_images(study.images, None, whole_mask(), {})


def test_constant_and_non_finite_voxels_become_zero_with_a_warning(caplog):
    image = volumes()
    values = np.asarray(image.dataobj).copy()
    values[0, 0, 0] = 7
    values[1, 1, 1] = np.nan
    values[2, 2, 2, 5] = np.inf
    source = masked_images([nibabel.Nifti1Image(values, np.eye(4))], None, whole_mask(), {"smoothing_fwhm": None})
    with caplog.at_level(logging.WARNING, "terafactor"):
        rows = source.read(np.arange(12))
    assert np.isfinite(rows).all()
    inside = np.arange(64).reshape(4, 4, 4)
    assert (rows[:, [inside[0, 0, 0], inside[1, 1, 1]]] == 0).all()
    assert "13 values that are not finite" in caplog.text


def timed(repetition_time, unit, seed=0):
    image = volumes((4, 4, 4, 30), seed)
    image.header.set_xyzt_units("mm", unit)
    image.header.set_zooms((1, 1, 1, repetition_time))
    return image


@pytest.mark.parametrize(("repetition_time", "unit"), [(2.2, "sec"), (2200, "msec")])
def test_filters_take_the_time_between_volumes_from_the_headers(repetition_time, unit):
    images = [timed(repetition_time, unit, seed) for seed in range(2)]
    found = masked_images(images, None, whole_mask(), {"high_pass": 0.1})
    given = masked_images(images, None, whole_mask(), {"high_pass": 0.1, "t_r": 2.2})
    assert found.masker.t_r == 2.2
    np.testing.assert_array_equal(found.series(0), given.series(0))
    assert masked_images(images, None, whole_mask(), {}).masker.t_r is None


@pytest.mark.parametrize(
    ("images", "found"),
    [
        ([timed(2, "sec"), timed(3, "sec")], "2 s, 3 s"),
        ([timed(2, "sec"), timed(0, "sec")], "2 s, no time"),
        ([volumes()], "no time"),  # nibabel writes 1, in no unit
    ],
)
def test_a_filter_without_one_time_between_volumes_is_refused(images, found):
    with pytest.raises(ParameterError, match=rf"low_pass needs .* have {found}: .*--set t_r=2"):
        masked_images(images, None, whole_mask(), {"low_pass": 0.1})


def test_non_finite_values_are_logged_once_per_image(caplog):
    image = volumes()
    image.get_fdata(dtype=np.float32, caching="fill")[0, 0, 0, 0] = np.nan
    source = masked_images([image, volumes(seed=1)], None, whole_mask(), {})
    for record in (0, 1, 0, 1):
        source.series(record)
    assert source.n_read == [2, 2]
    assert caplog.text.count("1 values that are not finite") == 1


def test_an_empty_mask_is_refused():
    empty = nibabel.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4))
    with pytest.raises(DataError, match="mask"):
        masked_images([volumes()], None, empty, {})


def test_a_single_volume_is_refused():
    with pytest.raises(DataError, match=r"\(4, 4, 4\), without a time axis"):
        masked_images([volumes((4, 4, 4))], None, whole_mask(), {})


def test_an_unknown_option_is_refused():
    with pytest.raises(ParameterError, match=r"smothing_fwhm is neither.*smoothing_fwhm"):
        masked_images([volumes()], None, whole_mask(), {"smothing_fwhm": 4})


def test_other_inputs_than_images_are_refused(tmp_path):
    with pytest.raises(DataTypeError, match=r"\.dtseries\.nii"):
        masked_images([np.zeros((3, 3))], None, None, {})
    with pytest.raises(DataError, match="does not exist"):
        masked_images([str(tmp_path / "absent.nii.gz")], None, None, {})
    (tmp_path / "text.nii.gz").write_text("not an image")
    with pytest.raises(DataError, match=r"cannot read .*text\.nii\.gz"):
        masked_images([str(tmp_path / "text.nii.gz")], None, None, {})


class TestFinding:
    def test_a_folder_gives_its_series(self, study):
        assert find_images(study.folder) == [str(path) for path in study.images]

    def test_a_glob_gives_its_matches_in_order(self, study):
        assert find_images(f"{study.folder}/sub-*/func/*run-2*_bold.nii.gz") == [
            str(path) for path in study.images if "run-2" in path.name
        ]

    def test_lists_are_flattened_and_images_kept(self, study):
        image = volumes()
        assert find_images([image, [study.images[0]]]) == [image, str(study.images[0])]

    def test_several_spaces_are_refused(self, study, tmp_path):
        for space in ("MNI152NLin2009cAsym", "T1w"):
            shutil.copy(study.images[0], tmp_path / f"sub-01_space-{space}_desc-preproc_bold.nii.gz")
        with pytest.raises(DataError, match=r"several spaces.*T1w"):
            find_images(tmp_path)

    @pytest.mark.parametrize("nothing", [[], "no-such-*.nii.gz", "."])
    def test_nothing_is_refused(self, nothing, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError):
            find_images(nothing)


def test_the_fingerprint_depends_on_images_mask_cleaning_and_confounds(study, copies):
    def mark(images=study.images, confounds=None, mask=study.mask, **options):
        return fingerprint(masked_images(images, confounds, mask, options))

    same = mark()
    assert mark(copies) == same
    assert mark(memory_level=1) == same
    changed = [mark(study.images[::-1]), mark(confounds="auto"), mark(smoothing_fwhm=6), mark(detrend=False)]
    assert len({same, *changed}) == 5
    image = nibabel.load(copies[0])
    values = np.asarray(image.dataobj).copy()
    values[5, 6, 5, 30] += 1
    nibabel.Nifti1Image(values, image.affine, image.header).to_filename(copies[0])
    assert mark(copies) != same


def test_runs_with_one_name_in_several_folders_are_distinct(tmp_path):
    paths = [tmp_path / subject / "rest.nii.gz" for subject in ("one", "two", "three")]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        volumes(seed=number).to_filename(path)
    source = masked_images(paths, None, whole_mask(), {})
    stored = open_source(pack(source, tmp_path / "store", block_rows=4))
    assert [len(rows) for rows in whole_records(stored)] == [12, 12, 12]
    assert source.record_label(2) == "three/rest.nii.gz"
    twice = masked_images([paths[0], paths[0]], None, whole_mask(), {})
    assert len(whole_records(twice)) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["x_bold.nii", "x_bold.nii.gz", "x.dtseries.nii", "hemi-L_bold.func.gii", "x.tsv"])
def test_a_named_pipe_is_refused(study, tmp_path, name):
    os.mkfifo(tmp_path / name)
    is_table = name.endswith(".tsv")
    image, confounds = (study.images[0], [tmp_path / name]) if is_table else (tmp_path / name, None)
    with pytest.raises(DataError, match=f"{name} is not a regular file, but a pipe"):
        masked_images([image], confounds, study.mask, {})


def test_a_mask_that_is_a_named_pipe_is_refused(study, tmp_path):
    os.mkfifo(tmp_path / "mask.nii.gz")
    with pytest.raises(DataError, match=r"mask.nii.gz is not a regular file, but a pipe"):
        masked_images(study.images[:1], None, tmp_path / "mask.nii.gz", {})


def test_images_larger_than_the_limit_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "zeros_bold.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.zeros((50, 50, 50, 10), np.float32), np.eye(4)), path)
    assert path.stat().st_size < 10**5
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**6))
    with pytest.raises(DataError, match=r"zeros_bold.nii.gz would take at least 5,000,000 bytes of memory"):
        masked_images([path], None, None, {})


def test_an_image_without_values_is_refused_by_name(study, tmp_path):
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 0, 9), np.float32), np.eye(4)), tmp_path / "x_bold.nii")
    with pytest.raises(DataError, match=r"x_bold.nii has the shape \(4, 4, 0, 9\), without any value"):
        masked_images([tmp_path / "x_bold.nii"], None, study.mask, {})


def test_masks_larger_than_the_limit_are_refused_before_they_are_read(study, tmp_path, monkeypatch):
    nibabel.save(nibabel.Nifti1Image(np.ones((100, 100, 100), np.uint8), np.eye(4)), tmp_path / "mask.nii.gz")
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(900_000))
    images = [nibabel.load(image) for image in study.images[:1]]  # in memory: no limit applies
    with pytest.raises(DataError, match=r"mask.nii.gz would take at least 1,000,000 bytes of memory"):
        masked_images(images, None, tmp_path / "mask.nii.gz", {})


def test_an_image_with_an_unknown_type_of_numbers_is_named(study, tmp_path):
    nibabel.save(volumes(), tmp_path / "x_bold.nii")
    content = bytearray((tmp_path / "x_bold.nii").read_bytes())
    content[70:72] = (4096).to_bytes(2, "little")  # the field "datatype" of the header
    (tmp_path / "x_bold.nii").write_bytes(content)
    with pytest.raises(DataError, match=r"x_bold.nii"):
        masked_images([tmp_path / "x_bold.nii"], None, whole_mask(), {})


def claiming(path, shape, n_bytes=1000):
    """Write a NIfTI file whose header claims more values than it has."""
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    image.header.set_data_shape(shape)
    with gzip.open(path, "wb") as file:
        file.write(image.header.binaryblock + bytes(n_bytes))
    return path


def test_regions_and_initial_maps_larger_than_the_limit_are_refused(study, tmp_path, monkeypatch):
    atlas = BrainDictionaryLearning(3, mask=study.mask, n_epochs=1, random_state=0).fit(study.images[:1])
    images = [nibabel.load(image) for image in study.images[:1]]
    path = claiming(tmp_path / "large.nii.gz", (300, 300, 300))
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**7))
    with pytest.raises(DataError, match=r"large.nii.gz would take at least 54,000,000 bytes"):
        atlas.label(path)
    with pytest.raises(DataError, match=r"large.nii.gz would take at least 54,000,000 bytes"):
        atlas.set_params(dict_init=path).fit(images)


def test_truncated_regions_are_named(study, tmp_path):
    atlas = BrainDictionaryLearning(3, mask=study.mask, n_epochs=1, random_state=0).fit(study.images[:1])
    path = claiming(tmp_path / "cut.nii.gz", (30, 30, 30))
    with pytest.raises(DataError, match=r"cannot read .*cut.nii.gz"):
        atlas.label(path)


@pytest.mark.parametrize("suffix", [".func.gii", ".func.gii.gz"])
def test_arrays_of_gifti_files_larger_than_the_limit_are_refused(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"sub_hemi-L_bold{suffix}"
    array = nibabel.gifti.GiftiDataArray(np.zeros(10**7, np.float32), datatype="NIFTI_TYPE_FLOAT32")
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[array]), path)
    assert path.stat().st_size < 10**5
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**7))
    with pytest.raises(DataError, match=r"hemi-L_bold.* would take at least 1\d,\d{3},\d{3} bytes of memory"):
        masked_images([path], None, None, {})


@pytest.mark.parametrize("suffix", [".func.gii", ".func.gii.gz"])
def test_checking_a_small_gifti_file_takes_little_memory_whatever_the_limit(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"sub_hemi-L_bold{suffix}"
    array = nibabel.gifti.GiftiDataArray(np.zeros(100, np.float32), datatype="NIFTI_TYPE_FLOAT32")
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[array]), path)
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**15))
    tracemalloc.start()
    try:
        check_gifti_size(path)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
