"""A partial_fit that fails leaves the model as it was, or marks it as damaged: it never lies."""

import copy

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning
from terafactor.errors import DataError
from terafactor.solver.backends.threaded import ThreadedBackend

OPERATIONS = ["gather", "correlate", "blend", "sweep", "scatter"]


@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_step_that_fails_marks_the_model(X, monkeypatch, operation, reduction):
    model = MaskedDictionaryLearning(3, alpha=0.1, batch_size=10, reduction=reduction, random_state=0).partial_fit(X)

    def fail(*arguments, **others):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(ThreadedBackend, operation, fail)
        with pytest.raises(MemoryError):
            model.partial_fit(X)
    for use in (model.partial_fit, model.transform, model.objective):
        with pytest.raises(DataError, match="the model is damaged: partial_fit failed in the middle of a step"):
            use(X)
    with pytest.raises(DataError, match="Call fit, or load the model from a file"):
        model.save("nowhere")
    assert np.isfinite(model.fit(X).objective(X))


def test_rows_that_are_refused_leave_the_model_as_it_was(X):
    model = MaskedDictionaryLearning(3, alpha=0.1, batch_size=10, random_state=0).partial_fit(X)
    before = copy.deepcopy(model)
    bad = X.copy()
    bad[50, 3] = np.inf
    with pytest.raises(DataError, match="infinity"):
        model.partial_fit(bad)
    np.testing.assert_array_equal(model.transform(X), before.transform(X))
    np.testing.assert_array_equal(model.partial_fit(X).components_, before.partial_fit(X).components_)
