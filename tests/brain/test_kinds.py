"""Surfaces and CIFTI: fitted, saved in model files, written as images."""

import logging
import re
import sys
from dataclasses import replace

import nibabel
import numpy as np
import pytest
from nilearn.datasets import load_fsaverage
from nilearn.surface import SurfaceImage

from terafactor import load_model
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.cifti import CiftiMasker
from terafactor.brain.find import find_images
from terafactor.brain.preparation import masked_images
from terafactor.data import open_description
from terafactor.errors import DataError, ParameterError
from terafactor.solver.state_dict import StateDict
from terafactor.training.model_file import restore_estimator

OPTIONS = {"n_components": 3, "reduction": 2, "batch_size": 10, "n_epochs": 4, "random_state": 0}
N_GRAYORDINATES = 60


def series(n_volumes=30, n_features=N_GRAYORDINATES, seed=0):
    random = np.random.default_rng(seed)
    maps = np.zeros((3, n_features))
    for number in range(3):
        maps[number, number * n_features // 3 : (number + 1) * n_features // 3] = 1
    return (
        random.standard_normal((n_volumes, 3)) @ maps + 0.3 * random.standard_normal((n_volumes, n_features))
    ).astype(np.float32)


def dense(values):
    axes = nibabel.cifti2.cifti2_axes
    brain_axis = axes.BrainModelAxis.from_surface(np.arange(N_GRAYORDINATES), 100, name="CIFTI_STRUCTURE_CORTEX_LEFT")
    return cifti(values, axes.SeriesAxis(0, 1, len(values)), brain_axis)


def parcels(values):
    axes = nibabel.cifti2.cifti2_axes
    one = axes.BrainModelAxis.from_surface(np.arange(2 * N_GRAYORDINATES), 200, name="CIFTI_STRUCTURE_CORTEX_LEFT")
    brain_axis = axes.ParcelsAxis.from_brain_models([(f"p{n}", one[2 * n : 2 * n + 2]) for n in range(N_GRAYORDINATES)])
    return cifti(values, axes.SeriesAxis(0, 1, len(values)), brain_axis)


def cifti(values, *axes):
    return nibabel.Cifti2Image(values, nibabel.cifti2.Cifti2Header.from_axes(axes))


def test_filters_take_the_time_between_maps_from_cifti_headers():
    assert masked_images([dense(series())], None, None, {"high_pass": 0.1}).masker.t_r == 1


@pytest.mark.parametrize(
    ("make", "name", "written"),
    [(dense, "run.dtseries.nii", "atlas.dscalar.nii"), (parcels, "run.ptseries.nii", "atlas.pscalar.nii")],
)
def test_cifti_from_files_to_files(make, name, written, tmp_path):
    paths = [tmp_path / f"{number}-{name}" for number in range(2)]
    for number, path in enumerate(paths):
        make(series(seed=number)).to_filename(path)
    atlas = BrainDictionaryLearning(**OPTIONS).fit(paths)
    assert atlas.components_.shape == (3, N_GRAYORDINATES)
    halves = np.abs(atlas.components_).reshape(3, 3, -1).sum(axis=2)
    assert (halves.max(axis=1) > 0.8 * halves.sum(axis=1)).all()  # each map in one of the three parts
    files = atlas.save_maps(tmp_path / "atlas")
    assert files[0].name == written
    image = nibabel.load(files[0])
    np.testing.assert_array_equal(np.asarray(image.dataobj), atlas.components_)
    assert image.header.get_axis(1) == nibabel.load(paths[0]).header.get_axis(1)
    atlas.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(paths)[0], atlas.transform(paths)[0])
    assert_described(masked_images(paths, None, None, {}))


def assert_described(source):
    rows = np.arange(source.shape[0])
    np.testing.assert_array_equal(open_description(source.describe()).read(rows), source.read(rows))


def test_a_cifti_mask_selects_grayordinates():
    image = dense(series())
    kept = np.zeros((1, N_GRAYORDINATES), np.float32)
    kept[0, 10:30] = 1
    masker = CiftiMasker(dense(kept)).fit()
    assert masker.transform(image).shape == (30, 20)
    back = masker.inverse_transform(np.ones((1, 20)))
    np.testing.assert_array_equal(np.asarray(back.dataobj)[0] != 0, kept[0] != 0)


