"""The report of an atlas: its content, and how a browser shows it."""

import os
import re
import shutil

import nibabel
import numpy as np
import pytest

from terafactor import load_model, report_runs, train
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.drawing import map_pixels, outline_figure
from terafactor.brain.panels import SeriesPanel
from terafactor.data.packed.reader import PackedSource
from terafactor.errors import DataError, StorageError
from terafactor.testing import make_report_context


@pytest.fixture(scope="module")
def atlas(study):
    options = {"alpha": 1e-3, "reduction": 3, "batch_size": 20, "n_epochs": 10, "random_state": 0}
    return BrainDictionaryLearning(5, mask=study.mask, smoothing_fwhm=None, **options).fit(
        study.images, confounds="auto"
    )


@pytest.fixture(scope="module")
def folder(atlas, study, tmp_path_factory):
    """A folder with the report and a page for each map."""
    place = tmp_path_factory.mktemp("report")
    atlas.report(place / "report.html", study.images[:1], viewers=True)
    return place


def test_shows_outlines_maps_sparsity_and_series(folder):
    page = (folder / "report.html").read_text()
    assert "Outlines of 5 maps, each at half its maximum" in page
    assert len(re.findall(r'alt="map \d+"', page)) == 5
    assert "Sparsity of maps" in page
    assert "Series of an example run" in page
    assert "sub-01_task-rest_run-1" in page


def test_links_to_a_page_for_each_map_that_needs_no_network(folder):
    page = (folder / "report.html").read_text()
    linked = re.findall(r'href="(maps/[^"]+)"', page)
    assert len(linked) == 5
    for name in linked:
        content = (folder / name).read_text()
        assert "brainsprite" in content
        assert not re.findall(r"(?:src|href)=.https?:", content)


def test_labels_name_the_maps(atlas, tmp_path, monkeypatch):
    monkeypatch.setattr(atlas, "labels_", [(f"region {number}", 0.5) for number in range(5)])
    page = atlas.report(tmp_path / "report.html").read_text()
    assert "map 3, region 3:" in page


def test_missing_images_are_reported_on_the_page(atlas, tmp_path, caplog):
    page = atlas.report(tmp_path / "report.html", tmp_path / "gone.nii.gz").read_text()
    assert "gone.nii.gz does not exist" in page
    assert "gone.nii.gz does not exist" in caplog.text


def test_the_series_of_a_single_volume_have_no_spread():
    drawn = SeriesPanel("short", np.array([[3e20, 0.0]], np.float32)).draw(make_report_context())
    assert "short: the first 2 maps" in drawn


@pytest.mark.parametrize("packed", [True, False])
def test_reports_do_not_change_the_atlas(study, tmp_path, packed):
    options = {"batch_size": 20, "n_epochs": 1, "store": tmp_path / "store" if packed else False, "random_state": 0}
    atlas = BrainDictionaryLearning(3, **options).fit(study.images[:2])
    before = dict(vars(atlas))
    for images in (study.images[:2], study.images[2:]):  # the second would give another mask
        page = atlas.report(tmp_path / "report.html", {"images": images}).read_text()
        assert "Series of an example run" in page
    assert all(vars(atlas)[name] is value for name, value in before.items())
    atlas.save(tmp_path / "model")
    shown = load_model(tmp_path / "model")._rows_to_show({"images": study.images[:2]})
    assert isinstance(shown, PackedSource) == packed


