"""Callbacks that send the history elsewhere."""

import struct
import sys
import types

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, MatrixCompletion, train
from terafactor.errors import MissingDependencyError
from terafactor.tracking import MLflowCallback, TensorBoardCallback
from terafactor.tracking.tracker import figures


class FakeWriter:
    opened = 0

    def __init__(self, log_dir):
        FakeWriter.opened += 1
        self.log_dir = log_dir
        self.lines = LINES
        self.open = True

    def add_scalar(self, name, value, step):
        assert self.open
        self.lines.append((name, value, step))

    def close(self):
        FakeWriter.opened -= 1
        self.open = False


LINES = []


@pytest.fixture
def writer(monkeypatch):
    """A stand-in for tensorboardX."""
    LINES.clear()
    FakeWriter.opened = 0
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=FakeWriter))
    return FakeWriter


@pytest.fixture
def mlflow(monkeypatch):
    """A stand-in for MLflow."""
    logged = []
    fake = types.SimpleNamespace(log_metrics=lambda metrics, step: logged.append((metrics, step)), logged=logged)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def fit(X, callback, kind=MaskedDictionaryLearning):
    estimator = kind(4, random_state=0, batch_size=10, n_epochs=2, callbacks=[callback])
    return estimator.fit(X[:70], validation=X[70:])


@pytest.mark.parametrize("kind", [MaskedDictionaryLearning, MatrixCompletion])
def test_tensorboard_gets_every_line_of_the_history(X, writer, kind):
    estimator = fit(X, TensorBoardCallback("logs"), kind)
    sent = [(step, value) for name, value, step in LINES if name == "terafactor/objective"]
    assert sent == [(line.step, line.objective) for line in estimator.history_]
    assert len(sent) > 5
    assert writer.opened == 0


def test_a_callback_serves_a_second_fit(X, writer):
    callback = TensorBoardCallback("logs")
    fit(X, callback)
    n_lines = len(LINES)
    fit(X, callback)
    assert len(LINES) == 2 * n_lines
    assert writer.opened == 0


def test_mlflow_gets_every_line_of_the_history(X, mlflow):
    estimator = fit(X, MLflowCallback(prefix="brain/"))
    assert [step for _, step in mlflow.logged] == [line.step for line in estimator.history_]
    last = mlflow.logged[-1][0]
    assert last["brain/objective"] == estimator.history_[-1].objective
    assert set(last) == {f"brain/{name}" for name in figures(estimator.history_[-1])}


def test_a_run_notifies_its_callbacks(X, mlflow, tmp_path):
    given, own = MLflowCallback(), MLflowCallback(prefix="own/")
    estimator = MaskedDictionaryLearning(4, random_state=0, batch_size=10, callbacks=[own])
    train(estimator, X, tmp_path / "run", holdout=20, callbacks=[given])
    names = [next(iter(metrics)) for metrics, _ in mlflow.logged]
    assert names.count("n_samples") == names.count("own/n_samples") == len(estimator.history_)


def test_without_held_out_rows_evaluations_are_made_at_an_interval(X, mlflow):
    MaskedDictionaryLearning(4, batch_size=10, n_epochs=1, callbacks=[MLflowCallback(interval=0.0)]).fit(X)
    assert [step for _, step in mlflow.logged] == list(range(1, 10))
    assert "objective" not in mlflow.logged[0][0]
    assert np.isfinite(mlflow.logged[0][0]["surrogate"])


@pytest.mark.parametrize(
    ("package", "callback"), [("tensorboardX", TensorBoardCallback("logs")), ("mlflow", MLflowCallback())]
)
def test_missing_package_names_the_extra(X, monkeypatch, package, callback):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"{package}.*terafactor\[tracking\]"):
        fit(X, callback)


def test_files_of_the_real_tensorboard_writer(X, tmp_path):
    """The records of an event file: length, checksum, content, checksum."""
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    from tensorboardX.proto.event_pb2 import Event

    estimator = fit(X, TensorBoardCallback(tmp_path))
    (file,) = tmp_path.iterdir()
    content, objectives = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        objectives += [value.simple_value for value in event.summary.value if value.tag == "terafactor/objective"]
        content = content[16 + length :]
    np.testing.assert_allclose(objectives, [line.objective for line in estimator.history_], rtol=1e-6)
