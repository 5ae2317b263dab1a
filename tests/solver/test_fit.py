"""The loop: what stops it, what it leaves behind, and going on from there."""

import copy
import dataclasses
import os
import pickle
import signal
import threading

import numpy as np
import pytest
from scipy.sparse import csr_array

from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor import solver as solvers
from terafactor.data import SparseSource
from terafactor.datasets import make_planted
from terafactor.errors import DataError
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, State

PROBLEMS = [
    Problem(0.1, ElasticNet(1.0), NormBall("l2")),
    Problem(1e-3, ElasticNet(0.0), NormBall("l1")),
    Problem(0.1, ElasticNet(0.5, positive=True), NormBall("elastic-net", positive=True)),
]


def options(**changes):
    defaults = {"n_components": 4, "seed": 2, "batch_size": 7, "n_epochs": 3, "reduction": 3, "statistics": "masked"}
    return SolverOptions(**(defaults | changes))


def assert_same_state(one, other):
    for field in dataclasses.fields(State):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


@pytest.mark.parametrize("n_epochs", [0.1, 0.5, 1, 2.4])
@pytest.mark.parametrize(("reduction", "statistics"), [(1, "full"), (3, "full"), (3, "masked"), (4.5, "masked")])
@pytest.mark.parametrize("problem", PROBLEMS, ids=["lasso-l2", "ridge-l1", "positive-elastic-net"])
def test_a_resumed_fit_equals_an_uninterrupted_one(X, problem, reduction, statistics, n_epochs):
    source = ArraySource(X)
    masked = {"reduction": reduction, "statistics": statistics, "reseed_after": 20}
    uninterrupted = solvers.fit(source, problem, options(**masked))
    stopped = solvers.fit(source, problem, options(n_epochs=n_epochs, **masked))
    assert 0 < stopped.n_batches < uninterrupted.n_batches
    state = pickle.loads(pickle.dumps(stopped))
    resumed = solvers.fit(source, problem, options(**masked), state, first_batch=state.n_batches)
    assert resumed is state
    assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n_steps", [1, 8, 13])
def test_a_fit_that_a_callback_stopped_can_be_resumed(X, n_steps, n_threads):
    source, threads = ArraySource(X), {"n_threads": n_threads}
    uninterrupted = solvers.fit(source, PROBLEMS[0], options())
    stop = [lambda snapshot: snapshot.step == n_steps]
    state = solvers.fit(source, PROBLEMS[0], options(**threads), callbacks=stop)
    assert state.n_steps == state.n_batches == n_steps
    solvers.fit(source, PROBLEMS[0], options(), state, first_batch=n_steps)
    assert_same_state(state, uninterrupted)


class FailingSource(ArraySource):
    """Rows in memory that cannot be read more than some times."""

    n_reads_left = 4

    def read(self, rows, columns=None):
        self.n_reads_left -= 1
        if self.n_reads_left < 0:
            raise DataError("these rows are gone")
        return super().read(rows, columns)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_error_in_reading_comes_when_the_batch_is_due(X, n_threads):
    done = []
    with pytest.raises(DataError, match="gone"):
        solvers.fit(
            FailingSource(X), PROBLEMS[0], options(n_threads=n_threads), callbacks=[lambda now: done.append(now.step)]
        )
    assert done == [1, 2, 3]  # the first of four reads was for the initial atoms


@pytest.mark.parametrize("n_threads", [1, 2])
def test_errors_in_unneeded_reads_are_ignored(X, n_threads):
    state = solvers.fit(
        FailingSource(X), PROBLEMS[0], options(n_threads=n_threads), callbacks=[lambda now: now.step == 3]
    )
    assert state.n_steps == 3


def test_a_finished_fit_has_nothing_to_resume(X):
    state = solvers.fit(ArraySource(X), PROBLEMS[0], options())
    before = copy.deepcopy(state)
    solvers.fit(ArraySource(X), PROBLEMS[0], options(), state, first_batch=state.n_batches)
    assert_same_state(state, before)


@pytest.mark.parametrize("reduction", [1, 3])
def test_tol_stops_when_the_objective_has_converged(reduction):
    X, _ = make_planted(n_samples=1500, n_features=120, n_atoms=20)
    learner = MaskedDictionaryLearning(
        20,
        alpha=0.1,
        reduction=RandomMasks(reduction, "masked"),
        batch_size=40,
        n_epochs=10_000,
        tol=0.2,
        random_state=0,
    ).fit(X)
    assert learner.stopped_by_ == "tol"
    assert learner.n_steps_ < 1000
    exacting = MaskedDictionaryLearning(**(learner.get_params() | {"tol": 0.02})).fit(X)
    assert exacting.n_steps_ > learner.n_steps_


