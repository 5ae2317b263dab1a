"""Properties of learned maps."""

import json

import nibabel
import numpy as np
import pytest

from terafactor.brain import BrainDictionaryLearning, maps
from terafactor.errors import DataError, ParameterError


def test_signs_make_the_larger_part_positive():
    found = maps.signs(np.array([[1.0, -3.0, 1.0], [2.0, 0.0, -1.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(found, [-1, 1, 1])


def test_maps_are_sorted_by_explained_variance():
    atoms = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    np.testing.assert_array_equal(maps.order(atoms, np.diag([1.0, 1.0, 3.0])), [2, 1, 0])


def test_l1_l2_ratio_is_the_root_of_the_size_of_a_flat_map():
    atoms = np.zeros((3, 100))
    atoms[0, :25] = 2
    atoms[1, 0] = -1
    np.testing.assert_allclose(maps.l1_l2_ratios(atoms), [5, 1, 0])


def test_explained_variance_of_rows_made_of_the_maps_is_one():
    random = np.random.default_rng(0)
    atoms = random.standard_normal((3, 40))
    atoms -= atoms.mean(axis=1, keepdims=True)
    parts = [random.standard_normal((n, 3)) @ atoms for n in (5, 9)]
    assert maps.explained_variance(parts, atoms, per_component=False) == pytest.approx(1)
    assert maps.explained_variance(parts, atoms[:2], per_component=False) < 0.95
    positive = np.abs(atoms)
    made = [random.standard_normal((n, 3)) @ positive for n in (5, 9)]
    assert maps.explained_variance(made, positive, per_component=False) == pytest.approx(1)  # nilearn: less
    shifted = [part + 5 for part in parts]  # a constant is no map
    assert maps.explained_variance(shifted, atoms, per_component=False) < 0.9
    with_constant = np.vstack([atoms, np.ones(40)])
    assert maps.explained_variance(shifted, with_constant, per_component=False) == pytest.approx(1)
    alone = maps.explained_variance([parts[0][:, :] * 0 + atoms[0]], atoms, per_component=True)
    assert alone[0] == pytest.approx(1)


def test_labels_are_those_of_the_largest_overlap():
    atlas = np.repeat([0, 1, 2, 3], 10)
    atoms = np.zeros((3, 40))
    atoms[0, 10:20] = 1
    atoms[1, 18:28] = [0.1, 0.2, 1, 1, 1, 1, 1, 1, 1, 1]
    atoms[2, :5] = 1
    found = maps.labels_by_overlap(atoms, atlas, maps.names_by_number(["background", "one", "two", "three"]))
    assert [name for name, _ in found] == ["one", "two", "unlabeled"]
    assert found[0][1] == 1
    assert found[1][1] == pytest.approx(2 * 8 / 18)


@pytest.fixture(scope="module")
def atlas(study):
    options = {"alpha": 1e-3, "reduction": 3, "batch_size": 20, "n_epochs": 10, "random_state": 0}
    return BrainDictionaryLearning(5, mask=study.mask, smoothing_fwhm=None, **options).fit(
        study.images, confounds="auto"
    )


def test_maps_are_named_by_a_label_image_of_another_resolution(atlas, study):
    networks = nibabel.load(study.networks)
    values = np.asarray(networks.dataobj)
    regions = np.where(values.max(axis=3) > 0.3, 1 + values.argmax(axis=3), 0).astype(np.int16)
    finer = nibabel.Nifti1Image(
        np.kron(regions, np.ones((2, 2, 2), np.int16)), networks.affine @ np.diag([0.5] * 3 + [1])
    )
    found = atlas.label(finer, ["background", "a", "b", "c", "d", "e"])
    assert sorted(name for name, _ in found) == ["a", "b", "c", "d", "e"]
    assert min(overlap for _, overlap in found) > 0.3


def test_without_names_labels_are_the_numbers_of_regions(atlas, study):
    networks = nibabel.load(study.networks)
    values = np.asarray(networks.dataobj)
    regions = np.where(values.max(axis=3) > 0.3, 1 + values.argmax(axis=3), 0).astype(np.int16)
    found = atlas.label(nibabel.Nifti1Image(regions, networks.affine))
    assert sorted(name for name, _ in found) == ["1", "2", "3", "4", "5"]
    assert atlas.label(nibabel.Nifti1Image(regions, networks.affine), {}) == [("unlabeled", 0.0)] * 5
    with pytest.raises(ParameterError, match="regions 1 to 2, but the atlas has regions up to 5"):
        atlas.label(nibabel.Nifti1Image(regions, networks.affine), ["background", "one", "two"])


def test_an_atlas_of_maps_is_not_a_label_image(atlas, study):
    with pytest.raises(DataError, match=r"3-D image, .*got shape .*5\)"):
        atlas.label(study.networks, ["background", "a"])


def test_saved_maps_have_a_sidecar(atlas, tmp_path):
    image, sidecar = atlas.save_maps(tmp_path / "deeper" / "atlas")
    np.testing.assert_array_equal(np.asarray(nibabel.load(image).dataobj), np.asarray(atlas.components_img_.dataobj))
    content = json.loads(sidecar.read_text())
    assert content["Parameters"]["alpha"] == 1e-3
    assert content["Masker"]["standardize"] == "zscore_sample"
    ratios = [entry["l1_l2_ratio"] for entry in content["Maps"]]
    np.testing.assert_allclose(ratios, maps.l1_l2_ratios(atlas.components_), atol=1e-4)


@pytest.mark.parametrize("name", ["atlas.nii.gz", "atlas.json"])
def test_maps_replace_files_only_when_asked_to(atlas, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ParameterError, match=f"{name} exists: pass overwrite=True"):
        atlas.save_maps(tmp_path / "atlas")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
    atlas.save_maps(tmp_path / "atlas", overwrite=True)
    assert json.loads((tmp_path / "atlas.json").read_text())["Maps"]


def test_regions_are_connected_and_large_enough(atlas):
    from scipy.ndimage import label

    image, owners = atlas.regions(min_size=20_000)
    volumes = np.asarray(image.dataobj)
    assert volumes.shape[3] == len(owners) >= 2
    assert set(owners) <= set(range(5))
    for number in range(volumes.shape[3]):
        _, n_parts = label(volumes[..., number] != 0)
        assert n_parts == 1
        assert (volumes[..., number] != 0).sum() * 1000 >= 20_000


def test_regions_need_volumes():
    with pytest.raises(DataError, match="regions need volumes"):
        maps.regions(object(), 1350)
