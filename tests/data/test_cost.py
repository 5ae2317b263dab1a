"""A masked step reads its mask, and no more."""

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, PatchSource, RandomMasks
from terafactor.testing import CountingSource, SourceContract

N_ROWS, N_FEATURES, BATCH = 48, 40, 6
JUDGED = 4 * BATCH * N_FEATURES
"""Values of the rows by which a fit is judged."""


@pytest.fixture
def source():
    """A source that counts what is read, and claims not to be in memory."""
    counting = CountingSource(ArraySource(np.random.default_rng(0).standard_normal((N_ROWS, N_FEATURES))))
    counting.in_memory = False
    return counting


class TestCountingSource(SourceContract):
    def make(self, tmp_path):
        values = np.random.default_rng(0).standard_normal((12, 9))
        return CountingSource(ArraySource(values)), values


def test_a_counting_source_is_like_the_source_it_wraps():
    patches = PatchSource([np.eye(5), np.eye(7)], (2, 2))
    counting = CountingSource(patches)
    assert list(counting.records) == list(patches.records)
    assert counting.in_memory is patches.in_memory
    assert counting.geometry == patches.geometry


@pytest.mark.parametrize("reduction", [1, 4, 8])
def test_a_masked_fit_reads_one_part_in_reduction(source, reduction):
    how = {"batch_size": BATCH, "n_epochs": 1, "init": np.eye(3, N_FEATURES)}
    learner = MaskedDictionaryLearning(3, reduction=RandomMasks(reduction, "masked"), random_state=0, **how).fit(source)
    assert source.n_reads - 1 == learner.n_steps_ == N_ROWS // BATCH
    assert source.n_values == N_ROWS * N_FEATURES // reduction + JUDGED


def test_full_statistics_read_whole_rows(source):
    how = {"batch_size": BATCH, "n_epochs": 1, "init": np.eye(3, N_FEATURES)}
    MaskedDictionaryLearning(3, reduction=RandomMasks(4, "full"), **how).fit(source)
    assert source.n_values == N_ROWS * N_FEATURES + JUDGED


def test_auto_reads_masks_only_when_rows_are_not_in_memory(source):
    how = {"batch_size": BATCH, "n_epochs": 1, "init": np.eye(3, N_FEATURES)}
    learner = MaskedDictionaryLearning(3, reduction=4, **how).fit(source)
    assert learner.statistics_ == "masked"
    assert source.n_values == N_ROWS * N_FEATURES // 4 + JUDGED


@pytest.mark.parametrize("n_cycles", [1, 2])
def test_every_feature_is_seen_once_per_cycle(source, n_cycles):
    learner = MaskedDictionaryLearning(
        3, reduction=RandomMasks(4, "masked"), batch_size=BATCH, n_epochs=n_cycles / 2, random_state=0
    ).fit(source)
    np.testing.assert_array_equal(learner.feature_counts_, n_cycles * BATCH)


def test_the_start_reads_as_many_rows_as_there_are_atoms(source):
    how = {"batch_size": BATCH, "n_epochs": 1}
    MaskedDictionaryLearning(3, reduction=RandomMasks(4, "masked"), random_state=0, **how).fit(source)
    assert source.n_values == N_ROWS * N_FEATURES // 4 + 3 * N_FEATURES + JUDGED


@pytest.mark.parametrize("statistics", ["full", "masked"])
@pytest.mark.parametrize("init", [np.eye(3, N_FEATURES), None], ids=["init", "first rows"])
def test_history_knows_the_bytes_that_were_read(source, init, statistics):
    learner = MaskedDictionaryLearning(3, reduction=RandomMasks(4, statistics), init=init, random_state=0).fit(source)
    assert learner.history_[-1].bytes_read == source.n_values * 8


def test_a_source_gives_the_bits_of_its_array(source):
    learner = MaskedDictionaryLearning(3, reduction=RandomMasks(4, "masked"), random_state=0)
    atoms = learner.fit(source).components_
    codes = learner.transform(source)
    np.testing.assert_array_equal(learner.fit(source.base.array).components_, atoms)
    np.testing.assert_array_equal(learner.transform(source.base.array), codes)
