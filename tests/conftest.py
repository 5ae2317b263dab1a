"""Fixtures that several folders of tests share."""

import numpy as np
import pytest

N_ROWS, N_FEATURES, N_ATOMS = 90, 24, 4


@pytest.fixture(name="X")
def rows_of_few_atoms():
    """Rows (90, 24) that mix four atoms, with some noise, in float64."""
    random = np.random.default_rng(0)
    atoms = random.standard_normal((N_ATOMS, N_FEATURES))
    codes = random.standard_normal((N_ROWS, N_ATOMS)) * (random.random((N_ROWS, N_ATOMS)) < 0.5)
    return codes @ atoms + 0.1 * random.standard_normal((N_ROWS, N_FEATURES))
