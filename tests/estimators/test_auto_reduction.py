"""``reduction="auto"``: what is chosen, from what, and that a run remembers it."""

from __future__ import annotations

import logging
import signal

import numpy as np
import pytest

from terafactor import CheckpointPolicy, MaskedDictionaryLearning, load_model, open_source, pack, solver, train
from terafactor.data import ArraySource
from terafactor.data.masks import largest_reduction
from terafactor.datasets import make_planted
from terafactor.dictionary.auto_reduction import (
    ReductionTrial,
    candidates,
    choose_reduction,
    has_converged,
    largest_as_good,
    rows_to_compare_on,
)
from terafactor.errors import ParameterError, RunInterruptedError
from terafactor.problem import Problem
from terafactor.solver import SolverOptions

SETTING = {"alpha": 1e-3, "penalty": "l2", "constraint": "l1", "batch_size": 20, "n_epochs": 5,
           "reduction": "auto", "random_state": 0}  # fmt: skip


@pytest.fixture(scope="module")
def planted():
    return make_planted(400, 300, 5, seed=1)[0]


def auto(**changes):
    return MaskedDictionaryLearning(6, **(SETTING | changes))


def path_of(*objectives):
    return [ReductionTrial(2.0 ** (5 - number), value, 0, 0) for number, value in enumerate(objectives)]


def test_rule_takes_the_largest_within_the_tolerance_of_the_best():
    assert largest_as_good(path_of(90, 50.5, 50, 50.2), unexplained=100) == 16


def test_rule_goes_on_over_one_trial_that_brings_nothing():
    assert not has_converged(path_of(90, 89.9), unexplained=100)
    assert not has_converged(path_of(90, 89.9, 60), unexplained=100)
    assert has_converged(path_of(90, 60, 59.9, 59.8), unexplained=100)


def test_rows_to_compare_on_without_any_value_are_refused(planted):
    X = planted.copy()
    X[rows_to_compare_on(ArraySource(X), SETTING["random_state"]).rows] = np.nan
    with pytest.raises(ParameterError, match="20 rows, but none of them has a value"):
        auto(missing="nan").fit(X)


def test_trials_start_high_and_halve(planted):
    options = SolverOptions(6, batch_size=20, n_epochs=100)
    tried = candidates(ArraySource(planted), options)
    assert tried == sorted(tried, reverse=True)
    assert tried[0] == 32  # more would leave fewer features in a mask than atoms
    assert tried[-1] == 1


def test_too_few_steps_for_any_mask_leave_reduction_one(planted):
    estimator = auto(n_epochs=0.2).fit(planted)
    assert estimator.reduction_ == 1
    assert estimator.reduction_path_ == []


def test_chosen_reduction_is_one_of_the_trials_and_what_the_fit_uses(planted):
    estimator = auto().fit(planted)
    assert estimator.reduction_ in [trial.reduction for trial in estimator.reduction_path_]
    fixed = auto().set_params(reduction=estimator.reduction_).fit(planted)
    np.testing.assert_array_equal(estimator.components_, fixed.components_)
    assert estimator.history_[-1].bytes_read > fixed.history_[-1].bytes_read
    assert fixed.reduction_path_ == []


def test_more_threads_choose_the_same(planted):
    one, two = (auto(n_threads=n).fit(planted) for n in (1, 2))
    assert one.reduction_path_ == two.reduction_path_
    np.testing.assert_array_equal(one.components_, two.components_)


def test_redundant_features_allow_a_high_reduction():
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((600, 3)) @ rng.standard_normal((3, 400))
    estimator = MaskedDictionaryLearning(
        3, alpha=1e-3, penalty="l2", batch_size=20, n_epochs=10, reduction="auto", statistics="full", random_state=0
    )
    assert estimator.fit(signals).reduction_ >= 8


def test_trials_do_not_learn_from_the_rows_they_are_compared_on(planted, monkeypatch):
    sources, learn = [], solver.fit
    monkeypatch.setattr(solver, "fit", lambda source, *rest, **named: sources.append(source) or learn(source, *rest))
    source = ArraySource(planted)
    held_out = rows_to_compare_on(source, seed=0)
    options = SolverOptions(6, batch_size=20, n_epochs=5)
    choose_reduction(source, held_out, Problem(1e-3), options, lambda tried: None)
    assert sources
    for learned_from in sources:
        assert sorted([*learned_from.rows, *held_out.rows]) == list(range(len(planted)))


