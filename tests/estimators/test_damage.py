"""A partial_fit that fails leaves the model as it was, or marks it as unusable."""

import contextlib
import copy
import itertools
import os
import signal
import sys

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, MatrixCompletion, RandomMasks
from terafactor.errors import DataError
from terafactor.solver.backends.threaded import ThreadedBackend
from terafactor.training.signals import StopSignals

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
    for use in (
        lambda: model.partial_fit(X),
        lambda: model.transform(X),
        lambda: model.objective(X),
        lambda: model.export("nowhere.npz"),
        lambda: model.report("nowhere.html"),
        lambda: MaskedDictionaryLearning(3, alpha=0.1, init=model).fit(X),
    ):
        with pytest.raises(DataError, match="partial_fit failed while it was changing the model"):
            use()
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


ALLOCATORS = (
    "arange", "array", "asarray", "ascontiguousarray", "concatenate", "cumsum", "diff", "empty", "empty_like", "eye",
    "flatnonzero", "full", "full_like", "ones", "repeat", "searchsorted", "stack", "take", "unique", "where", "zeros",
    "zeros_like",
)  # fmt: skip
RATINGS = sparse.random_array((40, 20), density=0.3, rng=np.random.default_rng(0), format="csr")
RATINGS.data = np.round(4 * RATINGS.data) + 1
SMALL = {"random_state": 0, "n_threads": 1}
LEARNERS = {
    "dense": (MaskedDictionaryLearning(3, alpha=0.1, batch_size=30, **SMALL), np.asarray),
    "masked": (MaskedDictionaryLearning(3, alpha=0.1, reduction=RandomMasks(3, "masked"), **SMALL), np.asarray),
    "exact": (MaskedDictionaryLearning(3, alpha=0.1, reduction=RandomMasks(3, "full", "exact"), **SMALL), np.asarray),
    "sparse": (MaskedDictionaryLearning(3, alpha=0.1, **SMALL), sparse.csr_array),
    "ratings": (MatrixCompletion(3, n_epochs=2, **SMALL), lambda X: RATINGS),
    "masked ratings": (MatrixCompletion(3, n_epochs=2, statistics="masked", **SMALL), lambda X: RATINGS),
}


@pytest.mark.parametrize("kind", LEARNERS)
def test_memory_that_runs_out_at_any_allocation_leaves_the_model_as_it_was_or_unusable(X, monkeypatch, kind):
    first, finished, rows, encode = before_and_after(X, kind)
    before, after = (as_array(encode(model, rows)) for model in (first, finished))
    outcomes = []
    for number in itertools.count():
        model = copy.deepcopy(first)
        with monkeypatch.context() as patch:
            reached = fail_at(number, patch)
            with contextlib.suppress(MemoryError, IndexError):  # SciPy raises the second if indices do not fit
                model.partial_fit(rows)
        if not reached:
            break
        if not getattr(model._state, "intact", True):
            with pytest.raises(DataError, match="partial_fit failed while it was changing the model"):
                encode(model, rows)
            outcomes.append("unusable")
            continue
        np.testing.assert_array_equal(as_array(encode(model, rows)), before)
        np.testing.assert_array_equal(as_array(encode(model.partial_fit(rows), rows)), after)
        outcomes.append("unchanged")
    assert len(outcomes) > 20
    assert "unchanged" in outcomes


def before_and_after(X, kind):
    """Return a learner before and after a ``partial_fit``, the rows of that, and the method that uses the model."""
    learner, convert = LEARNERS[kind]
    rows = convert(X)
    first = copy.deepcopy(learner).partial_fit(rows[:30])
    encode = type(first).predict if kind.endswith("ratings") else type(first).transform
    return first, copy.deepcopy(first).partial_fit(rows), rows, encode


def fail_at(number, patch):
    """Let the n-th call of a function of NumPy that allocates fail; return a list that is empty until then."""
    calls, reached = itertools.count(), []

    def failing(allocate):
        def call(*arguments, **options):
            if next(calls) == number:
                reached.append(number)
                raise MemoryError
            return allocate(*arguments, **options)

        return call

    for name in ALLOCATORS:
        patch.setattr(np, name, failing(getattr(np, name)))
    return reached


def as_array(codes):
    return codes.toarray() if sparse.issparse(codes) else codes


class Interruption(BaseException):
    """What a signal handler may raise anywhere."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised inside a destructor
@pytest.mark.parametrize("kind", LEARNERS)
def test_an_exception_at_any_call_leaves_the_model_as_it_was_or_unusable(X, kind):
    first, finished, rows, encode = before_and_after(X, kind)
    outcomes = []
    for call in itertools.count(1, 29 if kind.endswith("ratings") else 13):
        model = copy.deepcopy(first)
        if not interrupted_at(call, model.partial_fit, rows):
            break
        outcomes.append(outcome(model, first, finished, lambda model: as_array(encode(model, rows))))
    assert outcomes.count("unchanged") > 10
    assert kind.endswith("ratings") or outcomes.count("unusable") > 10  # ratings are learned from in a copy


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_leaves_the_model_complete_as_it_was_or_unusable(X, monkeypatch, python_handles_ctrl_c, kind, presses):
    """The first Ctrl-C stops between two steps, the second at once. Without callbacks, states change in place."""
    first, _, rows, encode = before_and_after(X, kind)

    def press(signals, snapshot):
        for _ in range(presses if snapshot.stopped_by is None else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return signals.received is not None

    model = copy.deepcopy(first)
    with monkeypatch.context() as patch:
        patch.setattr(StopSignals, "__call__", press)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(rows)
    stopped = copy.deepcopy(first).set_params(callbacks=[lambda snapshot: True]).partial_fit(rows)
    found = outcome(model, first, stopped, lambda model: as_array(encode(model, rows)))
    assert found == ("complete" if presses == 1 else "unchanged" if kind.endswith("ratings") else "unusable")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def outcome(model, before, after, use):
    """Return what became of a model in a partial_fit that raised; fail if it is neither of the allowed ones."""
    if not getattr(model._state, "intact", True):
        with pytest.raises(DataError, match="partial_fit failed while it was changing the model"):
            use(model)
        return "unusable"
    complete = model.n_steps_ == after.n_steps_
    np.testing.assert_array_equal(use(model), use(after if complete else before))
    return "complete" if complete else "unchanged"


def interrupted_at(call, function, *arguments):
    """Call a function, raise an Interruption at its n-th call of another one; return whether there were as many."""

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
    return call == 0  # then a destructor swallowed it


def changes_process(frame):
    """Return whether a frame belongs to a block that limits the threads of BLAS or handles signals."""
    while frame is not None:
        of_block = frame.f_code.co_name in ("__enter__", "__exit__")
        if of_block and frame.f_code.co_filename.endswith(("_threads.py", "signals.py")):
            return True
        frame = frame.f_back
    return False