@pytest.mark.parametrize("reduction", [1, 5, 24])
def test_tol_never_stops_before_every_feature_was_seen(X, reduction):
    learner = MaskedDictionaryLearning(
        3, alpha=0.1, reduction=RandomMasks(reduction, "masked"), batch_size=10, n_epochs=1000, tol=1e9, random_state=0
    ).fit(X)
    assert learner.stopped_by_ == "tol"
    assert learner.feature_counts_.min() > 0


def test_without_tol_nothing_stops_early():
    learner = MaskedDictionaryLearning(2, batch_size=5, n_epochs=40, random_state=0).fit(np.ones((10, 4)))
    assert learner.stopped_by_ == "n_epochs"
    assert learner.n_steps_ == 80


def test_max_time_stops_with_a_usable_model(X):
    learner = MaskedDictionaryLearning(3, batch_size=10, n_epochs=1e9, max_time=1e-9, random_state=0).fit(X)
    assert learner.stopped_by_ == "max_time"
    assert learner.n_steps_ == 1
    one_step = MaskedDictionaryLearning(3, batch_size=10, n_epochs=1 / 9, random_state=0).fit(X)
    np.testing.assert_array_equal(learner.components_, one_step.components_)
    assert learner.transform(X).shape == (len(X), 3)


@pytest.mark.parametrize("limit", [{"tol": 1e9}, {"max_time": 1e-9}, {"n_epochs": 0.1}], ids=str)
def test_partial_fit_learns_from_every_row_it_is_given(X, limit):
    learner = MaskedDictionaryLearning(3, batch_size=1, random_state=0, **limit).partial_fit(X)
    assert learner.n_steps_ == len(X)