def test_images_that_changed_since_the_run_do_not_change_its_mask(study, tmp_path):
    image = tmp_path / "run_bold.nii.gz"
    shutil.copy(study.images[0], image)
    atlas = BrainDictionaryLearning(3, batch_size=20, n_epochs=1, store=False, random_state=0)
    train(atlas, {"images": [str(image)]}, tmp_path / "run")
    shrunk = nibabel.load(image)
    values = shrunk.get_fdata(dtype=np.float32)
    values[: len(values) // 2] = 0
    nibabel.Nifti1Image(values, shrunk.affine).to_filename(image)
    page = report_runs(tmp_path / "run").read_text()
    assert "not the data that the run learned from" in page
    assert "Outlines of 3 maps" in page


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse to follow links")
@pytest.mark.parametrize("name", ["maps.nii.gz", "maps.json", "maps/map-000.html"])
def test_links_planted_in_a_folder_are_replaced(atlas, tmp_path, name):
    folder, elsewhere = tmp_path / "run", tmp_path / "file.txt"
    elsewhere.write_text("mine")
    (folder / "maps").mkdir(parents=True)
    (folder / name).symlink_to(elsewhere)
    atlas.save_maps(folder / "maps", overwrite=True)
    atlas.write_viewers(folder)
    assert elsewhere.read_text() == "mine"
    assert not (folder / name).is_symlink()
    assert nibabel.load(folder / "maps.nii.gz").shape[-1] == 5
    assert sorted(path.name for path in folder.iterdir()) == ["maps", "maps.json", "maps.nii.gz"]


def test_a_folder_of_pages_that_is_a_link_is_refused(atlas, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "maps").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="maps: it is a symbolic link"):
        atlas.write_viewers(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_outlines_are_at_half_the_maximum():
    volume = np.zeros((12, 12, 12, 1))
    volume[3:9, 3:9, 3:9] = 0.4
    volume[5:7, 5:7, 5:7] = 1
    figure = outline_figure(volume, np.ones((12, 12, 12)), np.ones(3))
    drawn = [axis.collections[0].get_paths()[0].get_extents() for axis in figure.axes if axis.collections]
    assert drawn
    assert max(extent.width for extent in drawn) < 4  # around the inner box of 2, not the outer one of 6


def test_pictures_of_a_map_show_its_sign():
    volume = np.zeros((9, 9, 9))
    volume[4, 4, 4] = -1
    pixels = map_pixels(volume, np.ones((9, 9, 9)), np.ones(3))
    blue = pixels[..., 2].astype(int) - pixels[..., 0]
    assert blue.max() > 100
    assert (blue >= 0).all()


def test_a_browser_shows_it(folder, chromium):
    page = chromium.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto((folder / "report.html").as_uri())
    images = page.locator("#atoms img")
    assert images.count() == 6
    assert all(images.nth(number).evaluate("one => one.naturalWidth") > 50 for number in range(6))
    assert page.locator("#sparsity canvas, #reconstruction canvas").count() >= 2
    page.locator("#atoms a").first.click()
    page.wait_for_function("document.querySelector('canvas') && document.querySelector('canvas').width > 50")
    assert errors == []
    page.close()


def test_cifti_series_have_a_report_without_slices(tmp_path):
    from tests.brain.test_kinds import OPTIONS, dense, series

    atlas = BrainDictionaryLearning(**OPTIONS).fit([dense(series())])
    assert atlas.write_viewers(tmp_path) == []
    assert "Sparsity of maps" in atlas.report(tmp_path / "report.html").read_text()
    with pytest.raises(DataError, match="labels need volumes"):
        atlas.label("any.nii.gz", ["background"])


def test_a_run_packed_in_parts_is_shown_as_a_whole(atlas, study):
    stored = atlas._task().open_data({"images": study.images, "confounds": "auto"})
    assert len(stored.records[0]) < 50
    _, held_out, _ = atlas._task().hold_out(stored, 20, 0)
    for rows in (stored, held_out):
        shown = next(panel for panel in atlas._report_context(rows).panels if panel.name == "reconstruction")
        assert len(shown.series) == 50


def test_thirty_visits_are_enough_with_batches_of_any_size(study):
    """Runs of 50 volumes, in batches of 40 and 10."""
    atlas = BrainDictionaryLearning(3, mask=study.mask, reduction=3, random_state=0).fit(study.images)
    assert atlas._report_context().feature_visits >= 30


def test_maps_are_drawn_upright_for_any_orientation_of_images(study):
    def stored(path):
        image = nibabel.load(path)
        turn = nibabel.orientations.axcodes2ornt("PIL")
        return image.as_reoriented(nibabel.orientations.ornt_transform(nibabel.io_orientation(image.affine), turn))

    upright, turned = (
        BrainDictionaryLearning(3, mask=mask, batch_size=20, n_epochs=1, random_state=0).fit(image).panels()[0]
        for mask, image in ((study.mask, study.images[0]), (stored(study.mask), stored(study.images[0])))
    )
    np.testing.assert_array_equal(turned.background, upright.background)
    assert turned.volumes.shape == upright.volumes.shape
