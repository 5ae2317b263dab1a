"""The report of a run directory: during the run, at its end, and written again."""

import json
import logging
import re
import sys
import types

import numpy as np
import pytest
from typer.testing import CliRunner

from terafactor import (
    CheckpointPolicy,
    ElasticNet,
    MaskedDictionaryLearning,
    PatchSource,
    load_model,
    report_runs,
    train,
)
from terafactor.cli.app import app
from terafactor.errors import DataError
from terafactor.report.comparison import differences
from terafactor.report.markup import _environment, _template
from terafactor.runs import RunDirectory
from terafactor.runs import report_writer as report_writer_module
from terafactor.runs.report_writer import ReportWriter
from terafactor.training.run_report import read_context

STEPS = CheckpointPolicy(seconds=None, steps=3)
EVERY_STEP = CheckpointPolicy(seconds=None, steps=1)


def estimator(**parameters):
    return MaskedDictionaryLearning(4, random_state=0, batch_size=10, alpha=0.5, **parameters)


@pytest.fixture(name="matrix")
def file_of_rows(X, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    return tmp_path / "rows.npy"


@pytest.fixture(name="run")
def finished_run(matrix, tmp_path):
    train(estimator(n_epochs=2), matrix, tmp_path / "run", holdout=20, checkpoints=STEPS)
    return tmp_path / "run"


def state_of(page):
    return re.search(r'<span class="badge \w+">([^<]*)', page)[1]


def text(path):
    return path.read_text(encoding="utf-8")


def without_time(page):
    return re.sub(r'data-written="\d+"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC', "", page)


def test_a_finished_run_has_its_report(run):
    page = text(run / "report.html")
    assert state_of(page) == "finished"
    assert "data-refresh" not in page
    assert "<h1>run</h1>" in page
    assert "On 20 rows" in page  # those held out
    assert "rows.npy" in page


def test_the_report_written_again_is_the_same(run):
    live = text(run / "report.html")
    (run / "report.html").unlink()
    assert report_runs(run) == run / "report.html"
    assert without_time(text(run / "report.html")) == without_time(live)


def test_the_report_is_written_during_the_run(matrix, tmp_path, monkeypatch):
    monkeypatch.setattr(report_writer_module, "SHARE", 1e9)
    seen = []

    def look(snapshot):
        if snapshot.stopped_by is None:
            seen.append(text(tmp_path / "run" / "report.html"))

    model = estimator(n_epochs=1)
    train(model, matrix, tmp_path / "run", holdout=20, callbacks=[look], checkpoints=EVERY_STEP)
    assert len(seen) == 7
    assert {state_of(page) for page in seen} == {"running"}
    assert all("data-refresh" in page for page in seen)
    assert state_of(text(tmp_path / "run" / "report.html")) == "finished"


def test_looking_at_a_run_does_not_change_it(matrix, tmp_path, monkeypatch):
    train(estimator(n_epochs=2, reduction=3), matrix, tmp_path / "a", holdout=20)
    monkeypatch.setattr(report_writer_module, "SHARE", 1e9)
    train(estimator(n_epochs=2, reduction=3), matrix, tmp_path / "b", holdout=20, checkpoints=EVERY_STEP)
    np.testing.assert_array_equal(load_model(tmp_path / "a").components_, load_model(tmp_path / "b").components_)


def test_the_page_of_an_interrupted_run_states_it(run):
    for file in (run / "model").iterdir():
        file.unlink()
    (run / "model").rmdir()
    page = text(report_runs(run))
    assert state_of(page) == "interrupted"
    assert "resume" in page


def test_a_run_in_use_is_running(run):
    with RunDirectory(run).locked():
        assert state_of(text(report_runs(run))) == "running"
    assert state_of(text(report_runs(run))) == "finished"


def test_a_run_before_its_first_checkpoint(run):
    for name in ("checkpoints", "model"):
        (run / name).rename(run / f"{name}.gone")
    with RunDirectory(run).locked():
        context = read_context(run)
    assert context.components is None
    assert context.running
    assert len(context.history) > 3


def test_the_page_warns_that_data_is_missing_or_changed(run, matrix):
    np.save(matrix, np.load(matrix) + 1)
    page = text(report_runs(run))
    assert "could not be read again" in page
    assert "it is not the data that the run learned from" in page
    matrix.unlink()
    assert "does not exist" in text(report_runs(run))
    assert "<h2>Atoms</h2>" in text(report_runs(run))


def test_the_log_names_what_a_report_lacks(run, matrix, caplog):
    with caplog.at_level(logging.WARNING, "terafactor"):
        report_runs(run)
        assert caplog.text == ""
        matrix.unlink()
        report_runs(run)
    (record,) = caplog.records
    assert re.search(r"neither use nor reconstruction of rows: .*rows\.npy does not exist", record.getMessage())


def test_the_page_notes_that_data_was_in_memory(X, tmp_path):
    train(estimator(), X, tmp_path / "run", holdout=20)
    assert "<h2>Reconstruction of rows</h2>" in text(tmp_path / "run" / "report.html")
    assert "was an array in memory" in text(report_runs(tmp_path / "run"))


def test_geometry_and_end_survive_in_the_model(tmp_path):
    patches = PatchSource([np.random.default_rng(0).random((20, 24))], (4, 4))
    train(estimator(tol=10.0, n_epochs=20), patches, tmp_path / "run", holdout=20)
    model = load_model(tmp_path / "run")
    assert model.geometry_ == (4, 4)
    assert model.stopped_by_ == "tol"
    page = text(report_runs(tmp_path / "run"))
    assert 'class="sprites"' in page
    assert state_of(page) == "finished: converged"


def test_several_runs_on_the_same_axes(matrix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for reduction in (1, 4):
        train(estimator(reduction=reduction), matrix, tmp_path / f"r{reduction}", holdout=20)
    assert report_runs("r1", "r4").name == "report.html"
    page = text(tmp_path / "report.html")
    assert state_of(page) == "2 runs"
    chart = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    assert [series["label"] for series in chart["series"]] == ["r1", "r4"]
    assert len(chart["x"]) == 3


def test_runs_on_other_data_or_with_another_alpha_are_not_comparable(matrix, X, tmp_path):
    train(estimator(), matrix, tmp_path / "a", holdout=20)
    train(estimator().set_params(alpha=2.0), X[:80], tmp_path / "b", holdout=20)
    page = text(report_runs(tmp_path / "a", tmp_path / "b", path=tmp_path / "both.html"))
    assert "These runs are not comparable: they differ in alpha (0.5, 2) and data" in page


def test_a_run_without_a_checkpoint_has_the_parameters_of_one_with_it(matrix, tmp_path):
    for name in "ab":
        train(estimator(penalty=ElasticNet(0.5)), matrix, tmp_path / name, holdout=20)
    for name in ("checkpoints", "model"):
        (tmp_path / "b" / name).rename(tmp_path / "b" / f"{name}.gone")
    assert differences([read_context(tmp_path / name) for name in "ab"]) == ""


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a run directory"):
        report_runs(tmp_path)


def test_a_run_does_not_fail_because_of_its_report(matrix, tmp_path, monkeypatch, caplog):
    class Broken(MaskedDictionaryLearning):
        def panels(self):
            raise RuntimeError("no panel today")

    with caplog.at_level(logging.WARNING, "terafactor"):
        model = Broken(4, random_state=0)
        train(model, matrix, tmp_path / "run", holdout=20)
    assert "report could not be written" in caplog.text
    assert (tmp_path / "run" / "model").is_dir()


def test_a_run_without_the_extra_names_it(matrix, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    _environment.cache_clear()
    _template.cache_clear()
    train(estimator(), matrix, tmp_path / "run", holdout=20)
    assert not (tmp_path / "run" / "report.html").exists()
    assert "terafactor[report]" in text(tmp_path / "run" / "log.txt")


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Moment:
    stopped_by = None
    _fit = types.SimpleNamespace(atoms=lambda: np.zeros((1, 1)))


@pytest.fixture(name="showing")
def writer_of_given_cost(monkeypatch):
    """Return what makes a writer that takes some seconds each time, with its clock and the times of showing."""

    def make(seconds, is_due):
        clock, times = Clock(), []
        monkeypatch.setattr(report_writer_module, "time", clock)

        def show(atoms):
            times.append(clock.now)
            clock.now += seconds

        return ReportWriter(show, lambda snapshot: is_due(clock.now)), clock, times

    return make


def test_showing_a_run_keeps_within_its_share(showing):
    writer, clock, times = showing(2.0, lambda now: True)
    while clock.now < 4000:
        clock.now += 0.5
        writer(Moment())
    assert writer.seconds_spent <= 0.01 * clock.now
    assert len(times) >= 15


def test_a_run_with_a_checkpoint_a_minute_is_shown_at_each(showing):
    writer, clock, times = showing(0.3, lambda now: now % 60 == 0)
    for minute in range(20):
        clock.now = 60.0 * minute + 30
        writer(Moment())
        clock.now = 60.0 * (minute + 1)
        writer(Moment())
    assert times == [60.0 * minute for minute in range(1, 21)]


class TestCommand:
    def invoke(self, *arguments):
        return CliRunner().invoke(app, ["report", *map(str, arguments)])

    def test_writes_the_page_and_returns_its_path(self, run):
        (run / "report.html").unlink()
        result = self.invoke(run)
        assert result.exit_code == 0
        assert "report.html" in result.output
        assert (run / "report.html").is_file()

    def test_takes_several_runs_a_title_and_a_place(self, run, tmp_path):
        out = tmp_path / "both.html"
        assert self.invoke(run, run, "--out", out, "--title", "<Both>").exit_code == 0
        assert "<h1>&lt;Both&gt;</h1>" in text(out)

    def test_takes_the_shape_of_a_row(self, run, tmp_path):
        assert self.invoke(run, "--geometry", "4x6").exit_code == 0
        assert 'class="sprites"' in text(run / "report.html")

    @pytest.mark.parametrize("wrong", ["4", "4x", "axb", "0x24", "1x2x3x4"])
    def test_refuses_invalid_shapes(self, run, wrong):
        result = self.invoke(run, "--geometry", wrong)
        assert result.exit_code == 2
        assert "HEIGHTxWIDTH" in result.output

    def test_refuses_a_folder_that_is_not_there(self, tmp_path):
        assert self.invoke(tmp_path / "nowhere").exit_code == 2


def test_the_page_repeats_the_warnings_of_the_fit_without_contradicting_them(tmp_path):
    X = np.random.default_rng(0).standard_normal((400, 12))
    X[:, 3] = 1000
    np.save(tmp_path / "X.npy", X)
    model = train(MaskedDictionaryLearning(10, random_state=0), tmp_path / "X.npy", tmp_path / "run")
    pages = [tmp_path / "run" / "report.html", model.report(tmp_path / "fit.html", X)]
    pages += [report_runs(tmp_path / "run", path=tmp_path / "again.html")]
    for page in pages:
        text = page.read_text()
        assert "Column 3 holds 100.0 % of the squared values" in text
        assert "Lower alpha" not in text
        assert "Lower n_components" not in text