@pytest.fixture
def ctrl_c(python_handles_ctrl_c):
    """Return a callback that presses Ctrl-C."""

    def press_at_step_3(snapshot):
        if snapshot.step == 3 and snapshot.stopped_by is None:
            os.kill(os.getpid(), signal.SIGINT)

    return press_at_step_3


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_ctrl_c_leaves_a_model_and_is_raised_again(X, ctrl_c, method):
    learner = MaskedDictionaryLearning(3, batch_size=10, reduction=2, callbacks=[ctrl_c], random_state=0)
    with pytest.raises(KeyboardInterrupt):
        getattr(learner, method)(X)
    assert learner.n_steps_ == 3
    assert getattr(learner, "stopped_by_", None) == ("interrupt" if method == "fit" else None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    stopped = MaskedDictionaryLearning(
        3, batch_size=10, reduction=2, callbacks=[lambda snapshot: snapshot.step == 3], random_state=0
    )
    getattr(stopped, method)(X)
    np.testing.assert_array_equal(learner.components_, stopped.components_)
    np.testing.assert_array_equal(
        learner.partial_fit(X).components_, stopped.set_params(callbacks=()).partial_fit(X).components_
    )


def test_a_second_ctrl_c_interrupts_at_once(X, ctrl_c):
    calls = []

    def impatient(snapshot):
        calls.append(snapshot.step)
        ctrl_c(snapshot)
        ctrl_c(snapshot)

    with pytest.raises(KeyboardInterrupt):
        MaskedDictionaryLearning(3, batch_size=10, callbacks=[impatient]).fit(X)
    assert calls == [1, 2, 3], "no last call either"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_a_callback_gives_ctrl_c_back(X, ctrl_c):
    def fail(snapshot):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        MaskedDictionaryLearning(3, callbacks=[fail]).fit(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_of_ctrl_c_are_kept(X, ctrl_c):
    pressed = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    learner = MaskedDictionaryLearning(3, batch_size=10, n_epochs=1, callbacks=[ctrl_c], random_state=0).fit(X)
    assert pressed == [signal.SIGINT]
    assert learner.n_steps_ == 9


def test_a_fit_outside_the_main_thread_gives_the_same_bits(X):
    learners = [MaskedDictionaryLearning(3, batch_size=10, n_threads=2, random_state=0) for _ in range(2)]
    thread = threading.Thread(target=learners[0].fit, args=(X,))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(learners[0].components_, learners[1].fit(X).components_)


def test_codes_and_objective_do_not_depend_on_the_order_in_memory(X):
    dictionary = np.random.default_rng(0).standard_normal((3, X.shape[1]))
    problem, source = Problem(alpha=0.1), ArraySource(X)
    transposed = np.asfortranarray(dictionary)
    np.testing.assert_array_equal(
        solvers.encode(source, transposed, problem), solvers.encode(source, dictionary, problem)
    )
    assert solvers.objective(source, transposed, problem) == pytest.approx(
        solvers.objective(source, dictionary, problem)
    )


@pytest.mark.parametrize("alpha", [0.01, 2.0], ids=["dense codes", "sparse codes"])
def test_rows_learned_from_in_place_give_the_same_bits_and_stay_as_they_are(X, alpha):
    before, problem = X.copy(), Problem(alpha, ElasticNet(1.0), NormBall("l2"))
    learned = [
        solvers.fit(ArraySource(rows), problem, options(reduction=3.0, statistics="full", reseed_after=30))
        for rows in (X, np.asfortranarray(X))
    ]
    assert_same_state(*learned)
    np.testing.assert_array_equal(X, before)


def test_a_state_of_another_precision_is_refused(X):
    problem = PROBLEMS[0]
    state = State.start(problem.constraint.project(X[:4].copy()), problem)
    with pytest.raises(DataError, match="float64, but the rows are float32"):
        solvers.fit(ArraySource(X.astype(np.float32)), problem, options(), state)


def test_more_rows_of_another_precision_are_learned_or_refused(X):
    model = MaskedDictionaryLearning(3, random_state=0).partial_fit(X)
    with pytest.raises(DataError, match="float64, but the rows are float32"):
        model.partial_fit(X.astype(np.float32))
    assert model.partial_fit(X).components_.dtype == np.float64


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("n_components", "alpha", "seed"), [(12, 1e-4, 3), (12, 1e-4, 4), (12, 1e-5, 10), (20, 1e-6, 8), (20, 0, 1)]
)
def test_codes_have_a_bound_where_atoms_depend_on_each_other(n_components, alpha, seed, sparse):
    random = np.random.default_rng(seed)
    atoms = np.where(random.random((12, 1000)) < 0.02, random.random((12, 1000)), 0)
    weights = random.random((2000, 12)) < np.geomspace(0.5, 0.002, 12)  # without noise, some atoms rare
    X = (np.where(weights, random.random((2000, 12)) + 0.5, 0) @ atoms).astype(np.float32)
    source, codes = SparseSource(csr_array(X)) if sparse else ArraySource(X), np.empty((2000, n_components), np.float32)
    state = solvers.fit(
        source, Problem(alpha, ElasticNet(1.0), NormBall("l2")),
        options(n_components=n_components, batch_size=50, n_epochs=2, reduction=1, seed=seed), last_codes=codes,
    )  # fmt: skip
    assert np.isfinite(state.dictionary).all()
    assert np.abs(codes).max() < 1000


def test_rows_sorted_by_class_are_learned_from_as_well_in_blocks(tmp_path):
    random = np.random.default_rng(0)
    classes = [random.standard_normal((100, 2)) @ random.standard_normal((2, 30)) for _ in range(10)]
    X = np.concatenate(classes).astype(np.float32)
    np.save(tmp_path / "X.npy", np.asfortranarray(X))

    def learned(data):
        return MaskedDictionaryLearning(20, alpha=0.1, n_epochs=3, random_state=0).fit(data).objective(X)

    assert learned(tmp_path / "X.npy") < 1.2 * learned(X)


@pytest.mark.parametrize("options", [{}, {"reduction": RandomMasks(4, projection="exact")}, {"constraint": "l1"}])
@pytest.mark.parametrize(("alpha", "scale"), [(1e20, 1), (1e10, 1e-10)])
def test_codes_too_small_for_the_precision_are_refused(alpha, scale, options, backend):
    X = (scale * np.random.default_rng(0).standard_normal((400, 40))).astype(np.float32)
    estimator = MaskedDictionaryLearning(3, penalty="l2", alpha=alpha, forgetting=0.9, n_epochs=1, **options)
    if backend == "threaded" and "reduction" not in options:  # divides in float32
        with pytest.raises(DataError, match=r"atoms overflow float32 because .*alpha is too large.* lower alpha"):
            estimator.fit(X)
        X = X.astype(np.float64)
    assert np.isfinite(estimator.fit(X).components_).all()
