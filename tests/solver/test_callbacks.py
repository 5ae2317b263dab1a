"""What a fit reports while it runs."""

import dataclasses
import io
import itertools
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from terafactor import ArraySource, MaskedDictionaryLearning
from terafactor import solver as solvers
from terafactor.errors import ParameterError
from terafactor.problem import Problem
from terafactor.solver import SolverOptions
from terafactor.solver.progress import ProgressBar

SHOW_CURSOR = "\x1b[?25h"
"""What a program that drew in a terminal prints at its end."""


def fit(X, *callbacks, **parameters):
    defaults = {"n_components": 3, "alpha": 0.1, "batch_size": 10, "reduction": 2, "n_epochs": 2, "random_state": 0}
    return MaskedDictionaryLearning(**(defaults | parameters), callbacks=callbacks).fit(X)


@pytest.mark.parametrize("verbose", [0, 1])
def test_callbacks_are_called_after_every_step_and_at_the_end(X, verbose, capsys):
    seen = []
    learner = fit(X, seen.append, verbose=verbose)
    assert [snapshot.step for snapshot in seen] == [*range(1, 19), 18]
    assert [snapshot.n_samples for snapshot in seen] == [*range(10, 190, 10), 180]
    assert [snapshot.stopped_by for snapshot in seen] == [None] * 18 + ["n_epochs"]
    assert [snapshot.step for snapshot in seen[:-1] if snapshot.end_of_epoch] == [9, 18]
    assert [snapshot.batches_done for snapshot in seen] == [*range(1, 19), 18]
    assert {snapshot.batches_to_do for snapshot in seen} == {18}
    assert learner.n_steps_ == 18
    assert bool(capsys.readouterr().err) == bool(verbose)


def test_snapshots_count_upwards(X):
    seen = []
    fit(X, seen.append)
    assert all(later.seconds > earlier.seconds for earlier, later in itertools.pairwise(seen))
    steps = np.diff([snapshot.bytes_read for snapshot in seen])
    np.testing.assert_array_equal(steps, [10 * 24 * 8] * 17 + [0])


@pytest.mark.parametrize("when", [1, 5, 18])
def test_a_callback_can_stop_the_fit(X, when):
    learner = fit(X, lambda snapshot: snapshot.step == when)
    assert learner.stopped_by_ == "callback"
    assert learner.n_steps_ == when
    np.testing.assert_array_equal(learner.components_, fit(X, n_epochs=when / 9).components_)
    assert learner.transform(X).shape == (90, 3)
    assert learner.partial_fit(X).n_steps_ > when


@pytest.mark.parametrize(
    "answer", [np.zeros(3), pd.DataFrame([[1, 2]]), pd.NA], ids=lambda answer: type(answer).__name__
)
def test_an_answer_that_is_neither_true_nor_false_is_refused(X, answer):
    def watch(snapshot):
        return answer

    with pytest.raises(ParameterError, match=rf"callback .*watch returned {type(answer).__name__}, .*None to continue"):
        fit(X, watch)


def test_all_callbacks_are_called_although_one_stops(X):
    first, last = [], []
    fit(X, first.append, lambda snapshot: True, last.append)
    assert len(first) == len(last) == 2


def test_a_callback_cannot_alter_the_fit(X):
    def meddle(snapshot):
        snapshot.components[:] = np.nan
        snapshot.surrogate()

    np.testing.assert_array_equal(fit(X, meddle).components_, fit(X).components_)


def test_a_snapshot_is_frozen(X):
    seen = []
    fit(X, seen.append)
    for field in dataclasses.fields(seen[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(seen[0], field.name, None)


def test_components_of_the_last_snapshot_are_the_model(X):
    seen = []
    learner = fit(X, lambda snapshot: seen.append(snapshot.components))
    np.testing.assert_array_equal(seen[-1], learner.components_)
    np.testing.assert_array_equal(seen[-2], learner.components_)
    assert not np.array_equal(seen[0], learner.components_)


def test_the_surrogate_falls(X):
    seen = []
    fit(X, lambda snapshot: seen.append(snapshot.surrogate()), reduction=1, n_epochs=10, forgetting=1.0)
    assert np.mean(seen[-20:]) < np.mean(seen[:20])


def test_an_error_in_a_callback_reaches_the_caller(X):
    def fail(snapshot):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        fit(X, fail)


def shown(X, learn=fit, **console):
    """Return what a progress bar writes."""
    text = io.StringIO()
    learn(X, ProgressBar(Console(file=text, **console)))
    return text.getvalue()


def test_progress_outside_a_terminal_is_one_plain_line_at_the_end(X):
    (line,) = shown(X, force_terminal=False).splitlines()
    assert line.startswith("terafactor: 18 of 18 steps, ")
    assert line.endswith(" rows per second, all passes over the data are done (n_epochs)")
    assert "\x1b" not in line


def test_progress_outside_a_terminal_writes_a_line_now_and_then(X, monkeypatch):
    monkeypatch.setattr("terafactor.solver.progress.LINE_EVERY", 0.0)
    lines = shown(X, force_terminal=False).splitlines()
    counts = [re.match(r"terafactor: (\d+) of 18 steps, ", line)[1] for line in lines]
    assert counts == [str(count) for count in [*range(1, 19), 18]]
    assert all(line.endswith(" s left") for line in lines[:-1])


def test_progress_of_a_second_partial_fit_counts_its_own_batches(X):
    def learn_twice(X, progress):
        learner = MaskedDictionaryLearning(3, batch_size=10, random_state=0).partial_fit(X)
        learner.set_params(callbacks=[progress]).partial_fit(X[:60])

    assert shown(X, learn_twice, force_terminal=False).startswith("terafactor: 6 of 6 steps, ")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_of_a_fit_with_nothing_left_to_do_is_shown(X, terminal):
    def resume_the_finished(X, progress):
        options = SolverOptions(n_components=3)
        state = solvers.fit(ArraySource(X), Problem(), options)
        solvers.fit(ArraySource(X), Problem(), options, state, [progress], first_batch=state.n_batches)

    shown(X, resume_the_finished, force_terminal=terminal)


def test_progress_in_a_terminal_is_a_bar_that_fills(X):
    text = shown(X, force_terminal=True, width=100)
    assert "learning" in text
    assert "100%" in text
    assert " rows per second" in text
    assert text.rstrip("\n").endswith(SHOW_CURSOR)


def test_a_terminal_is_given_back_when_a_callback_fails(X, monkeypatch):
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=True, width=100)
    monkeypatch.setattr("terafactor.solver.progress.Console", lambda **_: terminal)

    def fail(snapshot):
        if snapshot.step == 3:
            raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        fit(X, fail, verbose=1)
    assert "learning" in text.getvalue()
    assert text.getvalue().rstrip("\n").endswith(SHOW_CURSOR)
