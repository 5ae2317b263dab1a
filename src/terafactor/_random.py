"""Random generators derived from integers, without state.

Every random choice is a pure function of ``(seed, purpose, index)``: masks of ``(seed, cycle)``, row order of
``(seed, epoch)``. A run can therefore resume from a few counters, and no draw depends on earlier ones.
"""

from enum import IntEnum

import numpy as np

from terafactor.errors import ParameterError


class Purpose(IntEnum):
    """Purpose of a stream of random numbers. Runs depend on the values: never renumber them."""

    MASKS = 0
    ROW_ORDER = 1
    INITIAL_ATOMS = 2
    DATA = 3
    PACKING = 4
    HOLDOUT = 5
    SAMPLE = 6


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """Return the generator of a purpose at an index (0 by default), a function of these integers alone."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence(seed, spawn_key=(int(purpose), *(index or (0,)))))
    )


def resolve_seed(random_state: object) -> int:
    """Turn scikit-learn's ``random_state`` (None, an integer, or a generator) into one integer."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ParameterError(f"random_state must be >= 0, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise ParameterError(f"random_state must be None, an integer or a NumPy generator, got {random_state!r}")
