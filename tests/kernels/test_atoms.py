"""The blocked sweep over atoms equals the paper's sweep and never increases the surrogate."""

import numpy as np
import pytest

from terafactor.kernels.atoms import BLOCK
from terafactor.problem import NormBall
from terafactor.problem.constraints.norm_ball import atom_sizes
from terafactor.solver.backends.threaded import ThreadedBackend
from terafactor.testing import reference

BALLS = [
    NormBall("l2"),
    NormBall("l1", radius=2.0),
    NormBall("elastic-net", l1_ratio=0.4),
    NormBall("l2", positive=True),
    NormBall("l1", positive=True),
]


def make(n_components, n_features, n_observed, ball, dtype, seed=0):
    """Return a dictionary in the ball, statistics of random codes, and a mask."""
    random = np.random.default_rng(seed)
    dictionary = ball.project(random.standard_normal((n_components, n_features)).astype(dtype))
    codes = random.standard_normal((3 * n_components, n_components)) * random.uniform(0.1, 2, n_components)
    code_gram = codes.T @ codes / len(codes)
    data_code = (code_gram @ ball.project(random.standard_normal((n_components, n_features)))).astype(dtype)
    columns = np.sort(random.permutation(n_features)[:n_observed])
    return dictionary, data_code, code_gram, columns


def sweep(dictionary, data_code, code_gram, columns, ball, n_threads=1):
    """Return the dictionary after one sweep on ``columns``, and the sizes of its atoms."""
    lowered = ball.as_scalars()
    sizes = atom_sizes(dictionary, *lowered[:2])
    atoms = np.ascontiguousarray(dictionary[:, columns])
    with ThreadedBackend(n_threads) as backend:
        backend.sweep(
            atoms, np.ascontiguousarray(data_code[:, columns]), code_gram, lowered, sizes, np.zeros(len(sizes)),
            whole=len(columns) == dictionary.shape[1],
        )  # fmt: skip
    updated = dictionary.copy()
    updated[:, columns] = atoms
    return updated, sizes


def surrogate(dictionary, code_gram, data_code):
    D = dictionary.astype(np.float64).T
    return reference.surrogate(D, code_gram, data_code.astype(np.float64).T, 0.0, 0.0)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-11)])
@pytest.mark.parametrize("n_observed", [300, 41])
@pytest.mark.parametrize("n_components", [1, 7, BLOCK, 2 * BLOCK + 5])
def test_equals_the_reference(ball, dtype, tolerance, n_observed, n_components):
    dictionary, data_code, code_gram, columns = make(n_components, 300, n_observed, ball, dtype)
    updated, sizes = sweep(dictionary, data_code, code_gram, columns, ball)
    mask = np.zeros(300)
    mask[columns] = 1
    l1_weight, l2_weight, limit, positive = ball.as_scalars()
    expected = reference.dictionary_update(
        data_code.T.astype(np.float64), code_gram, dictionary.T.astype(np.float64), mask, ball.norm, limit,
        approximate=True, rho=ball.l1_ratio, positive=positive,
    ).T  # fmt: skip
    np.testing.assert_allclose(updated, expected, atol=tolerance)
    np.testing.assert_allclose(sizes, atom_sizes(updated, l1_weight, l2_weight), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize("n_observed", [300, 41])
def test_whole_atoms_equal_the_reference(ball, n_observed):
    dictionary, data_code, code_gram, columns = make(2 * BLOCK + 5, 300, n_observed, ball, np.float64)
    l1_weight, l2_weight, limit, positive = lowered = ball.as_scalars()
    updated, sizes = dictionary.copy(), atom_sizes(dictionary, l1_weight, l2_weight)
    with ThreadedBackend() as backend:
        backend.sweep_whole_atoms(
            np.ascontiguousarray(dictionary[:, columns]), np.ascontiguousarray(data_code[:, columns]), code_gram,
            lowered, columns, updated, sizes,
        )  # fmt: skip
    mask = np.zeros(300)
    mask[columns] = 1
    expected = reference.dictionary_update(
        data_code.T, code_gram, dictionary.T, mask, ball.norm, limit, approximate=False, rho=ball.l1_ratio,
        positive=positive,
    ).T  # fmt: skip
    np.testing.assert_allclose(updated, expected, atol=1e-11)
    np.testing.assert_allclose(sizes, atom_sizes(updated, l1_weight, l2_weight), atol=1e-9)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize("n_observed", [200, 30])
def test_never_increases_the_surrogate_and_leaves_other_features_alone(ball, n_observed):
    for seed in range(10):
        dictionary, data_code, code_gram, columns = make(20, 200, n_observed, ball, np.float64, seed)
        updated, sizes = sweep(dictionary, data_code, code_gram, columns, ball)
        before, after = (surrogate(d, code_gram, data_code) for d in (dictionary, updated))
        assert after <= before + 1e-12 * abs(before)
        assert (ball.size(updated) <= 1 + 1e-10).all()
        outside = np.setdiff1d(np.arange(200), columns)
        np.testing.assert_array_equal(updated[:, outside], dictionary[:, outside])
        assert sizes.max() <= ball.as_scalars()[2] * (1 + 1e-10)


def test_repeated_sweeps_reach_the_minimum():
    ball = NormBall("l1")
    dictionary, data_code, code_gram, columns = make(6, 80, 80, ball, np.float64)
    for _ in range(3000):
        dictionary, _ = sweep(dictionary, data_code, code_gram, columns, ball)
    gradient = code_gram @ dictionary - data_code
    # At the minimum of a convex problem over a product of balls, a projected gradient step changes nothing.
    np.testing.assert_allclose(ball.project(dictionary - 0.1 * gradient), dictionary, atol=1e-8)


@pytest.mark.parametrize("unused", [[3], [0, 4, 5, 8, BLOCK], range(BLOCK)], ids=str)
def test_unused_atoms_are_unchanged_and_do_not_affect_the_others(unused):
    ball = NormBall("l2")
    dictionary, data_code, code_gram, columns = make(2 * BLOCK + 2, 50, 50, ball, np.float64)
    code_gram[unused, :] = code_gram[:, unused] = 0
    updated, _ = sweep(dictionary, data_code, code_gram, columns, ball)
    np.testing.assert_array_equal(updated[unused], dictionary[unused])
    used = np.setdiff1d(np.arange(len(dictionary)), unused)
    alone, _ = sweep(dictionary[used], data_code[used], code_gram[np.ix_(used, used)], columns, ball)
    np.testing.assert_allclose(updated[used], alone, atol=1e-12)


@pytest.mark.parametrize("ball", BALLS[:3], ids=repr)
def test_bits_do_not_depend_on_the_number_of_threads(ball):
    problem = make(2 * BLOCK + 3, 10_000, 9_000, ball, np.float32)
    one, _ = sweep(*problem, ball)
    two, _ = sweep(*problem, ball, n_threads=2)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("order", ["C", "F"])
def test_atom_sizes(order):
    dictionary = np.asarray(np.random.default_rng(0).standard_normal((3, 2500)), order=order)
    expected = 0.3 * np.abs(dictionary).sum(axis=1) + 0.7 / 2 * (dictionary**2).sum(axis=1)
    np.testing.assert_allclose(atom_sizes(dictionary, 0.3, 0.7), expected)
