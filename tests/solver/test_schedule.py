"""How much of the past the statistics remember."""

import numpy as np
import pytest

from terafactor import ArraySource
from terafactor import solver as solvers
from terafactor.errors import ParameterError
from terafactor.problem import ElasticNet, GrowingWindow, NormBall, PowerDecay, Problem
from terafactor.solver import SolverOptions


def windows(schedule, batch_size, n_rows):
    """Return the length of the window after each batch, in rows."""
    seen = np.arange(batch_size, n_rows + 1, batch_size)
    return seen, np.array([n / schedule.gain(step, n) for step, n in enumerate(seen, start=1)])


def test_the_window_is_all_of_the_past_up_to_its_unit():
    seen, lengths = windows(GrowingWindow(100), 20, 100)
    np.testing.assert_allclose(lengths, seen)


def test_the_window_grows_about_as_the_square_root_of_the_rows():
    _, lengths = windows(GrowingWindow(10), 10, 100_000)
    assert lengths[-1] == pytest.approx(10 * 10_000**0.51)
    assert (np.diff(lengths) > 0).all()


def test_the_window_does_not_depend_on_the_batch():
    small, large = (dict(zip(*windows(GrowingWindow(30), size, 6000), strict=True)) for size in (20, 300))
    for n_rows, length in large.items():
        assert length == pytest.approx(small[n_rows])


def test_the_window_stops_growing_at_its_limit():
    _, lengths = windows(GrowingWindow(10, longest=200), 10, 100_000)
    assert lengths.max() == pytest.approx(200)


def test_weights_satisfy_robbins_and_monro():
    """Their sum diverges and that of their squares converges, so that averages forget but settle."""
    n_steps = np.arange(1, 10**6, dtype=float)
    weights = 10 / (10 * n_steps ** GrowingWindow(10).exponent)
    tail = slice(10**5, None)
    assert weights.sum() > 1000
    assert 2 * GrowingWindow(10).exponent > 1
    assert np.square(weights[tail]).sum() < 0.01 * weights[tail].sum()


@pytest.mark.parametrize("exponent", [0.51, 0.75, 1.0])
def test_numbers_mean_the_weights_of_the_paper(exponent):
    schedule = PowerDecay(exponent)
    for step in (1, 2, 10, 500):
        share = schedule.gain(step, 40 * step) * 40 / (40 * step)  # of a batch of 40 in what was seen
        assert share == pytest.approx(step**-exponent)


@pytest.mark.parametrize("exponent", [0.5, 1.1, "fast", True])
def test_other_numbers_are_refused(exponent):
    with pytest.raises(ParameterError, match=r"forgetting must be 'auto', or a number above 0\.5"):
        PowerDecay(exponent)


def test_statistics_are_the_weighted_means_of_the_window():
    """Codes are ridge solutions on known atoms, so that what a step takes in can be computed here."""
    X = np.random.default_rng(0).standard_normal((60, 12))
    problem, schedule = Problem(0.1, ElasticNet(0.0), NormBall("l2")), GrowingWindow(8)
    options = SolverOptions(4, batch_size=6, schedule=schedule, n_epochs=1)
    gram = np.zeros((4, 4))
    atoms = []

    def keep(snapshot):
        atoms.append(snapshot.components)

    first = solvers.starting_atoms(ArraySource(X), problem, options)
    stream = solvers.fit.__globals__["make_stream"](ArraySource(X), options)
    state = solvers.fit(ArraySource(X), problem, options, callbacks=[keep])
    for number, dictionary in enumerate([first, *atoms[:9]]):
        rows = X[stream.rows(number)]
        codes = np.linalg.solve(dictionary @ dictionary.T + 0.1 * np.eye(4), dictionary @ rows.T).T
        n_seen = 6 * (number + 1)
        weight = min(1.0, schedule.gain(number + 1, n_seen) * 6 / n_seen)
        gram = (1 - weight) * gram + weight * codes.T @ codes / 6
    np.testing.assert_allclose(state.code_gram, gram, rtol=1e-8)
