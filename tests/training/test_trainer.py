"""A kind of model defined here only runs through fit, train, kills, resume, save and load."""

import os
import signal

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import terafactor
from terafactor import ArraySource, CheckpointPolicy, load_model, train
from terafactor.data.views.rows import SelectedRows
from terafactor.errors import DataError, RunInterruptedError
from terafactor.report import Reporting
from terafactor.solver.loop import run_loop
from terafactor.solver.maintain import Evidence
from terafactor.solver.state_dict import StateDict
from terafactor.training import Task, Trainer
from terafactor.training.journal import FitJournal
from terafactor.training.model_file import ModelFileMixin

EVERY_STEP = CheckpointPolicy(seconds=None, steps=1)


class MeanLearner:
    """Learns the mean row, a row per step."""

    may_converge = False
    n_reseeded = 0

    def __init__(self, rows, state_dict=None):
        self.rows, self.state = rows, self
        self.n_steps = self.n_samples = 0 if state_dict is None else state_dict.number("n_steps")
        self.mean = (
            np.zeros((1, rows.shape[1])) if state_dict is None else state_dict.array("mean", (1, None), float).copy()
        )

    def steps(self, numbers):
        for number in numbers:
            self.n_steps = self.n_samples = number + 1
            self.mean += (self.rows[number] - self.mean) / self.n_steps
            yield Evidence(1, self.rows[number].nbytes)

    def has_converged(self):
        return False

    def surrogate(self):
        return 0.0

    def atoms(self):
        return self.mean

    def state_dict(self):
        return StateDict({"n_steps": self.n_steps}, {"mean": self.mean})


class MeanTask(Task):
    """The training of the mean row."""

    kind = "MeanRow"

    def open_data(self, X):
        return ArraySource(np.asarray(X, float))

    def describe_data(self, data):
        return {"shape": list(data.shape), "fingerprint": str(data.array.sum())}

    def hold_out(self, data, amount, seed):
        n_rows = amount["rows"] if isinstance(amount, dict) else amount or 0
        kept, left = (SelectedRows(data, rows) for rows in np.split(np.arange(data.shape[0]), [data.shape[0] - n_rows]))
        return kept, left if n_rows else None, {"rows": n_rows}

    def open_validation(self, X, data):
        return ArraySource(X)

    def objective(self, held_out):
        rows = held_out.read(np.arange(held_out.shape[0]))
        return lambda learner: float(np.square(rows - learner.atoms()).mean())

    def prepare(self, data, start):
        self.learner = MeanLearner(data.read(np.arange(data.shape[0])), start.state_dict)
        self.elapsed = start.elapsed

    def learn(self, data, callbacks):
        numbers = range(self.learner.n_steps, data.shape[0])
        run_loop(self.learner, numbers, data.shape[0], callbacks, elapsed=self.elapsed)
        self.restore(self.learner.state_dict())

    def review(self, data):
        if np.isnan(self.estimator.components_).any():
            raise DataError("a row has no mean")
        return []

    def state_dict(self, state_dict=None):
        model = self.estimator
        return StateDict({"n_steps": model.n_steps_}, {"mean": model.components_}) if state_dict is None else state_dict

    def restore(self, state_dict):
        self.estimator.components_ = state_dict.array("mean", (1, None), float).copy()
        self.estimator.n_steps_ = state_dict.number("n_steps")


class MeanRow(ModelFileMixin, Reporting, BaseEstimator):
    """Its scikit-learn face."""

    def __init__(self, callbacks=(), verbose=0, random_state=0):
        self.callbacks, self.verbose, self.random_state = callbacks, verbose, random_state

    def fit(self, X, validation=None):
        Trainer(self._task(), FitJournal(validation)).fit(X)
        return self

    def transform(self, X):
        return np.ones((X.shape[0], 1))

    def inverse_transform(self, codes):
        return codes @ self.components_

    def _task(self):
        return MeanTask(self)

    def _rows_to_show(self, X):
        return X


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    monkeypatch.setitem(terafactor.KINDS, "MeanRow", f"{__name__}:MeanRow")
    monkeypatch.setattr("terafactor.training.model_file.import_module", lambda name: type("home", (), globals()))


def at_step(step, act):
    def callback(snapshot):
        if snapshot.step == step and snapshot.stopped_by is None:
            act()

    return callback


def fail():
    raise RuntimeError("it failed")


def test_fit_keeps_a_history_of_the_validation(X):
    model = MeanRow().fit(X, validation=X[:5])
    np.testing.assert_allclose(model.components_[0], X.mean(axis=0))
    assert model.stopped_by_ == "n_epochs"
    assert model.history_[-1].objective == pytest.approx(np.square(X[:5] - X.mean(axis=0)).mean())


def test_saved_and_loaded_it_is_the_same(X, tmp_path):
    model = MeanRow().fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").components_, model.components_)


@pytest.mark.parametrize("act", [fail, lambda: os.kill(os.getpid(), signal.SIGTERM)], ids=["killed", "stopped"])
def test_a_run_resumes_to_the_same_bits_and_has_a_report(X, tmp_path, act):
    whole = train(MeanRow(), X, tmp_path / "whole", holdout=4)
    with pytest.raises((RuntimeError, RunInterruptedError)):
        train(MeanRow([at_step(7, act)]), X, tmp_path / "run", holdout=4, checkpoints=EVERY_STEP)
    resumed = train(MeanRow(), X, tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(load_model(tmp_path / "run").components_, whole.components_)
    assert resumed.history_[-1].objective == whole.history_[-1].objective
    assert "could not be written" not in (tmp_path / "run" / "log.txt").read_text()
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("how", ["fit", "train"])
@pytest.mark.parametrize("bad", ["data", "callback"])
def test_a_failure_leaves_the_model_as_it_was(X, tmp_path, how, bad):
    model = MeanRow().fit(X)
    rows = np.where(X[3, 1] == X, np.nan, X) if bad == "data" else X
    model.callbacks = () if bad == "data" else [at_step(5, fail)]
    before = dict(vars(model))
    with pytest.raises((RuntimeError, DataError)):
        model.fit(rows) if how == "fit" else train(model, rows, tmp_path / "run", holdout=0)
    assert vars(model) == before


def test_an_interrupted_fit_is_a_model(X, python_handles_ctrl_c):
    model = MeanRow([at_step(6, lambda: os.kill(os.getpid(), signal.SIGINT))])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert (model.n_steps_, model.stopped_by_) == (6, "interrupt")
    np.testing.assert_allclose(model.components_[0], X[:6].mean(axis=0))