def test_cifti_files_with_other_grayordinates_are_named(tmp_path):
    dense(series()).to_filename(tmp_path / "a.dtseries.nii")
    parcels(series()).to_filename(tmp_path / "b.ptseries.nii")
    with pytest.raises(DataError, match=r"b\.ptseries\.nii has other grayordinates or parcels"):
        masked_images([tmp_path / "a.dtseries.nii", tmp_path / "b.ptseries.nii"], None, None, {})
    with pytest.raises(ParameterError, match="smoothing_fwhm is neither"):
        masked_images(tmp_path / "a.dtseries.nii", None, None, {"smoothing_fwhm": 4})


def test_images_of_one_kind_only(study, tmp_path):
    dense(series()).to_filename(tmp_path / "a.dtseries.nii")
    with pytest.raises(DataError, match=r"a\.dtseries\.nii is a CIFTI series, but .* is a volume"):
        masked_images([study.images[0], tmp_path / "a.dtseries.nii"], None, None, {})


def write_pair(image, folder, parts=("left", "right"), n_volumes=None):
    """Write the hemispheres of a surface image as GIFTI files, and return their paths."""
    paths = []
    for part in parts:
        rows = image.data.parts[part].reshape(10242, -1).T[:n_volumes]
        paths.append(folder / f"sub-1_hemi-{'LR'[part == 'right']}_bold.func.gii")
        arrays = [nibabel.gifti.GiftiDataArray(row) for row in rows]
        nibabel.gifti.GiftiImage(darrays=arrays).to_filename(paths[-1])
    return paths


class TestSurfaces:
    @pytest.fixture
    def image(self):
        mesh = load_fsaverage("fsaverage5")["pial"]
        values = series(20, 2 * 10242).T
        return SurfaceImage(mesh=mesh, data={"left": values[:10242], "right": values[10242:]})

    def test_in_memory_and_back(self, image, tmp_path):
        atlas = BrainDictionaryLearning(**OPTIONS).fit([image])
        assert atlas.components_img_.shape == (20484, 3)
        files = atlas.save_maps(tmp_path / "atlas")
        assert [path.name for path in files] == ["atlas_hemi-L.func.gii", "atlas_hemi-R.func.gii", "atlas.json"]
        left = np.stack([array.data for array in nibabel.load(files[0]).darrays], axis=1)
        np.testing.assert_array_equal(left, atlas.components_[:, :10242].T)
        atlas.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        np.testing.assert_array_equal(loaded.transform([image])[0], atlas.transform([image])[0])

    def test_pairs_of_gifti_files(self, image, tmp_path):
        for part, tag in (("left", "L"), ("right", "R")):
            arrays = [nibabel.gifti.GiftiDataArray(row) for row in image.data.parts[part].T]
            nibabel.gifti.GiftiImage(darrays=arrays).to_filename(tmp_path / f"sub-1_hemi-{tag}_bold.func.gii")
        names = sorted(path.name for path in tmp_path.iterdir())
        assert len(find_images(f"{tmp_path}/*.gii")) == 1
        source = masked_images(f"{tmp_path}/*.gii", None, None, {})
        direct = masked_images([image], None, None, {})
        rows = np.arange(20)
        np.testing.assert_allclose(source.read(rows), direct.read(rows), atol=1e-6)
        assert_described(source)
        (tmp_path / names[1]).unlink()
        with pytest.raises(DataError, match="vertices instead of"):
            masked_images([image, tmp_path / names[0]], None, None, {})

    def test_an_unknown_mesh_is_an_error(self, tmp_path):
        values = np.ones((5, 7), np.float32)
        arrays = [nibabel.gifti.GiftiDataArray(row) for row in values.T]
        nibabel.gifti.GiftiImage(darrays=arrays).to_filename(tmp_path / "x_hemi-L_bold.func.gii")
        with pytest.raises(DataError, match=r"pass a SurfaceImage with the mesh as mask"):
            masked_images(tmp_path / "x_hemi-L_bold.func.gii", None, None, {})

    def test_both_files_of_a_pair_are_one_image_and_identify_it(self, image, tmp_path):
        paths = write_pair(image, tmp_path)
        assert find_images([str(path) for path in paths]) == [str(paths[0])]
        before = masked_images(str(paths[0]), None, None, {}).record_identity(0)
        other = nibabel.load(paths[1])
        other.darrays[3].data[7] += 1
        other.to_filename(paths[1])
        assert masked_images(str(paths[0]), None, None, {}).record_identity(0) != before

    def test_a_file_of_a_single_volume(self, image, tmp_path):
        (path,) = write_pair(image, tmp_path, parts=("left",), n_volumes=1)
        assert masked_images(str(path), None, None, {}).shape == (1, 10242)

    def test_a_mask_in_files(self, image, tmp_path):
        half = {part: (np.arange(10242) % 2).astype(np.float32) for part in ("left", "right")}
        (mask, _) = write_pair(SurfaceImage(mesh=image.mesh, data=half), tmp_path)
        assert masked_images([image], None, str(mask), {}).shape[1] == 10242

    def test_pages_need_plotly(self, image, tmp_path, monkeypatch, caplog):
        atlas = BrainDictionaryLearning(**OPTIONS).fit([image])
        monkeypatch.setitem(sys.modules, "plotly", None)
        with caplog.at_level(logging.WARNING, "terafactor"):
            assert atlas.write_viewers(tmp_path) == []
        assert "need plotly" in caplog.text

    def test_pages_need_no_network(self, image, tmp_path):
        pytest.importorskip("plotly", reason="needs the extra 'brain'")
        written = BrainDictionaryLearning(**OPTIONS).fit([image]).write_viewers(tmp_path)
        assert len(written) == 3
        assert not re.findall(r"src=.https?:", written[0].read_text())


