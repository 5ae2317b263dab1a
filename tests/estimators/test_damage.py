"""A partial_fit that fails leaves the model as it was, or marks it as unusable."""

import copy
import sys

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
        with pytest.raises(DataError, match="partial_fit failed while it was changing the model"):
            use(X)
    with pytest.raises(DataError, match="call fit, or load a saved model"):
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


class Interruption(BaseException):
    """What a signal handler may raise anywhere."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised inside a destructor
def test_an_exception_at_any_call_leaves_the_model_as_it_was_or_unusable(X):
    first = MaskedDictionaryLearning(3, alpha=0.1, batch_size=30, random_state=0).partial_fit(X)
    finished = copy.deepcopy(first).partial_fit(X)
    outcomes = []
    for call in range(1, 1500, 13):
        model = copy.deepcopy(first)
        if not interrupted_at(call, model.partial_fit, X):
            continue
        if not model._state.intact:
            with pytest.raises(DataError, match="partial_fit failed while it was changing the model"):
                model.transform(X)
            outcomes.append("unusable")
            continue
        complete = model.n_steps_ == finished.n_steps_
        np.testing.assert_array_equal(model.transform(X), (finished if complete else first).transform(X))
        outcomes.append("complete" if complete else "unchanged")
    assert outcomes.count("unusable") > 10
    assert outcomes.count("unchanged") > 10


def interrupted_at(call, function, *arguments):
    """Call a function, raise an Interruption at its n-th call of another one; return whether it came to that."""

    def interrupt(frame, event, argument):
        nonlocal call
        if changes_process(frame):  # the change would stay in place for the tests that follow
            return
        call -= event == "call"
        if call == 0:
            sys.setprofile(None)
            raise Interruption

    sys.setprofile(interrupt)
    try:
        function(*arguments)
    except Interruption:
        return True
    finally:
        sys.setprofile(None)
    return False


def changes_process(frame):
    """Return whether a frame belongs to a block that limits the threads of BLAS or handles signals."""
    while frame is not None:
        of_block = frame.f_code.co_name in ("__enter__", "__exit__")
        if of_block and frame.f_code.co_filename.endswith(("_threads.py", "signals.py")):
            return True
        frame = frame.f_back
    return False
