"""Notices appear when they should and only then, and say what to do."""

import re
from dataclasses import replace

import numpy as np
import pytest

from terafactor.report import RowSample
from terafactor.report.advice import notices
from terafactor.solver import Evaluation
from terafactor.testing import make_history, make_report_context, make_sample


def orthogonal(**changes):
    """Return a context without notices."""
    components = np.eye(6, 30)
    converged = [Evaluation(i, 10 * i, i, i, 1.0, 5.0 + 1e-4 / i, 1.0, 1, 0) for i in range(1, 20)]
    found = {"components": components, "sample": make_sample(components, density=0.8), "history": converged}
    return make_report_context(**(found | changes))


def texts(context):
    return [f"{notice.what} {notice.remedy}" for notice in notices(context)]


def test_a_good_run_has_no_notices():
    assert texts(orthogonal()) == []


def unused():
    codes = np.ones((20, 6))
    codes[:, 2] = 0
    return RowSample(codes, np.ones(20))


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"stopped_by": "max_time", "parameters": {"max_time": 60}}, "time limit.*max_time=60 s.*larger max_time"),
        ({"stopped_by": "interrupt"}, "interrupted.*resume"),
        ({"stopped_by": "SIGTERM"}, "stopped by SIGTERM"),
        ({"stopped_by": "SIGINT"}, "interrupted by Ctrl-C"),
        ({"stopped_by": "callback"}, "callback stopped"),
        ({"sample": unused(), "parameters": {"alpha": 3.0}}, r"sample of 20 uses 1 of the 6 atoms.*alpha \(now 3\)"),
        ({"sample": RowSample(np.zeros((5, 6)), np.zeros(5))}, "All codes are zero.*Lower alpha"),
        ({"history": make_history(4), "parameters": {"n_epochs": 2}}, r"Not converged.*%.*n_epochs \(now 2\)"),
        ({"feature_visits": 3.2, "parameters": {"statistics": "auto"}}, "3.2 steps.*30.*full"),
        ({"feature_visits": 3.2, "parameters": {"reduction": 8}}, r"3.2 steps.*30.*lower reduction or batch_size\.$"),
        ({"n_unseen_features": 1234}, "no step has seen: 1,234"),
        ({"components": np.vstack([np.eye(6, 30)[:5], np.eye(1, 30)])}, "nearly duplicate.*: 1.*n_components"),
        ({"components": np.full((6, 30), np.nan)}, "NaN"),
        ({"warnings": ["The scanner was off."]}, "The scanner was off."),
        ({"sample": unused(), "advice": ["column 3 is too large"]}, r"^Column 3 is too large\. $"),
    ],
)
def test_each_notice_names_the_fault_and_the_remedy(changes, pattern):
    (text,) = texts(orthogonal(**changes))
    assert re.search(pattern, text), text


@pytest.mark.parametrize("errors", [[0.0, 0.0, 0.0, 0.0], [0.8, 0.5, 0.2, 0.0]])
def test_an_error_of_zero_cannot_fall_any_further(errors):
    exact = [Evaluation(i, 10 * i, i, i, 1.0, value, 1.0, 1, 0) for i, value in enumerate(errors, start=1)]
    assert texts(orthogonal(history=exact)) == []


def test_rising_objective():
    rising = [Evaluation(i, 10 * i, i, i, 1.0, value, 1.0, 1, 0) for i, value in enumerate([5, 4, 4.2, 4.4], start=1)]
    (text,) = texts(orthogonal(history=rising))
    assert "ended 10 % above its lowest" in text


def test_only_parameters_that_are_set_are_to_be_changed():
    rising = [Evaluation(i, 10 * i, i, i, 1.0, value, 1.0, 1, 0) for i, value in enumerate([5, 4, 4.2, 4.4], start=1)]
    (learned,) = texts(orthogonal(history=rising, parameters={"alpha": None}))
    (given,) = texts(orthogonal(history=rising, parameters={"alpha": 1.0}))
    assert "a larger alpha" in given
    assert "alpha" not in learned


def flat(seed, n_lines):
    """Return a constant history with noise of 2 %."""
    values = 5 + 0.1 * np.random.default_rng(seed).standard_normal(n_lines)
    return [Evaluation(i, 10 * i, i, i, 1.0, value, 1.0, 1, 0) for i, value in enumerate(values, start=1)]


@pytest.mark.parametrize("n_lines", [20, 50, 200])
def test_noise_is_seldom_taken_for_a_fall_or_a_rise_and_never_for_both(n_lines):
    found = [texts(orthogonal(history=flat(seed, n_lines))) for seed in range(100)]
    assert max(map(len, found)) <= 1
    assert sum(map(len, found)) <= 10


def test_a_noisy_fall_and_a_noisy_rise_are_seen():
    for slope, words in ((-0.02, "Not converged"), (0.02, "above its lowest")):
        moving = [replace(line, objective=line.objective + slope * line.step) for line in flat(0, 100)]
        (text,) = texts(orthogonal(history=moving))
        assert words in text


def test_no_verdict_before_the_end():
    assert texts(orthogonal(stopped_by=None, history=make_history(4), feature_visits=1.0, n_unseen_features=5)) == []
