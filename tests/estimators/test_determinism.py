"""Same seed, same bits: from run to run, for any number of threads, however the rows are handed over."""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor._threads import TILE
from terafactor.data import BatchStream
from terafactor.data.masks import Masks
from terafactor.problem.masks import resolve_masks

LEARNED = ("components_", "feature_counts_", "n_steps_")

SETTINGS = [
    {"penalty": "l1", "constraint": "l2", "alpha": 0.5},
    {"penalty": "l2", "constraint": "l2", "alpha": 0.1},
    {"penalty": "l1", "constraint": "l1", "alpha": 0.01},
    {"penalty": "l2", "constraint": "l1", "alpha": 1e-3},
]
MASKING = [
    {"reduction": 1},
    {"reduction": RandomMasks(3, "full")},
    {"reduction": RandomMasks(3, "masked")},
    {"reduction": RandomMasks(2.5, "masked")},
]


def assert_same_bits(one, other):
    for name in LEARNED:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.fixture(scope="module")
def wide():
    """Rows (40, 8 tiles), so that a third of the features still makes more than two tiles."""
    return np.random.default_rng(0).standard_normal((40, 8 * TILE - 100), dtype=np.float32)


@pytest.mark.parametrize("masking", MASKING, ids=str)
def test_the_same_seed_gives_the_same_bits(X, masking):
    learner = MaskedDictionaryLearning(4, alpha=0.1, batch_size=7, n_epochs=2, random_state=3, **masking)
    first, second, other = (clone(learner).set_params(random_state=seed).fit(X) for seed in (3, 3, 4))
    assert_same_bits(first, second)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert not np.array_equal(first.components_, other.components_)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_is_a_seed_too(X, make):
    first, second = (MaskedDictionaryLearning(4, reduction=2, random_state=make(5)).fit(X) for _ in range(2))
    assert_same_bits(first, second)


@pytest.mark.parametrize("masking", MASKING[:3], ids=str)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_number_of_threads_does_not_change_a_bit(wide, setting, masking):
    learner = MaskedDictionaryLearning(5, batch_size=8, n_epochs=2, tol=1e-9, random_state=0, **setting, **masking)
    one, two, three = (clone(learner).set_params(n_threads=n).fit(wide, validation=wide[:20]) for n in (1, 2, 3))
    for several in (two, three):
        assert_same_bits(several, one)
        np.testing.assert_array_equal(several.transform(wide[:20]), one.transform(wide[:20]))
        assert several.objective(wide[:20]) == one.objective(wide[:20])
        assert [e.surrogate for e in several.history_] == [e.surrogate for e in one.history_]
        assert [e.objective for e in several.history_] == [e.objective for e in one.history_]


@pytest.mark.parametrize("n_rows", [3, 40])
def test_the_threads_of_blas_do_not_change_a_bit(wide, n_rows):
    # 3 rows for 40 atoms: the others start from mixtures of rows, made by a matrix product
    learner = MaskedDictionaryLearning(40, alpha=0.5, reduction=2, n_epochs=2, n_threads=1, random_state=0)
    rows = wide[:n_rows].astype(np.float64)
    learned = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            learned.append(clone(learner).fit(rows))
    assert_same_bits(*learned)


def visited(X, batch_size, reduction, seed, n_epochs):
    """Return the rows in the order in which ``fit`` visits them."""
    stream = BatchStream(
        ArraySource(X), batch_size, Masks(X.shape[1], resolve_masks(reduction).reduction, seed), seed, whole_rows=False
    )
    return X[np.concatenate([stream.rows(number) for number in range(n_epochs * stream.batches_per_epoch)])]


@pytest.mark.parametrize("started", [True, False], ids=["init", "first rows"])
@pytest.mark.parametrize("masking", MASKING, ids=str)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_fit_equals_repeated_partial_fit(X, setting, masking, started):
    learner = MaskedDictionaryLearning(
        4, batch_size=10, n_epochs=2, init=X[:4] if started else None, random_state=6, **setting, **masking
    )
    whole = clone(learner).fit(X)
    rows = visited(X, 10, masking["reduction"], 6, n_epochs=2)
    at_once = clone(learner).partial_fit(rows)
    assert_same_bits(at_once, whole)
    in_parts = clone(learner)
    for part in np.split(rows, [10, 40, 60, 160]):
        in_parts.partial_fit(part)
    assert_same_bits(in_parts, whole)


@pytest.mark.parametrize("masking", MASKING, ids=str)
def test_partial_fit_continues_a_fit(X, masking):
    learner = MaskedDictionaryLearning(4, batch_size=10, n_epochs=1, random_state=6, **masking)
    long = clone(learner).set_params(n_epochs=2).fit(X)
    rows = visited(X, 10, masking["reduction"], 6, n_epochs=2)
    continued = clone(learner).fit(X).partial_fit(rows[len(X) :])
    assert_same_bits(continued, long)


def test_an_earlier_fit_leaves_no_trace(X):
    learner = MaskedDictionaryLearning(4, reduction=3, random_state=0)
    fresh = clone(learner).fit(X)
    learner.fit(2 * X[:, :20]).partial_fit(X[:, :20])
    assert_same_bits(learner.fit(X), fresh)


def test_a_shorter_remainder_is_one_step(X):
    learner = MaskedDictionaryLearning(4, batch_size=20, random_state=0).partial_fit(X)
    assert learner.n_steps_ == 5
    by_hand = MaskedDictionaryLearning(4, batch_size=20, random_state=0)
    for start in range(0, len(X), 20):
        by_hand.partial_fit(X[start : start + 20])
    assert_same_bits(by_hand, learner)


def test_more_threads_than_tiles_are_allowed(X):
    learner = MaskedDictionaryLearning(4, batch_size=3, random_state=0)
    assert_same_bits(clone(learner).set_params(n_threads=9).fit(X), clone(learner).set_params(n_threads=1).fit(X))


SCRIPT = """
import hashlib, sys
import numpy as np
from terafactor.problem.masks import resolve_masks
from terafactor import MaskedDictionaryLearning
X = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
model = MaskedDictionaryLearning(8, penalty="l2", constraint="l1", alpha=1e-3, reduction=4, random_state=0, n_threads=1)
print(hashlib.sha256(model.fit(X).components_.tobytes()).hexdigest())
"""


def test_a_process_that_compiles_and_one_that_finds_the_cache_agree(tmp_path):
    """Kernels that call others once ran whichever copy of these was loaded first."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert list(tmp_path.glob("**/*.nbc"))
    assert digests[0] == digests[1]
