"""The planted dictionary of the size that is asked for: recovered, at every reduction."""

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, RandomMasks
from terafactor.datasets import make_planted, matched_correlation


@pytest.mark.parametrize(
    ("parameters", "least"),
    [
        ({"reduction": 1, "n_epochs": 3}, 0.95),
        ({"reduction": 4, "n_epochs": 6}, 0.95),
        ({"reduction": 12, "n_epochs": 6}, 0.93),
        ({"reduction": RandomMasks(12, "masked"), "n_epochs": 6}, 0.93),
    ],
)
def test_a_planted_dictionary_is_recovered(parameters, least):
    found = []
    for seed in range(3):
        X, atoms = make_planted(n_samples=3000, n_features=6000, n_atoms=15, noise=0.3, seed=seed)
        estimator = MaskedDictionaryLearning(
            20, alpha=1e-3, penalty="l2", constraint="l1", batch_size=50, random_state=seed, **parameters
        )
        found.append(matched_correlation(estimator.fit(X).components_, atoms))
    assert np.mean(found) > least
