"""Steps on rows with missing values equal Algorithm 1 of the paper with a mask per row."""

import numpy as np
import pytest

from terafactor.data import ArraySource, Batch, BatchStream
from terafactor.data.masks import Masks
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, State, encode, fit, objective
from terafactor.testing import reference

PROBLEMS = {
    "lasso-l2": Problem(3.0, ElasticNet(1.0), NormBall("l2"), code_tolerance=1e-12),
    "ridge-l1": Problem(3.0, ElasticNet(0.0), NormBall("l1", radius=3.0)),
    "positive": Problem(3.0, ElasticNet(0.5, positive=True), NormBall("l2", positive=True), code_tolerance=1e-12),
}
N_FEATURES = 120


def make(share_missing, seed=0):
    """Return rows of which a share is NaN, among them a row and a feature without any value."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((60, 20)) @ random.standard_normal((20, N_FEATURES))
    X[random.random(X.shape) < share_missing] = np.nan
    X[7] = np.nan
    X[:, 11] = np.nan
    return X


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("share_missing", [0.02, 0.3, 0.8])
@pytest.mark.parametrize(("reduction", "statistics"), [(1, "full"), (2, "masked")])
def test_equals_the_paper(advance, problem, share_missing, reduction, statistics):
    X = make(share_missing)
    n_components = 4 if share_missing > 0.5 else 9  # more would leave some with nothing to learn from
    options = SolverOptions(n_components, batch_size=9, reduction=reduction, statistics=statistics, missing=True)
    masks = Masks(N_FEATURES, reduction, options.seed)
    stream = BatchStream(ArraySource(X, allow_nan=True), 9, masks, 0, whole_rows=statistics == "full", missing=True)
    atoms = problem.constraint.fill(np.random.default_rng(1).standard_normal((n_components, N_FEATURES)))
    state = State.start(atoms.copy(), problem)
    literal = []
    advance(state, map(stream.batch, range(10)), problem, options)
    for number in range(10):
        mask = masks.mask(number)
        seen = ~np.isnan(X[stream.rows(number)].T)
        if mask is not None:
            seen[np.setdiff1d(np.arange(N_FEATURES), mask)] = False
        literal.append((np.nan_to_num(X[stream.rows(number)].T), seen.astype(float)))
    memory = reference.learn(
        reference.Memory.start(atoms.T), literal, lam=3.0, rho=problem.penalty.l1_ratio,
        norm=problem.constraint.norm, limit=problem.constraint.as_scalars()[2], positive_code=problem.penalty.positive,
        positive_dict=problem.constraint.positive, weight=options.schedule.weight,
    )  # fmt: skip
    np.testing.assert_allclose(state.code_gram, memory.C, atol=1e-7 * np.abs(memory.C).max())
    np.testing.assert_allclose(state.data_code, memory.B.T, atol=1e-7 * np.abs(memory.B).max())
    np.testing.assert_allclose(state.dictionary, memory.D.T, atol=1e-7)
    np.testing.assert_array_equal(state.feature_counts, memory.E)
    assert state.n_samples == memory.n


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("share_missing", [0.02, 0.5, 0.8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_and_objective_equal_the_reference(problem, share_missing, dtype):
    X = make(share_missing)
    atoms = np.random.default_rng(1).standard_normal((5, N_FEATURES)).astype(dtype)
    source = ArraySource(X.astype(dtype), allow_nan=True)
    codes = encode(source, atoms, problem, missing=True)
    losses = []
    for row, code in zip(X, codes, strict=True):
        seen = (~np.isnan(row)).astype(float)
        row = np.nan_to_num(row)
        if not seen.any():
            assert not code.any()
            continue
        expected = reference.code(
            row, atoms.T.astype(float), seen, 3.0, problem.penalty.l1_ratio, problem.penalty.positive
        )
        np.testing.assert_allclose(
            code, expected, atol=(1e-5 if dtype == np.float64 else 3e-3) * max(1, abs(expected).max())
        )
        error = N_FEATURES / (2 * seen.sum()) * np.sum(seen * (row - expected @ atoms) ** 2)
        losses.append(error + 3.0 * reference.omega(expected, problem.penalty.l1_ratio))
    assert objective(source, atoms, problem, missing=True) == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize("share_missing", [0.01, 0.4])
@pytest.mark.parametrize("reduction", [1, 3])
def test_the_number_of_threads_does_not_change_a_bit(share_missing, reduction):
    random = np.random.default_rng(0)
    X = random.standard_normal((80, 5000), np.float32)
    X[random.random(X.shape) < share_missing] = np.nan
    problem = Problem(1.0)
    source = ArraySource(X, allow_nan=True)
    one, two, three = (
        fit(source, problem, SolverOptions(6, reduction=reduction, missing=True, n_threads=n)) for n in (1, 2, 3)
    )
    np.testing.assert_array_equal(one.dictionary, two.dictionary)
    np.testing.assert_array_equal(one.dictionary, three.dictionary)
    np.testing.assert_array_equal(
        encode(source, one.dictionary.copy("C"), problem, 1, missing=True),
        encode(source, one.dictionary.copy("C"), problem, 2, missing=True),
    )


def test_complete_rows_take_the_plain_path_to_the_same_bits():
    X = np.random.default_rng(0).standard_normal((50, 300))
    states = [fit(ArraySource(X), Problem(1.0), SolverOptions(5, missing=missing)) for missing in (False, True)]
    np.testing.assert_array_equal(states[0].dictionary, states[1].dictionary)


def test_a_batch_counts_its_observed_values():
    observed = np.array([[True, False], [True, True]])
    batch = Batch(np.arange(2), None, observed.astype(float), observed=observed)
    np.testing.assert_array_equal(batch.feature_rows, [2, 1])
    assert Batch(np.arange(2), None, np.ones((2, 3))).feature_rows == 2
