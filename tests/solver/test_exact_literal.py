"""Exact projections equal the literal ones that project every whole atom at every step."""

import copy

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, RandomMasks
from terafactor.data import ArraySource, BatchStream
from terafactor.data.masks import Masks
from terafactor.problem import ElasticNet, NormBall, PowerDecay, Problem
from terafactor.solver import SolverOptions, State, fit
from terafactor.testing import reference

BALLS = [
    NormBall("l2"),
    NormBall("l1", radius=2.0),
    NormBall("elastic-net", l1_ratio=0.4),
    NormBall("l2", positive=True),
    NormBall("l1", positive=True),
    NormBall("elastic-net", l1_ratio=0.7, radius=0.5, positive=True),
]


class Literal:
    """Algorithm 1 with ridge codes and whole projections, in float64: the steps of the reference, on whole batches."""

    def __init__(self, atoms, problem, schedule):
        self.memory, self.problem, self.schedule = reference.Memory.start(atoms.astype(np.float64).T), problem, schedule

    def step(self, X, columns):
        memory = self.memory
        n_rows, n_features = X.shape
        D, values = memory.D[columns], X[:, columns].astype(np.float64)
        system = D.T @ D + self.problem.alpha * len(columns) / n_features * np.eye(D.shape[1])
        A = np.linalg.solve(system, (values @ D).T)
        memory.t, memory.n = memory.t + 1, memory.n + n_rows
        memory.E[columns] += n_rows
        gain = self.schedule.weight(memory.t) * memory.t
        weight = min(1.0, gain * n_rows / memory.n)
        memory.C = (1 - weight) * memory.C + weight * A @ A.T / n_rows
        by_feature = np.minimum(1.0, gain * n_rows / memory.E[columns])[:, np.newaxis]
        memory.B[columns] = (1 - by_feature) * memory.B[columns] + by_feature * (A @ values).T / n_rows
        self.sweep(columns)

    def sweep(self, columns):
        memory, ball = self.memory, self.problem.constraint
        mask = np.zeros(len(memory.D))
        mask[columns] = 1
        memory.D = reference.dictionary_update(
            memory.B, memory.C, memory.D, mask, ball.norm, ball.as_scalars()[2],
            approximate=False, rho=ball.l1_ratio, positive=ball.positive,
        )  # fmt: skip


def run_both(advance, ball, dtype, n_steps, *, closed, reduction=12, n_features=240, n_components=6):
    """Return the dictionary after the same batches by the solver and literally.

    closed: the literal side computes codes and statistics from its own dictionary. Else it is given those of the
    solver, so that only the projections differ: rounding in float32 grows along two thousand steps of codes that
    depend on atoms that depend on codes, however these are projected.
    """
    random = np.random.default_rng(0)
    X = random.standard_normal((400, 10)) @ random.standard_normal((10, n_features))
    X = (X + 0.3 * random.standard_normal(X.shape)).astype(dtype)
    problem = Problem(5.0, ElasticNet(0.0), ball)
    options = SolverOptions(
        n_components, batch_size=20, reduction=reduction, statistics="masked", projection="exact",
        schedule=PowerDecay(0.9), reseed_after=10**9,
    )  # fmt: skip
    stream = BatchStream(ArraySource(X), 20, Masks(n_features, reduction, 0), 0, whole_rows=False)
    atoms = ball.fill(X[:n_components])
    state, literal = State.start(atoms.copy(), problem), Literal(atoms, problem, options.schedule)
    for number in range(n_steps):
        batch = stream.batch(number)
        advance(state, [batch], problem, options)
        if closed:
            literal.step(X[batch.rows], batch.columns)
        else:
            literal.memory.C, literal.memory.B = state.code_gram.copy(), state.data_code.T.astype(np.float64)
            literal.sweep(batch.columns)
    return state.dictionary, literal.memory.D.T


@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_the_literal_twin_is_the_reference(ball):
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 40))
    problem, schedule = Problem(5.0, ElasticNet(0.0), ball), PowerDecay(0.9)
    atoms = ball.fill(X[:4])
    twin, masks = Literal(atoms, problem, schedule), Masks(40, 4, 0)
    batches = []
    for number in range(12):
        rows, columns = X[5 * number : 5 * number + 5], masks.mask(number)
        twin.step(rows, columns)
        mask = np.zeros(40)
        mask[columns] = 1
        batches.append((rows.T, mask))
    memory = reference.learn(
        reference.Memory.start(atoms.T), batches, lam=5.0, rho=0.0, norm=ball.norm, limit=ball.as_scalars()[2],
        ball_rho=ball.l1_ratio, positive_dict=ball.positive, approximate=False, weight=schedule.weight,
    )  # fmt: skip
    np.testing.assert_allclose(twin.memory.D, memory.D, atol=1e-10)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
