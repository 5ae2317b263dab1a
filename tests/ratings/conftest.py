"""Small ratings that several tests share."""

import numpy as np
import pytest
from scipy import sparse

from terafactor import RatingTable


def made_ratings(n_users=120, n_items=60, k=3, density=0.3, noise=0.3, seed=0):
    """Return users, items and ratings of a planted model, around 3 with standard deviation of about 1."""
    random = np.random.default_rng(seed)
    codes, factors = random.standard_normal((n_users, k)), random.standard_normal((n_items, k)) / np.sqrt(k)
    users, items = np.nonzero(random.random((n_users, n_items)) < density)
    exact = 3 + np.einsum("ij,ij->i", codes[users], factors[items]) + 0.5 * random.standard_normal(n_items)[items]
    return users, items, (exact + noise * random.standard_normal(len(users))).astype(np.float32)


@pytest.fixture(name="ratings")
def planted_ratings():
    return made_ratings()


@pytest.fixture(name="X")
def ratings_as_matrix(ratings):
    users, items, values = ratings
    return sparse.csr_array((values, (users, items)), shape=(120, 60))


@pytest.fixture(name="table")
def ratings_as_table(ratings):
    return RatingTable.of(*ratings)
