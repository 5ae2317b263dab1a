"""Codes: equal to the reference, optimal by their subgradient, finite in degenerate cases."""

import numpy as np
import pytest

from terafactor.kernels.solve import cholesky, is_definite, solve_rows, solve_triangles
from terafactor.kernels.statistics import add_rounding
from terafactor.problem import ElasticNet, Problem
from terafactor.solver.backends import make_backend
from terafactor.solver.coding import encode_rows
from terafactor.solver.parts import Atoms, WholeRows
from terafactor.testing import reference

PENALTIES = [ElasticNet(rho, positive) for rho in (0.0, 0.4, 1.0) for positive in (False, True)]


def make(dtype=np.float64, n_rows=6, n_components=8, n_observed=40, seed=0):
    random = np.random.default_rng(seed)
    atoms = random.standard_normal((n_components, n_observed)).astype(dtype)
    values = (
        random.standard_normal((n_rows, n_components)) @ atoms + random.standard_normal((n_rows, n_observed))
    ).astype(dtype)
    return values, atoms


def encode(problem, values, atoms, share=1.0):
    with make_backend() as backend:
        return encode_rows(values, atoms, problem, backend, round(values.shape[1] / share))


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-9)])
@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_equals_the_reference(penalty, dtype, tolerance, alpha):
    values, atoms = make(dtype)
    problem = Problem(alpha, penalty, code_tolerance=1e-12)
    codes = encode(problem, values, atoms, share=0.5)
    assert codes.dtype == dtype
    mask = np.repeat([1.0, 0.0], atoms.shape[1])  # half of 2 s features observed
    dictionary = np.hstack([atoms, np.ones_like(atoms)]).T.astype(np.float64)
    for row, code in zip(values.astype(np.float64), codes, strict=True):
        signal = np.concatenate([row, np.ones_like(row)])
        expected = reference.code(signal, dictionary, mask, alpha, penalty.l1_ratio, penalty.positive)
        np.testing.assert_allclose(code, expected, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_satisfies_the_optimality_conditions(penalty):
    values, atoms = make(n_rows=30, n_components=20, seed=1)
    alpha = 3.0
    codes = encode(Problem(alpha, penalty), values, atoms)
    assert worst_violation(values, atoms, codes, alpha, penalty) <= 1.01e-4
    if penalty.positive:
        assert (codes >= 0).all()


@pytest.mark.parametrize("penalty", PENALTIES[2:], ids=repr)
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("spread", [0.0, 1e-4, 0.03])
def test_is_optimal_with_nearly_collinear_atoms(penalty, alpha, spread, caplog):
    values, atoms = make(n_rows=20, n_components=4, n_observed=60)
    atoms = np.tile(atoms, (4, 1)) + spread * np.random.default_rng(1).standard_normal((16, 60))
    with caplog.at_level("INFO"):
        codes = encode(Problem(alpha, penalty), values, atoms)
    assert worst_violation(values, atoms, codes, alpha, penalty) <= 1.01e-4
    assert not caplog.records


def worst_violation(values, atoms, codes, alpha, penalty):
    """Return the largest violation of the optimality conditions, relative to the largest correlation of its row."""
    correlations = values @ atoms.T
    slope = correlations - codes @ (atoms @ atoms.T) - alpha * (1 - penalty.l1_ratio) * codes
    l1 = alpha * penalty.l1_ratio
    violation = np.where(codes == 0, np.maximum((slope if penalty.positive else np.abs(slope)) - l1, 0), 0)
    violation = np.where(codes > 0, np.abs(slope - l1), violation)
    violation = np.where(codes < 0, np.abs(slope + l1), violation)
    return (violation.max(axis=1) / np.abs(correlations).max(axis=1)).max()


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_dependent_or_zero_atoms_give_finite_codes(penalty, alpha):
    values, atoms = make(n_components=4)
    atoms[1] = atoms[0]
    atoms[2] = 0
    codes = encode(Problem(alpha, penalty), values, atoms)
    assert np.isfinite(codes).all()
    assert not codes[:, 2].any()


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_a_dictionary_of_zeros_gives_zero_codes(penalty):
    values, atoms = make()
    assert not encode(Problem(0.0, penalty), values, np.zeros_like(atoms)).any()


def test_no_penalty_is_least_squares():
    values, atoms = make()
    codes = encode(Problem(0.0, ElasticNet(0.0)), values, atoms)
    np.testing.assert_allclose(codes, np.linalg.lstsq(atoms.T, values.T, rcond=None)[0].T, atol=1e-10)


@pytest.mark.parametrize("n_components", [20, 70])
def test_a_weak_penalty_takes_few_passes(n_components, caplog, monkeypatch):
    monkeypatch.setattr("terafactor.problem.penalties.elastic_net.MAX_PASSES", 5)
    values, atoms = make(n_rows=30, n_components=n_components, n_observed=1600)
    alpha = 0.01 * np.abs(values @ atoms.T).mean()
    with caplog.at_level("INFO"):
        codes = encode(Problem(alpha), values, atoms)
        assert not caplog.records
        assert (codes != 0).mean() > 0.9
        encode(Problem(alpha, ElasticNet(1.0, positive=True)), values, atoms)
        assert "stopped after 5 passes" in caplog.text


def test_a_strong_penalty_gives_zero_codes():
    values, atoms = make()
    assert not encode(Problem(1e6), values, atoms).any()


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_losses_are_the_objective(penalty):
    values, atoms = make()
    problem = Problem(2.0, penalty)
    codes = encode(problem, values, atoms)
    with make_backend() as backend:
        rows = WholeRows(np.arange(len(values)), values, observed=None)
        losses = rows.losses(problem, Atoms(atoms, atoms @ atoms.T, backend), codes)
    expected = [
        1 / 2 * np.sum((x - a @ atoms) ** 2) + 2.0 * reference.omega(a, penalty.l1_ratio)
        for x, a in zip(values, codes, strict=True)
    ]
    np.testing.assert_allclose(losses, expected)


@pytest.mark.parametrize("k", [1, 7, 8, 41])
def test_solutions(k):
    random = np.random.default_rng(0)
    root, rows = random.standard_normal((k, k + 3)), random.standard_normal((5, k))
    system = root @ root.T
    np.testing.assert_allclose(solve_rows(system, rows) @ system, rows, atol=1e-9)
    factor, right = system.copy(), rows[0].copy()
    cholesky(factor, k)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(system), atol=1e-10)
    solve_triangles(factor, right, k)
    np.testing.assert_allclose(system @ right, rows[0], atol=1e-9)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
def test_indefinite_matrices_are_detected(bad):
    assert not is_definite(np.diag([1.0, 2.0, bad]))


def test_a_singular_system_gets_the_least_norm_solution():
    np.testing.assert_allclose(solve_rows(np.diag([1.0, 2.0, 0.0]), np.ones((2, 3))), [[1, 0.5, 0]] * 2)
    assert np.isnan(solve_rows(np.diag([1.0, np.inf]), np.ones((2, 2)))).all()


def test_the_ridge_of_a_gram_matrix_exceeds_its_rounding_error():
    random = np.random.default_rng(0)
    for _ in range(50):
        atoms = (random.standard_normal((30, 10)) @ random.standard_normal((10, 5000))).astype(np.float32)  # of rank 10
        gram = (atoms @ atoms.T).astype(np.float64)
        assert not is_definite(gram)
        add_rounding(gram, np.finfo(np.float32).eps)
        assert is_definite(gram)
