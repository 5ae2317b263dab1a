"""Steps on sparse rows equal the paper's, and plain steps on the same rows as a dense array."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning
from terafactor.data import ArraySource, BatchStream, SparseSource
from terafactor.data.masks import Masks
from terafactor.errors import DataError
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions, State, fit
from terafactor.solver.backends import make_backend
from terafactor.solver.convergence import last_decrease
from terafactor.solver.learners import sparse as learners
from terafactor.solver.learners.sparse import SparseLearner
from terafactor.testing import reference

PROBLEMS = {
    "lasso": Problem(0.02, ElasticNet(1.0), NormBall("l2"), code_tolerance=1e-12),
    "ridge": Problem(0.02, ElasticNet(0.0), NormBall("l2", radius=0.5)),
    "positive": Problem(0.02, ElasticNet(0.5, positive=True), NormBall("l2"), code_tolerance=1e-12),
}
N_FEATURES = 5000
"""Three tiles."""


def make(dtype=np.float64, n_rows=230, seed=0):
    """Return rows with one entry in fifty stored; some rows and features have none, one feature has most."""
    random = np.random.default_rng(seed)
    X = sparse.random_array((n_rows, N_FEATURES), density=0.02, format="csr", dtype=dtype, rng=random).tolil()
    X[:, 13] = random.random((n_rows, 1))
    X[7] = 0
    X[:, 11] = 0
    return X.tocsr()


def learn(source, problem, **options):
    return fit(source, problem, SolverOptions(9, **({"batch_size": 20, "n_epochs": 2} | options)))


@pytest.fixture
def group_lengths(monkeypatch):
    """Keep groups of steps short, and record their lengths, except those of the toy that warms up the kernels."""
    lengths, advance = [], learners.SparseLearner.advance

    def counted(self, state, data):
        if len(state.feature_counts) > 200:
            lengths.append(len(data.parts))
        return advance(self, state, data)

    monkeypatch.setattr(learners, "MOST_ROWS", 100)
    monkeypatch.setattr(learners.SparseLearner, "advance", counted)
    return lengths


def make_stream(problem):
    """Return sparse rows, a stream of them and initial atoms."""
    X = make()
    stream = BatchStream(SparseSource(X), 20, Masks(N_FEATURES, 1, 0), 0, whole_rows=True)
    atoms = problem.constraint.fill(X[:9].toarray())
    atoms[7] = atoms[0][::-1]
    return X, stream, atoms


@cache
def run_reference(problem):
    """Return the reference's memory after 12 batches, the same for every backend."""
    X, stream, atoms = make_stream(problem)
    literal = [(X[stream.rows(number)].toarray().T, np.ones((N_FEATURES, 1))) for number in range(12)]
    return reference.learn(
        reference.Memory.start(atoms.T), literal, lam=0.02, rho=problem.penalty.l1_ratio, norm="l2",
        limit=problem.constraint.as_scalars()[2], positive_code=problem.penalty.positive, positive_dict=False,
        weight=SolverOptions(9, batch_size=20).schedule.weight,
    )  # fmt: skip


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_equals_the_paper(problem):
    options = SolverOptions(9, batch_size=20)
    _, stream, atoms = make_stream(problem)
    state = State.start(atoms.copy(), problem)
    with make_backend() as backend:
        learner = learners.SparseLearner(problem, options, backend)
        state.set_order(learner.order)
        for batches in stream.sparse_batches(0, 12, length=5):
            learner.advance(state, batches)
    memory = run_reference(problem)
    np.testing.assert_allclose(state.code_gram, memory.C, atol=1e-9 * np.abs(memory.C).max())
    np.testing.assert_allclose(state.data_code, memory.B.T, atol=1e-9 * np.abs(memory.B).max())
    np.testing.assert_allclose(state.dictionary, memory.D.T, atol=1e-9)
    np.testing.assert_array_equal(state.feature_counts, memory.E)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_equals_steps_on_dense_rows(problem, dtype, tolerance, group_lengths):
    dense = learn(ArraySource(make(dtype).toarray()), problem)
    assert group_lengths == []
    sparse_rows = learn(SparseSource(make(dtype)), problem)
    assert group_lengths == [5, 5, 2] * 2  # a group ends where an epoch does
    assert sparse_rows.dictionary.dtype == dtype
    for name in ("dictionary", "data_code", "code_gram", "sizes", "feature_counts", "idle_rows"):
        expected = getattr(dense, name)
        np.testing.assert_allclose(getattr(sparse_rows, name), expected, atol=tolerance * np.abs(expected).max())
    assert sparse_rows.n_steps == dense.n_steps
    assert sparse_rows.n_batches == dense.n_batches
    assert sparse_rows.mean_penalty == pytest.approx(dense.mean_penalty, rel=tolerance)
    assert np.all(problem.constraint.size(sparse_rows.dictionary) <= 1 + 3e-6)


