"""Reports of matrix completion."""

import logging
import re

import pytest

from terafactor import CheckpointPolicy, MatrixCompletion, report_runs, train
from terafactor.cli.inspect import describe
from terafactor.runs import report_writer


def text(path):
    return path.read_text(encoding="utf-8")


def test_recommendations_for_unknown_users_are_noticed(X, caplog):
    estimator = MatrixCompletion(3, random_state=0, n_epochs=2).fit(X)
    known = estimator.users_[0]
    estimator.recommend([known, "stranger"])
    assert "no user is known" not in caplog.text
    estimator.recommend(["stranger"])
    assert "no user is known, so all get items for the average user: 'stranger' is none of" in caplog.text


def test_report_shows_items_and_the_error(X, tmp_path):
    estimator = MatrixCompletion(3, random_state=0, n_epochs=2).fit(X)
    page = text(estimator.report(tmp_path / "out.html", X))
    assert "How items differ" in page
    assert "MatrixCompletion" in page


@pytest.mark.parametrize("stream", ["users", "items"])
def test_the_report_is_written_during_and_after_a_run(X, tmp_path, monkeypatch, caplog, stream):
    monkeypatch.setattr(report_writer, "SHARE", 1e9)
    with caplog.at_level(logging.WARNING, "terafactor"):
        train(
            MatrixCompletion(3, random_state=0, n_epochs=2, stream=stream),
            X,
            tmp_path / "run",
            holdout=0.1,
            checkpoints=CheckpointPolicy(steps=1),
        )
    assert "report could not be written" not in caplog.text
    for page in (text(tmp_path / "run" / "report.html"), text(report_runs(tmp_path / "run"))):
        assert "RMSE on held-out ratings" in page
        assert f"<dt>{stream} seen</dt>" in page
        assert "<dt>factors</dt>" in page
        assert "<dt>atoms</dt>" not in page
        assert "<th>alpha</th>" not in page  # it has no value
        assert not re.search("<(dt|th)>(rows seen|features|rows)<", page)
        assert "l1 / l2" not in page
        assert "finished" in page
        assert "neither use nor reconstruction" not in page  # rows of ratings are not shown, so none is missing
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "RMSE on held-out ratings: " in log
    assert "held-out objective" not in log
    assert "rows per second" not in log
    assert "RMSE on held-out ratings" in describe(str(tmp_path / "run"))["run"]
