"""Small ratings that several tests share."""

import pytest
from scipy import sparse

from terafactor import RatingTable
from terafactor.datasets import make_ratings


@pytest.fixture(name="ratings")
def planted_ratings():
    return make_ratings()


@pytest.fixture(name="X")
def ratings_as_matrix(ratings):
    users, items, values = ratings
    return sparse.csr_array((values, (users, items)), shape=(120, 60))


@pytest.fixture(name="table")
def ratings_as_table(ratings):
    return RatingTable.of(*ratings)