def rare(n_rows=3000, n_features=2000, n_atoms=12):
    """Return rows without noise, made of sparse atoms of which some are hardly ever used, and the atoms, disturbed."""
    random = np.random.default_rng(2)
    atoms = sparse.random_array((n_atoms, n_features), density=0.01, rng=random).toarray()
    used = random.random((n_rows, n_atoms)) < np.geomspace(0.2, 1e-3, n_atoms)
    rows = sparse.csr_array((used * random.standard_normal(used.shape) @ atoms).astype(np.float32))
    start = atoms / np.linalg.norm(atoms, axis=1, keepdims=True) + 1e-4 * random.standard_normal(atoms.shape)
    return rows, start.astype(np.float32)


def test_atoms_whose_terms_cancel_are_moved_on_the_features(monkeypatch):
    X, start = rare()
    problem, n_swept = Problem(1e-4, ElasticNet(1.0), NormBall("l2")), []

    sweep = SparseLearner.sweep

    def counted(*arguments):
        n_swept.append(1)
        sweep(*arguments)

    monkeypatch.setattr(SparseLearner, "sweep", counted)

    def learned(source):
        atoms = problem.constraint.project(start.astype(source.dtype))
        options = SolverOptions(len(start), batch_size=20, n_epochs=2)
        return fit(source, problem, options, State.start(atoms, problem))

    ours, plain = learned(SparseSource(X)), learned(ArraySource(X.toarray()))
    assert n_swept
    assert ours.n_steps == plain.n_steps == 300
    np.testing.assert_array_equal(ours.feature_counts, plain.feature_counts)
    assert np.all(np.linalg.norm(ours.dictionary, axis=1) < 1 + 1e-5)
    precise = X.astype(np.float64)
    ours64, plain64 = learned(SparseSource(precise)), learned(ArraySource(precise.toarray()))
    np.testing.assert_allclose(ours64.dictionary, plain64.dictionary, atol=1e-5)
    # Rarely used atoms amplify rounding, by how much depends on the processor: compare with the error of plain steps.
    rounding = np.abs(plain.dictionary - plain64.dictionary).max()
    assert np.abs(ours.dictionary - plain.dictionary).max() < rounding / 3


