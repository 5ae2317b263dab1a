"""``reduction``: a number, masks, or "auto", and files that had the parameters of masks on their own."""

import json

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, RandomMasks, load_model
from terafactor.dictionary.parameters import upgrade
from terafactor.errors import ParameterError


@pytest.fixture(name="X")
def rows():
    return np.random.default_rng(0).standard_normal((80, 30))


def fitted(X, reduction):
    return MaskedDictionaryLearning(4, alpha=0.1, reduction=reduction, n_epochs=3, random_state=0).fit(X)


def test_auto_uses_all_features(X):
    auto = fitted(X, "auto")
    assert auto.reduction_ == 1
    np.testing.assert_array_equal(auto.components_, fitted(X, 1).components_)


def test_partial_fit_takes_auto(X):
    auto, one = (
        MaskedDictionaryLearning(4, alpha=0.1, reduction=reduction, random_state=0).partial_fit(X)
        for reduction in ("auto", 1)
    )
    np.testing.assert_array_equal(auto.components_, one.components_)


def test_a_number_means_masks_with_full_statistics_for_data_in_memory(X):
    number, masks = fitted(X, 3), fitted(X, RandomMasks(3, "full", "masked"))
    assert (number.reduction_, number.statistics_) == (masks.reduction_, masks.statistics_) == (3, "full")
    np.testing.assert_array_equal(number.components_, masks.components_)
    assert not np.array_equal(number.components_, fitted(X, RandomMasks(3, "masked")).components_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5,), "reduction must be a number >= 1"),
        ((np.inf,), "reduction must be a number >= 1"),
        (("8",), "reduction must be a number >= 1"),
        ((True,), "reduction must be a number >= 1"),
        ((8, "half"), "statistics must be 'masked', 'full' or 'auto', got 'half'"),
        ((8, "full", "lazy"), "projection must be 'masked' or 'exact', got 'lazy'"),
    ],
)
def test_invalid_masks_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        RandomMasks(*arguments)


@pytest.mark.parametrize(
    ("older", "present"),
    [
        ({"reduction": 1, "statistics": "auto", "projection": "masked"}, 1),
        ({"reduction": 8, "statistics": "masked", "projection": "masked"}, RandomMasks(8, "masked")),
        ({"reduction": 1, "statistics": "auto", "projection": "exact"}, RandomMasks(1, projection="exact")),
        ({"reduction": "auto", "statistics": "masked", "projection": "masked"}, "auto"),
    ],
)
def test_parameters_of_older_files_become_masks(older, present):
    assert upgrade({"n_components": 3, **older}) == {"n_components": 3, "reduction": present}


def test_a_model_whose_reduction_an_older_version_chose_keeps_it(X, tmp_path):
    fitted(X, 3).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    loaded.reduction = "auto"  # as in a file of the version that chose it by trials
    assert loaded.partial_fit(X).reduction_ == 3


def test_model_files_hold_masks_as_plain_fields(X, tmp_path):
    fitted(X, RandomMasks(3, "masked", "exact")).save(tmp_path / "model")
    (manifest,) = (tmp_path / "model").rglob("manifest.json")
    stored = json.loads(manifest.read_text())["parameters"]["reduction"]
    assert stored == {"type": "RandomMasks", "reduction": 3, "statistics": "masked", "projection": "exact"}
    assert load_model(tmp_path / "model").reduction == RandomMasks(3, "masked", "exact")
