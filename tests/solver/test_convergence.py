"""When a fit has converged, and what it says about that."""

import math
from dataclasses import replace

import numpy as np
import pytest

from terafactor import ArraySource
from terafactor import solver as solvers
from terafactor.datasets import make_planted
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.solver import SolverOptions
from terafactor.solver.convergence import CHECKS_PER_DOUBLING, decrease_per_pass, describe_progress, last_decrease

PROBLEM = Problem(0.1, ElasticNet(1.0), NormBall("l2"))


def checks(objective, first=100, n=CHECKS_PER_DOUBLING + 2):
    """Return evaluations of a function of the rows seen."""
    rows = [round(first * 2 ** (i / CHECKS_PER_DOUBLING)) for i in range(n)]
    return [(seen, objective(seen)) for seen in rows]


def test_the_fall_is_that_of_the_last_doubling():
    assert last_decrease(checks(lambda rows: 1000 / rows)) == pytest.approx(1.0, rel=0.02)
    assert last_decrease(checks(lambda rows: 5.0)) == 0
    assert last_decrease(checks(lambda rows: rows)) < 0
    assert math.isnan(last_decrease([]))
    assert math.isnan(last_decrease([(100, 5.0), (110, 4.0)])), "no doubling yet"


def test_the_fall_per_pass_follows_the_length_of_a_pass():
    found = checks(lambda rows: 10 - 0.001 * rows)
    _, value = found[-1]
    assert decrease_per_pass(found, 200) == pytest.approx(0.001 * 200 / value, rel=0.05)
    assert decrease_per_pass(found, 400) == pytest.approx(2 * decrease_per_pass(found, 200))


def test_progress_in_words():
    falling, level = checks(lambda rows: 1000 / rows), checks(lambda rows: 5.0)
    assert describe_progress(level, (), 50) == "converged"
    assert describe_progress(falling, (), 50, tol=2.0) == "converged"
    assert describe_progress(falling, (), 50).startswith("still improving by ")
    assert describe_progress((), (), 50) == ""


@pytest.fixture(scope="module")
def rows():
    return make_planted(n_samples=1500, n_features=80, n_atoms=6)[0]


def test_a_fit_ends_where_doubling_the_rows_brings_little(rows):
    source, options = ArraySource(rows), SolverOptions(6, batch_size=20, n_epochs=1000, tol=5e-3)
    state = solvers.fit(source, PROBLEM, options, sample=source)
    assert state.n_samples < 200 * len(rows)
    assert last_decrease(state.checks) <= 5e-3
    further = solvers.fit(source, PROBLEM, replace(options, n_epochs=2 * state.n_samples / len(rows), tol=0.0))
    ends = [solvers.objective(source, found.dictionary, PROBLEM) for found in (state, further)]
    assert ends[0] < 1.01 * ends[1]


def test_the_end_is_the_same_for_any_threads_and_after_an_interruption(rows):
    source, options = ArraySource(rows), SolverOptions(6, batch_size=20, n_epochs=1000, tol=5e-3)
    whole = solvers.fit(source, PROBLEM, options, sample=source)
    on_two = solvers.fit(source, PROBLEM, replace(options, n_threads=2), sample=source)
    cut = solvers.fit(source, PROBLEM, options, callbacks=[lambda now: now.step == 60], sample=source)
    solvers.fit(source, PROBLEM, options, cut, sample=source, first_batch=cut.n_batches)
    for other in (on_two, cut):
        assert other.checks == whole.checks
        assert other.n_steps == whole.n_steps
        np.testing.assert_array_equal(other.dictionary, whole.dictionary)


def test_a_perfect_fit_settles():
    random = np.random.default_rng(0)
    X = random.random((400, 1)) @ random.random((1, 20))
    problem = Problem(0.0, ElasticNet(1.0, True), NormBall("l2", positive=True))
    options = SolverOptions(1, batch_size=20, n_epochs=1000, tol=5e-3)
    state = solvers.fit(ArraySource(X), problem, options, sample=ArraySource(X))
    assert state.n_samples < 100 * len(X)