def test_threads_do_not_change_a_bit():
    one, two = (learn(SparseSource(make(np.float32)), PROBLEMS["lasso"], n_threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one.dictionary, two.dictionary)
    np.testing.assert_array_equal(one.data_code, two.data_code)


def test_a_resumed_fit_has_the_same_bits(group_lengths):
    source, problem = SparseSource(make(np.float32)), PROBLEMS["lasso"]
    options, seen = SolverOptions(9, batch_size=20, n_epochs=2), []

    def stop_in_the_middle(snapshot):
        seen.append((snapshot.batches_done, snapshot.step, snapshot.end_of_epoch))
        return snapshot.batches_done == 10

    undisturbed = fit(source, problem, options)
    stopped = fit(source, problem, options, callbacks=[stop_in_the_middle])
    assert seen[:2] == [(5, 5, False), (10, 10, False)]
    resumed = fit(source, problem, options, State.from_state_dict(stopped.state_dict()), first_batch=10)
    np.testing.assert_array_equal(resumed.dictionary, undisturbed.dictionary)
    np.testing.assert_array_equal(resumed.data_code, undisturbed.data_code)
    np.testing.assert_array_equal(resumed.code_gram, undisturbed.code_gram)


def test_stops_when_the_objective_has_converged(group_lengths):
    source, options = SparseSource(make()), SolverOptions(9, batch_size=20, n_epochs=1000, tol=0.1)
    state = fit(source, PROBLEMS["ridge"], options, sample=source)
    assert last_decrease(state.checks) <= 0.1
    assert state.n_steps < 1200
    assert fit(source, PROBLEMS["ridge"], replace(options, n_epochs=12)).n_steps == 144, "without a sample"


def test_keeps_the_last_codes():
    X, codes = make(), np.full((2, 230, 9), np.nan)
    for place, source in enumerate((SparseSource(X), ArraySource(X.toarray()))):
        fit(source, PROBLEMS["ridge"], SolverOptions(9, batch_size=20), last_codes=codes[place])
    np.testing.assert_allclose(codes[0], codes[1], atol=1e-12)


def test_re_initializes_unused_atoms():
    problem = Problem(0.02, ElasticNet(1.0), NormBall("l2"))
    X = make(np.float32)
    atoms = problem.constraint.fill(X[20:29].toarray())
    atoms[4] = 0
    atoms[4, 11] = 1  # where no row has a value
    state = State.start(atoms, problem)
    fit(SparseSource(X), problem, SolverOptions(9, batch_size=20, n_epochs=2, reseed_after=150), state)
    assert state.n_reseeded > 0
    assert state.dictionary[4, 11] == 0
    np.testing.assert_allclose(np.linalg.norm(state.dictionary, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("density", "problem", "options"),
    [
        (0.2, PROBLEMS["lasso"], {}),
        (0.02, Problem(0.02, ElasticNet(0.0), NormBall("l1")), {}),
        (0.02, Problem(0.02, ElasticNet(0.0), NormBall("l2", positive=True)), {}),
        (0.02, PROBLEMS["lasso"], {"reduction": 3.0}),
        (0.02, PROBLEMS["lasso"], {"batch_size": 101}),
    ],
    ids=["many-stored", "l1-ball", "positive-atoms", "masks", "large-batches"],
)
def test_other_problems_take_plain_steps(density, problem, options, group_lengths):
    X = sparse.random_array((60, 200), density=density, format="csr", rng=np.random.default_rng(0))
    sparse_rows, dense = (learn(source, problem, **options) for source in (SparseSource(X), ArraySource(X.toarray())))
    assert group_lengths == []
    np.testing.assert_array_equal(sparse_rows.dictionary, dense.dictionary)


def test_partial_fit(group_lengths):
    X = make(np.float32)
    estimator = MaskedDictionaryLearning(9, alpha=0.02, batch_size=20, init=X[:9].toarray(), random_state=0)
    for start in range(0, 230, 40):
        estimator.partial_fit(X[start : start + 40])
    whole = MaskedDictionaryLearning(9, alpha=0.02, batch_size=20, init=X[:9].toarray(), random_state=0)
    whole.partial_fit(X)
    assert estimator.n_steps_ == whole.n_steps_ == 12
    np.testing.assert_allclose(estimator.components_, whole.components_, atol=1e-5)


def test_reads_a_file(tmp_path, monkeypatch, group_lengths):
    anndata = pytest.importorskip("anndata")
    X = make()
    anndata.AnnData(X).write_h5ad(tmp_path / "cells.h5ad")
    estimator = MaskedDictionaryLearning(9, alpha=0.02, batch_size=20, n_epochs=1, random_state=0)
    atoms = estimator.fit(tmp_path / "cells.h5ad").components_
    assert sum(group_lengths) == 12
    monkeypatch.setattr("terafactor.data.source.SPARSE_SHARE", 0.0)
    plain = estimator.fit(tmp_path / "cells.h5ad").components_
    assert sum(group_lengths) == 12
    np.testing.assert_allclose(atoms, plain, atol=1e-10)


def test_names_a_stored_value_that_is_not_finite(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = make(np.float32).tolil()
    X[33, 44] = np.nan
    anndata.AnnData(X.tocsr()).write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(DataError, match=r"NaN at row 33, column '44'"):
        MaskedDictionaryLearning(9, random_state=0).fit(tmp_path / "cells.h5ad")


def test_longer_groups_where_there_are_more_features_and_fewer_stored():
    assert learners.group_length(100, 10, 50, 0.01) == 1
    lengths = [learners.group_length(20_000, 40, 50, share) for share in (0.05, 0.01, 0.001)]
    assert 1 < lengths[0] < lengths[1] < lengths[2] < learners.MOST_ROWS // 50
    assert learners.group_length(1_000_000, 40, 50, 0.001) == learners.MOST_ROWS // 50


def test_a_ball_of_half_the_squared_norm_has_its_own_limit():
    problem = Problem(0.02, ElasticNet(0.0), NormBall("elastic-net", l1_ratio=0.0))
    dense, sparse_rows = learn(ArraySource(make().toarray()), problem), learn(SparseSource(make()), problem)
    np.testing.assert_allclose(sparse_rows.dictionary, dense.dictionary, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sparse_rows.sizes, problem.constraint.psi(sparse_rows.dictionary), rtol=1e-12)