@pytest.mark.parametrize("as_path", [True, False])
def test_a_mask_of_another_kind_is_refused(as_path, study):
    mask = study.mask if as_path else nibabel.load(study.mask)
    with pytest.raises(DataError, match="must be a CIFTI image"):
        masked_images([dense(series())], None, mask, {})
    with pytest.raises(DataError, match="the mask cannot be used"):
        masked_images(study.images, None, dense(series(1)), {})


@pytest.mark.parametrize("part", [b"<CIFTI", b"BrainModel", b"MatrixIndicesMap", b"SeriesPoints"])
@pytest.mark.parametrize("options", [{}, {"high_pass": 0.1}])
def test_a_damaged_header_of_a_cifti_file_is_named(tmp_path, part, options):
    dense(series()).to_filename(tmp_path / "a.dtseries.nii")
    content = (tmp_path / "a.dtseries.nii").read_bytes()
    assert part in content
    (tmp_path / "a.dtseries.nii").write_bytes(content.replace(part, b"<" * len(part)))
    with pytest.raises(DataError, match=r"a\.dtseries\.nii"):
        masked_images(tmp_path / "a.dtseries.nii", None, None, options)


def test_a_damaged_header_of_a_cifti_mask_is_named(tmp_path):
    dense(series(1)).to_filename(tmp_path / "mask.dscalar.nii")
    content = (tmp_path / "mask.dscalar.nii").read_bytes()
    (tmp_path / "mask.dscalar.nii").write_bytes(content.replace(b"<CIFTI", b"<<<<<<"))
    with pytest.raises(DataError, match=r"the mask cannot be used"):
        masked_images(dense(series()), None, tmp_path / "mask.dscalar.nii", {})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for the inverse of the affine
@pytest.mark.parametrize("kind", ["volume", "CIFTI series"])
def test_a_damaged_mask_in_a_model_is_refused(study, kind):
    images = study.images[:1] if kind == "volume" else dense(series())
    artifact = BrainDictionaryLearning(**OPTIONS).fit(images)._task().artifact()
    arrays = dict(artifact.state_dict.arrays)
    if kind == "volume":
        arrays["brain.affine"] = np.full((4, 4), 1e-309)
    else:
        arrays["brain.header"] = np.frombuffer(b"<CIFTI", np.uint8)
    hostile = replace(artifact, state_dict=StateDict(artifact.state_dict.numbers, arrays))
    with pytest.raises(DataError, match="invalid mask in the model file"):
        restore_estimator(hostile)
