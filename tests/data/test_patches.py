"""Patches of images."""

import numpy as np
import pytest
from sklearn.feature_extraction.image import extract_patches_2d

from terafactor import MaskedDictionaryLearning, PatchSource
from terafactor.errors import DataError
from terafactor.testing import SourceContract


def image(*shape):
    """Return an image of whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(sum(shape)).integers(0, 256, shape)


def all_patches(images, patch_size, *, center, dtype=np.float32):
    """Return what the source should read as, by way of scikit-learn."""
    patches = [extract_patches_2d(each.astype(np.float64), patch_size) for each in images]
    flat = np.concatenate([each.reshape(len(each), -1) for each in patches])
    means = flat.mean(axis=1, keepdims=True).astype(dtype)
    return flat.astype(dtype) - means if center else flat.astype(dtype)


class PatchContract(SourceContract):
    """The contract, for images, a size and options that subclasses give."""

    images: tuple
    patch_size = (3, 4)
    center = False
    dtype = np.float32

    def make(self, tmp_path):
        source = PatchSource(self.images, self.patch_size, center=self.center, dtype=self.dtype)
        return source, all_patches(self.images, self.patch_size, center=self.center, dtype=self.dtype)

    def test_each_image_is_a_record(self, made):
        source, _ = made
        height, width = self.patch_size
        counts = [(each.shape[0] - height + 1) * (each.shape[1] - width + 1) for each in self.images]
        assert [len(record) for record in source.records] == counts

    def test_geometry_folds_a_row_into_its_patch(self, made):
        source, expected = made
        first = self.images[0][: self.patch_size[0], : self.patch_size[1]]
        assert source.geometry == first.shape
        if not self.center:
            np.testing.assert_array_equal(expected[0].reshape(source.geometry), first)


class TestGrey(PatchContract):
    images = (image(9, 11),)


class TestGrayCentered(PatchContract):
    images = (image(9, 11),)
    center = True
    dtype = np.float64


class TestColor(PatchContract):
    images = (image(7, 6, 3),)


class TestColorCentered(PatchContract):
    images = (image(7, 6, 3),)
    center = True


class TestSeveralSizes(PatchContract):
    images = (image(5, 9), image(8, 4), image(3, 4), image(6, 6))
    center = True


class TestSeveralSizesInColor(PatchContract):
    images = (image(5, 9, 2), image(8, 4, 2))
    dtype = np.float64


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.bool_, np.float32, np.float64])
def test_any_numbers_make_an_image(dtype):
    pixels = (image(6, 7) % 2).astype(dtype)
    read = PatchSource([pixels], (2, 3), center=False).read(np.arange(5))
    np.testing.assert_array_equal(read, all_patches([pixels], (2, 3), center=False)[:5])


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)])
def test_centered_patches_have_no_mean(shape):
    pixels = 1000 + np.random.default_rng(0).standard_normal(shape)
    source = PatchSource([pixels], (4, 5), dtype=np.float64)
    patches = source.read(np.arange(source.shape[0]))
    np.testing.assert_allclose(patches.mean(axis=1), 0, atol=1e-10)
    assert np.all(patches.std(axis=1) > 0.5)


def test_strided_images_are_read_as_they_look():
    pixels = image(12, 14)
    source = PatchSource([pixels[::2, ::-1]], (2, 3), center=False)
    np.testing.assert_array_equal(
        source.read(np.arange(source.shape[0])), all_patches([pixels[::2, ::-1]], (2, 3), center=False)
    )


@pytest.mark.parametrize(
    ("images", "patch_size", "message"),
    [
        ([], (2, 2), "images is empty"),
        ([image(5, 5), image(3, 9)], (4, 4), r"patch_size \(4, 4\) does not fit in image 1 of shape \(3, 9\)"),
        ([image(5, 5)], (0, 3), r"patch_size \(0, 3\) does not fit in image 0"),
        ([image(5, 5), image(5, 5, 3)], (2, 2), "image 1 has 3 channels, image 0 has 1"),
        ([np.ones(5)], (1, 1), r"\(height, width\) or .*got float64 of shape \(5,\)"),
        ([np.ones((5, 5), complex)], (2, 2), "must be numbers.*got complex128"),
        ([np.full((5, 5), "a")], (2, 2), "must be numbers"),
        ([np.where(image(5, 5) >= 0, np.nan, 0)], (2, 2), "NaN at row 0, column 0.*or fill them in$"),
    ],
)
def test_data_that_is_not_a_set_of_images_is_refused(images, patch_size, message):
    with pytest.raises(DataError, match=message):
        PatchSource(images, patch_size)


def test_patches_are_learned_from_like_the_matrix_of_them():
    pixels = image(20, 21)
    learner = MaskedDictionaryLearning(4, reduction=2, random_state=0)
    from_source = learner.fit(PatchSource([pixels], (4, 4))).components_
    from_matrix = learner.fit(all_patches([pixels], (4, 4), center=True)).components_
    np.testing.assert_array_equal(from_source, from_matrix)
