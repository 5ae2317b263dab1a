"""The seams in miniature: one step for every kind of data, and grids of models that need nothing from it but a state.

Grids of models are a few lines around ``Learner.advance`` and ``maintain``, and so are :mod:`terafactor.solver.rounds`:
a learner is a pure function of state and data, so where it runs does not matter.
"""

import ast
import inspect
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from terafactor.data import ArraySource, Batch, BatchStream, SparseSource
from terafactor.data.masks import Masks
from terafactor.datasets import matched_correlation
from terafactor.problem import ElasticNet, GrowingWindow, Problem
from terafactor.solver import SolverOptions, State, step
from terafactor.solver.backends import make_backend
from terafactor.solver.learners import choose_learner
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.maintain import maintain

K, P = 8, 120
PROBLEM = Problem(1.0, ElasticNet(1.0))
OPTIONS = SolverOptions(K, batch_size=20, schedule=GrowingWindow(2 * K, longest=1000), reseed_after=300)


@pytest.fixture(scope="module")
def planted():
    random = np.random.default_rng(0)
    atoms = PROBLEM.constraint.fill(random.standard_normal((K, P)))
    codes = (random.random((2000, K)) < 0.3) * random.standard_normal((2000, K)) * 10
    return codes @ atoms + 0.1 * random.standard_normal((2000, P)), atoms


def start(X):
    return State.start(PROBLEM.constraint.fill(X[:K]), PROBLEM)


def learn(state, learner, data):
    for part in data:
        maintain(state, learner.advance(state, part), PROBLEM, learner.options)
    return state


def fitted(source, options, n_batches=300):
    """Learn from a source of any kind, by the learner that suits it."""
    stream = BatchStream(
        source, 20, Masks(source.shape[1], options.reduction, 0), 0, whole_rows=options.statistics == "full",
        missing=options.missing,
    )  # fmt: skip
    rows = source.read(np.arange(K))
    state = State.start(PROBLEM.constraint.fill(np.nan_to_num(rows)), PROBLEM)
    with make_backend() as backend:
        learner = choose_learner(source, PROBLEM, options, state, backend)
        return learn(state, learner, learner.read(stream, 0, n_batches))


def test_dense_rows(planted):
    X, atoms = planted
    assert matched_correlation(fitted(ArraySource(X), OPTIONS).dictionary, atoms) > 0.95


@pytest.mark.parametrize("statistics", ["masked", "full"])
def test_random_masks(planted, statistics):
    X, atoms = planted
    options = replace(OPTIONS, reduction=2, statistics=statistics)
    assert matched_correlation(fitted(ArraySource(X), options, 900).dictionary, atoms) > 0.8


def test_missing_values(planted):
    X, atoms = planted
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    options = replace(OPTIONS, missing=True)
    assert matched_correlation(fitted(ArraySource(holes, allow_nan=True), options).dictionary, atoms) > 0.85


def test_sparse_rows_equal_dense_ones(planted):
    wide = np.zeros((200, 4000))
    wide[:, ::50] = planted[0][:200, :80]
    both = [fitted(source, OPTIONS, 20) for source in (SparseSource(sparse.csr_array(wide)), ArraySource(wide))]
    np.testing.assert_allclose(both[0].dictionary, both[1].dictionary, atol=1e-8)


def test_a_prefix_of_the_features(planted):
    """A stage that works on the first features is a state of its own."""
    X, atoms = planted
    whole = start(X)
    stage = whole.prefix(60, PROBLEM)
    stage.set_order("C")
    with make_backend() as backend:
        for first in range(0, 2000, 20):
            rows = np.arange(first, first + 20)
            step(stage, Batch(rows, None, np.ascontiguousarray(X[rows, :60])), PROBLEM, OPTIONS.schedule, backend)
    assert matched_correlation(stage.dictionary, atoms[:, :60]) > 0.8


def test_a_grid_of_models_on_one_stream_equals_separate_fits(planted):
    X, _ = planted
    problems = [Problem(alpha, ElasticNet(ratio)) for alpha, ratio in ((0.5, 1.0), (2.0, 1.0), (1.0, 0.0))]
    with make_backend() as backend:
        learners = [BatchLearner(problem, OPTIONS, backend) for problem in problems]
        together, alone = [start(X) for _ in learners], start(X)
        for first in range(0, 600, 20):
            batch = Batch(np.arange(first, first + 20), None, X[first : first + 20])
            for state, learner in zip(together, learners, strict=True):
                learner.advance(state, batch)
            learners[1].advance(alone, batch)
    np.testing.assert_array_equal(together[1].dictionary, alone.dictionary)


def test_algorithm_1_fits_on_one_screen():
    source = inspect.getsource(step)
    tree = ast.parse(source)
    assert len(source.splitlines()) <= 35
    assert not any(
        isinstance(node, ast.FunctionDef | ast.Lambda) for node in ast.walk(tree.body[0]) if node is not tree.body[0]
    )
    branches = ast.If | ast.IfExp | ast.For | ast.While | ast.BoolOp | ast.ExceptHandler | ast.comprehension
    assert 1 + sum(isinstance(node, branches) for node in ast.walk(tree)) <= 5