def test_partial_fit_needs_a_choice(planted):
    with pytest.raises(ParameterError, match="needs fit"):
        auto().partial_fit(planted)
    estimator = auto().fit(planted)
    chosen = estimator.reduction_
    assert estimator.partial_fit(planted).reduction_ == chosen


def test_model_file_keeps_choice_and_trials(planted, tmp_path):
    estimator = auto().fit(planted)
    estimator.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert (loaded.reduction, loaded.reduction_) == ("auto", estimator.reduction_)
    assert loaded.reduction_path_ == estimator.reduction_path_


def test_longer_run_keeps_the_choice(planted, tmp_path):
    estimator = train(auto(n_epochs=2), planted, tmp_path / "run")
    longer = train(auto(n_epochs=4), planted, tmp_path / "run", resume=True)  # alone, it would try longer fits
    assert longer.reduction_path_ == estimator.reduction_path_ != []
    assert longer.reduction_ == estimator.reduction_


def test_killed_run_resumes_to_the_same_bits(planted, tmp_path):
    class KilledError(Exception):
        pass

    def die(snapshot):
        if snapshot.step == 40:
            raise KilledError

    whole = train(auto(), planted, tmp_path / "whole")
    steps = CheckpointPolicy(seconds=None, steps=15)
    with pytest.raises(KilledError):
        train(auto(callbacks=[die]), planted, tmp_path / "run", checkpoints=steps)
    resumed = train(auto(), planted, tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    manifests = [(tmp_path / name / "model" / "manifest.json").read_bytes() for name in ("whole", "run")]
    assert manifests[0] == manifests[1]


class SignalAtTrial(logging.Handler):
    """Sends a signal when the first trial is logged."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def emit(self, record):
        if "held-out objective" in record.getMessage() and self.number is not None:
            number, self.number = self.number, None
            signal.raise_signal(number)


@pytest.fixture
def signal_at_trial(caplog):
    """Return a function that has a signal sent during the trials."""
    caplog.set_level(logging.INFO, "terafactor")
    logger, added = logging.getLogger("terafactor"), []

    def install(number):
        added.append(SignalAtTrial(number))
        logger.addHandler(added[-1])

    yield install
    for handler in added:
        logger.removeHandler(handler)


def test_stop_during_trials_learns_nothing_and_the_run_can_start_again(planted, tmp_path, signal_at_trial):
    estimator = auto()
    before = dict(vars(estimator))
    signal_at_trial(signal.SIGTERM)
    with pytest.raises(RunInterruptedError, match="stopped by SIGTERM before the first step: run the same"):
        train(estimator, planted, tmp_path / "run")
    assert vars(estimator) == before
    assert train(estimator, planted, tmp_path / "run").reduction_path_


def test_interrupt_during_trials_leaves_the_model_as_it_was(planted, signal_at_trial, python_handles_ctrl_c):
    estimator = auto()
    signal_at_trial(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(planted)
    assert not hasattr(estimator, "alpha_")


def test_unknown_word_is_refused(planted):
    with pytest.raises(ParameterError, match="reduction must be a number"):
        auto(reduction="most").fit(planted)


def test_packed_store_is_read_by_trials_and_fit(planted, tmp_path):
    store = pack(planted, tmp_path / "store", block_rows=20)
    source = open_source(store)
    assert largest_reduction(source) == source.layout.n_tiles < planted.shape[1]  # groups that are read whole
    estimator = auto().fit(store)
    assert estimator.reduction_path_
    assert estimator.statistics_ == "masked"


def test_one_block_of_rows_needs_validation(planted, tmp_path):
    store = pack(planted[:100], tmp_path / "store", block_rows=100)
    with pytest.raises(ParameterError, match="validation"):
        auto().fit(store)
    assert auto(n_epochs=70).fit(store, validation=planted[100:150]).reduction_path_
