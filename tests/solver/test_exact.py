"""Fits with exact projections: Algorithm 1 with whole atoms projected, resumed anywhere."""

import copy
import dataclasses

import numpy as np
import pytest
from sklearn.base import clone

from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor import solver as solvers
from terafactor.data import BatchStream
from terafactor.data.masks import Masks
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, State
from terafactor.testing import reference

PROBLEMS = [
    Problem(3.0, ElasticNet(1.0), NormBall("l2"), code_tolerance=1e-12),
    Problem(3.0, ElasticNet(0.0), NormBall("l1", radius=3.0)),
    Problem(3.0, ElasticNet(0.5, positive=True), NormBall("elastic-net", positive=True), code_tolerance=1e-12),
]
NAMES = ["lasso-l2", "ridge-l1", "positive-elastic-net"]


def options(**changes):
    defaults = {"n_components": 4, "seed": 2, "batch_size": 7, "n_epochs": 3, "reduction": 5, "statistics": "masked"}
    return SolverOptions(**(defaults | {"projection": "exact"} | changes))


def assert_same_state(one, other):
    for field in dataclasses.fields(State):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("statistics", ["masked", "full"])
@pytest.mark.parametrize("reduction", [1, 2.5, 6])
def test_equals_the_paper(advance, problem, statistics, reduction):
    chosen = options(n_components=5, batch_size=9, reduction=reduction, statistics=statistics)
    random = np.random.default_rng(0)
    X = random.standard_normal((100, 30)) @ random.standard_normal((30, 180))
    full = statistics == "full"
    stream = BatchStream(ArraySource(X), 9, Masks(180, reduction, 2), 2, whole_rows=full)
    batches = [stream.batch(number) for number in range(20)]
    atoms = problem.constraint.fill(X[:5])
    state = State.start(atoms.copy(), problem)
    advance(state, batches, problem, chosen)

    def literal(batch):
        mask = np.ones(180)
        if batch.columns is not None:
            mask = np.isin(np.arange(180), batch.columns).astype(float)
        return X[batch.rows].T, mask

    memory = reference.learn(
        reference.Memory.start(atoms.T),
        map(literal, batches),
        lam=problem.alpha,
        rho=problem.penalty.l1_ratio,
        norm=problem.constraint.norm,
        limit=problem.constraint.as_scalars()[2],
        ball_rho=problem.constraint.l1_ratio,
        positive_code=problem.penalty.positive,
        positive_dict=problem.constraint.positive,
        approximate=False,
        full=full,
        weight=chosen.schedule.weight,
    )
    np.testing.assert_allclose(state.dictionary, memory.D.T, atol=1e-8)
    np.testing.assert_allclose(state.code_gram, memory.C, atol=1e-8 * np.abs(memory.C).max())


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_without_masks_both_projections_are_the_same(X, problem):
    exact, masked = (
        solvers.fit(ArraySource(X), problem, options(reduction=1, projection=projection))
        for projection in ("exact", "masked")
    )
    np.testing.assert_array_equal(exact.dictionary, masked.dictionary)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("statistics", ["masked", "full"])
@pytest.mark.parametrize("n_epochs", [0.1, 0.5, 1, 2.4])
def test_a_resumed_fit_equals_an_uninterrupted_one(X, problem, statistics, n_epochs):
    source, chosen = ArraySource(X), {"statistics": statistics, "reseed_after": 25}
    uninterrupted = solvers.fit(source, problem, options(**chosen))
    stopped = solvers.fit(source, problem, options(n_epochs=n_epochs, **chosen))
    state = copy.deepcopy(stopped)
    resumed = solvers.fit(source, problem, options(**chosen), state, first_batch=state.n_batches)
    assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_a_state_copied_in_the_middle_of_a_cycle_can_be_resumed(X, problem):
    copies = {}

    def keep(snapshot):
        copies[snapshot.step] = copy.deepcopy(snapshot._fit.state)

    uninterrupted = solvers.fit(ArraySource(X), problem, options(), callbacks=[keep])
    for number in (1, 7, 13):
        resumed = solvers.fit(ArraySource(X), problem, options(), copies[number], first_batch=number)
        assert_same_state(resumed, uninterrupted)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_what_callbacks_see_is_inside_the_ball(X, problem):
    seen = []

    def look(snapshot):
        seen.append(snapshot.components)
        assert (problem.constraint.size(seen[-1]) <= 1 + 1e-9).all()

    looked_at = solvers.fit(ArraySource(X), problem, options(), callbacks=[look])
    np.testing.assert_array_equal(looked_at.dictionary, seen[-1])
    alone = solvers.fit(ArraySource(X), problem, options())
    np.testing.assert_array_equal(looked_at.dictionary, alone.dictionary)


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
@pytest.mark.parametrize("statistics", ["masked", "full"])
def test_the_number_of_threads_does_not_change_a_bit(problem, statistics):
    rows = np.random.default_rng(0).standard_normal((40, 9000), dtype=np.float32)
    one, two = (
        solvers.fit(ArraySource(rows), problem, options(reduction=3, statistics=statistics, n_threads=n))
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.dictionary, two.dictionary)


@pytest.mark.parametrize("constraint", ["l2", "l1", NormBall("elastic-net")], ids=str)
@pytest.mark.parametrize("statistics", ["masked", "full"])
def test_fit_equals_repeated_partial_fit(X, constraint, statistics):
    learner = MaskedDictionaryLearning(
        4, alpha=1e-2, penalty="l2", constraint=constraint, batch_size=10, n_epochs=2, init=X[:4], random_state=6,
        reduction=RandomMasks(5, statistics, "exact"),
    )  # fmt: skip
    whole = clone(learner).fit(X)
    stream = BatchStream(ArraySource(X), 10, Masks(X.shape[1], 5, 6), 6, whole_rows=False)
    rows = X[np.concatenate([stream.rows(number) for number in range(2 * stream.batches_per_epoch)])]
    in_parts = clone(learner)
    for part in np.split(rows, [10, 40, 60, 160]):
        in_parts.partial_fit(part)
        assert (whole._constraint.size(in_parts.components_) <= 1 + 1e-9).all()
    np.testing.assert_array_equal(in_parts.components_, whole.components_)


@pytest.mark.parametrize(
    "change", [{"reduction": 5}, {"reduction": RandomMasks(3, projection="exact")}, {"constraint": "l1"}], ids=str
)
def test_parameters_may_change_between_partial_fits(X, change):
    learner = MaskedDictionaryLearning(4, batch_size=10, reduction=RandomMasks(5, projection="exact"), random_state=0)
    learner.partial_fit(X[:30]).set_params(**change).partial_fit(X)
    assert (learner._constraint.size(learner.components_) <= 1 + 1e-9).all()
    sizes = learner._constraint.size(learner.components_) * learner._constraint.as_scalars()[2]
    if change == {"reduction": 5}:
        np.testing.assert_allclose(learner._state.sizes, sizes, rtol=1e-9)


def test_a_callback_that_raises_leaves_the_dictionary_as_it_was_shown(X):
    states = []

    def fail(snapshot):
        states.append((snapshot._fit.state, snapshot.components))
        if snapshot.step == 7:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        solvers.fit(ArraySource(X), PROBLEMS[1], options(), callbacks=[fail])
    state, shown = states[-1]
    np.testing.assert_array_equal(state.dictionary, shown)


def test_an_unknown_projection_is_refused():
    with pytest.raises(ValueError, match=r"projection must be 'masked' or 'exact', got 'whole'"):
        options(projection="whole")
