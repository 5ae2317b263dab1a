"""Which features a step sees."""

import numpy as np
import pytest

from terafactor import ArraySource
from terafactor.data.masks import Masks, masks_of
from terafactor.errors import ParameterError

SIZES = [(24, 3), (25, 3), (7, 7), (100, 2.5), (10, 9.5), (11, 1.01)]


def cycles(masks, n_cycles):
    """Return the masks of the first cycles, a list for each."""
    length = masks.cycle_length
    return [[masks.mask(cycle * length + part) for part in range(length)] for cycle in range(n_cycles)]


@pytest.mark.parametrize(("n_features", "reduction"), SIZES)
def test_every_cycle_covers_each_feature_once(n_features, reduction):
    for parts in cycles(Masks(n_features, reduction, seed=0), 4):
        assert len(parts) == np.ceil(reduction)
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n_features))


@pytest.mark.parametrize(("n_features", "reduction"), SIZES)
def test_masks_are_ascending_and_of_even_size(n_features, reduction):
    parts = [part for parts in cycles(Masks(n_features, reduction, seed=0), 4) for part in parts]
    assert all(np.all(np.diff(part) > 0) for part in parts)
    lengths = [len(part) for part in parts]
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


def test_cycles_differ():
    first, second = cycles(Masks(40, 2, seed=0), 2)
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], second[1])


def test_masks_are_a_function_of_seed_and_number():
    forwards = [Masks(40, 3, seed=5).mask(number) for number in range(12)]
    masks = Masks(40, 3, seed=5)
    backwards = [masks.mask(number) for number in reversed(range(12))][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(forwards[0], Masks(40, 3, seed=6).mask(0))


def test_writing_into_a_mask_does_not_change_the_next():
    masks = Masks(40, 3, seed=5)
    masks.mask(0)[:] = 0
    np.testing.assert_array_equal(masks.mask(0), Masks(40, 3, seed=5).mask(0))


def test_nothing_is_left_out_without_reduction():
    masks = Masks(40, 1, seed=0)
    assert masks.cycle_length == 1
    assert masks.mask(0) is None


@pytest.mark.parametrize("reduction", [0.5, 41, np.nan])
def test_a_reduction_that_leaves_nothing_to_see_is_refused(reduction):
    with pytest.raises(ParameterError, match=f"reduction.*got {reduction}.*n_features=40"):
        Masks(40, reduction, seed=0)


@pytest.mark.parametrize(
    ("n_features", "reduction", "together"), [(2**17 + 3, 8, 4), (2**17 + 3, 40, 1), (2**16, 8, 1)]
)
def test_long_rows_are_picked_by_neighbors_where_masks_have_many(n_features, reduction, together):
    masks = masks_of(ArraySource(np.zeros((1, n_features), np.float32)), reduction, 0)
    cycle = [masks.mask(number) for number in range(reduction)]
    np.testing.assert_array_equal(np.sort(np.concatenate(cycle)), np.arange(n_features))
    for mask in cycle:
        whole = np.unique(mask // together)
        assert abs(len(mask) - len(whole) * together) < together  # the last features may be fewer
    singles = sum(int((np.diff(mask) == 1).sum()) for mask in cycle)
    assert (singles > n_features / 2) == (together > 1)
