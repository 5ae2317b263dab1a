"""Steps of the solver equal Algorithm 1 of the paper, written literally in terafactor.testing.reference."""

from functools import cache

import numpy as np
import pytest

from terafactor.data import ArraySource, BatchStream
from terafactor.data.masks import Masks
from terafactor.problem import ElasticNet, NormBall, PowerDecay, Problem
from terafactor.solver import SolverOptions, State
from terafactor.solver.backends import make_backend
from terafactor.solver.step import surrogate
from terafactor.testing import reference

PROBLEMS = [
    Problem(3.0, ElasticNet(1.0), NormBall("l2"), code_tolerance=1e-12),
    Problem(3.0, ElasticNet(0.0), NormBall("l1", radius=3.0)),
    Problem(3.0, ElasticNet(0.5, positive=True), NormBall("elastic-net", positive=True), code_tolerance=1e-12),
]
N_FEATURES = 180


@cache
def make_batches(options, dtype, n_steps=15):
    """Return rows and batches of them."""
    random = np.random.default_rng(0)
    X = (random.standard_normal((100, 30)) @ random.standard_normal((30, N_FEATURES))).astype(dtype)
    X += 0.1 * random.standard_normal(X.shape).astype(dtype)
    masks = Masks(N_FEATURES, options.reduction, options.seed)
    full = options.statistics == "full"
    stream = BatchStream(ArraySource(X), options.batch_size, masks, options.seed, whole_rows=full)
    return X, [stream.batch(number) for number in range(n_steps)]


def run_both(advance, problem, options, dtype):
    """Return the state and the reference's memory after the same batches."""
    X, batches = make_batches(options, dtype)
    atoms = problem.constraint.fill(X[: options.n_components])
    state = State.start(atoms.copy(), problem)
    advance(state, batches, problem, options)
    return state, run_reference(problem, options, dtype)


@cache
def run_reference(problem, options, dtype):
    """Return the reference's memory after all batches, the same for every backend."""
    X, batches = make_batches(options, dtype)
    atoms = problem.constraint.fill(X[: options.n_components])

    def literal(batch):
        mask = np.ones(N_FEATURES)
        if batch.columns is not None:
            mask[:] = 0
            mask[batch.columns] = 1
        return X[batch.rows].astype(np.float64).T, mask

    return reference.learn(
        reference.Memory.start(atoms.astype(np.float64).T),
        map(literal, batches),
        lam=problem.alpha,
        rho=problem.penalty.l1_ratio,
        norm=problem.constraint.norm,
        limit=problem.constraint.as_scalars()[2],
        ball_rho=problem.constraint.l1_ratio,
        positive_code=problem.penalty.positive,
        positive_dict=problem.constraint.positive,
        full=options.statistics == "full",
        weight=options.schedule.weight,
    )


@pytest.mark.parametrize("problem", PROBLEMS, ids=["lasso-l2", "ridge-l1", "positive-elastic-net"])
@pytest.mark.parametrize("statistics", ["masked", "full"])
@pytest.mark.parametrize("reduction", [1, 2.5, 6])
@pytest.mark.parametrize("forgetting", [0.9, 1.0])
def test_equals_the_paper(advance, problem, statistics, reduction, forgetting):
    options = SolverOptions(
        9, batch_size=9, reduction=reduction, statistics=statistics, schedule=PowerDecay(forgetting)
    )
    state, memory = run_both(advance, problem, options, np.float64)
    np.testing.assert_allclose(state.code_gram, memory.C, atol=1e-8 * np.abs(memory.C).max())
    np.testing.assert_allclose(state.data_code, memory.B.T, atol=1e-8 * np.abs(memory.B).max())
    np.testing.assert_allclose(state.dictionary, memory.D.T, atol=1e-8)
    np.testing.assert_array_equal(state.feature_counts, memory.E)
    np.testing.assert_allclose(state.mean_penalty, memory.mean_omega)
    assert state.n_steps == memory.t
    with make_backend() as backend:
        value = surrogate(state, problem, backend)
    expected = reference.surrogate(memory.D, memory.C, memory.B, problem.alpha, memory.mean_omega)
    np.testing.assert_allclose(value, expected, rtol=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS, ids=["lasso-l2", "ridge-l1", "positive-elastic-net"])
@pytest.mark.parametrize("reduction", [1, 6])
def test_float32_stays_close_to_the_paper(advance, problem, reduction):
    options = SolverOptions(5, batch_size=9, reduction=reduction)
    state, memory = run_both(advance, problem, options, np.float32)
    assert state.dictionary.dtype == state.data_code.dtype == np.float32
    np.testing.assert_allclose(state.dictionary, memory.D.T, atol=2e-3)


def test_plain_means_when_nothing_is_forgotten(advance):
    """With forgetting 1 and no mask, B and C are the means over all samples, as in Mairal et al. (2010)."""
    problem = PROBLEMS[0]
    options = SolverOptions(4, batch_size=10, schedule=PowerDecay(1.0))
    state, _ = run_both(advance, problem, options, np.float64)
    n_samples = sum(len(batch.rows) for batch in make_batches(options, np.float64)[1])
    assert state.n_samples == n_samples
    np.testing.assert_array_equal(state.feature_counts, n_samples)