def test_thousands_of_projections_equal_the_literal_ones(advance, ball, dtype, tolerance):
    # The literal projection on the elastic-net ball bisects and is slow: fewer steps there.
    current, expected = run_both(advance, ball, dtype, 150 if ball.norm == "elastic-net" else 1000, closed=False)
    assert np.linalg.norm(current - expected) <= tolerance * np.linalg.norm(expected)
    assert (ball.size(np.ascontiguousarray(current)) <= 1 + 1e-6).all()


@pytest.mark.parametrize("ball", BALLS[:3], ids=repr)
@pytest.mark.parametrize("n_steps", [1, 13, 100])
def test_the_whole_algorithm_equals_the_literal_one(advance, ball, n_steps):
    current, expected = run_both(advance, ball, np.float64, n_steps, closed=True)
    np.testing.assert_allclose(current, expected, atol=1e-10)


@pytest.mark.parametrize("constraint", ["l2", "l1"])
def test_entries_outside_the_mask_move_too(constraint):
    X = np.random.default_rng(0).standard_normal((40, 60))
    init = np.random.default_rng(1).standard_normal((3, 60))
    model = MaskedDictionaryLearning(
        3,
        init=init,
        penalty="l2",
        alpha=0.1,
        constraint=constraint,
        reduction=RandomMasks(4, projection="exact"),
        random_state=0,
    ).fit(X)
    outside = np.setdiff1d(np.arange(60), Masks(60, 4, 0).mask(0))
    start = NormBall(constraint).project(init)
    assert not np.array_equal(model.components_[:, outside], start[:, outside])
    assert (NormBall(constraint).size(np.ascontiguousarray(model.components_)) <= 1 + 1e-6).all()


def test_at_reduction_one_both_projections_are_the_same():
    X = np.random.default_rng(0).standard_normal((90, 50))
    one, two = (
        MaskedDictionaryLearning(4, constraint="l1", reduction=RandomMasks(1, projection=projection), random_state=0)
        .fit(X)
        .components_
        for projection in ("masked", "exact")
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("constraint", ["l2", "l1"])
@pytest.mark.parametrize("stop", [0.3, 1.0, 1.7])
def test_a_resumed_fit_has_the_same_bits(constraint, stop):
    source = ArraySource(np.random.default_rng(0).standard_normal((200, 90)))
    problem = Problem(0.1, ElasticNet(0.0), NormBall(constraint))
    options = {"n_components": 4, "batch_size": 10, "reduction": 6, "statistics": "masked", "projection": "exact"}
    whole = fit(source, problem, SolverOptions(**options, n_epochs=3))
    part = copy.deepcopy(fit(source, problem, SolverOptions(**options, n_epochs=stop)))
    resumed = fit(source, problem, SolverOptions(**options, n_epochs=3), part, first_batch=part.n_batches)
    np.testing.assert_array_equal(whole.dictionary, resumed.dictionary)


@pytest.mark.parametrize("constraint", ["l2", "l1"])
@pytest.mark.parametrize("statistics", ["masked", "full"])
def test_the_number_of_threads_does_not_change_a_bit(constraint, statistics):
    X = np.random.default_rng(0).standard_normal((120, 9000), np.float32)
    one, two = (
        MaskedDictionaryLearning(
            5, penalty="l2", alpha=1e-3, constraint=constraint, reduction=RandomMasks(3, statistics, "exact"),
            random_state=0, n_threads=n_threads,
        ).fit(X).components_
        for n_threads in (1, 2)
    )  # fmt: skip
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("reduction", [1, 3])
def test_with_missing_values(reduction):
    X = np.random.default_rng(0).standard_normal((120, 60))
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    X[:, :5] = np.nan
    model = MaskedDictionaryLearning(
        4, penalty="l2", alpha=0.1, constraint="l1", missing="nan",
        reduction=RandomMasks(reduction, projection="exact"), random_state=0, n_epochs=4,
    ).fit(X)  # fmt: skip
    assert (NormBall("l1").size(np.ascontiguousarray(model.components_)) <= 1 + 1e-6).all()
    assert np.isfinite(model.objective(X))
