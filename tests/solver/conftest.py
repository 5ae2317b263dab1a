"""Every test of the solver runs on both backends; plain NumPy is the reference for the threaded one."""

import pytest

from terafactor.solver.backends import make_backend, use_backend
from terafactor.solver.learners.batches import BatchLearner


@pytest.fixture(params=["threaded", "numpy"], autouse=True)
def backend(request):
    with use_backend(request.param):
        yield request.param


@pytest.fixture
def advance(backend):
    """Return a function that learns from batches, one step each."""

    def learn(state, batches, problem, options):
        with make_backend() as used:
            learner = BatchLearner(problem, options, used)
            state.set_order(learner.order)
            for batch in batches:
                learner.advance(state, batch)

    return learn
