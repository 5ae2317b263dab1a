"""Run directories: what stays of a run that fails, and who may write to them."""

import logging
import os
import shutil

import numpy as np
import pytest

from terafactor import CheckpointPolicy, MaskedDictionaryLearning, load_model, train
from terafactor.errors import DataError, ParameterError, StorageError, TerafactorError
from terafactor.runs import Artifact, RunDirectory
from terafactor.runs.checkpoint import Checkpointer, checkpoints, newest, step_of
from terafactor.runs.report_writer import ReportWriter
from terafactor.solver.state_dict import StateDict

EVERY_STEP = CheckpointPolicy(seconds=None, steps=1)


def estimator(**parameters):
    defaults = {"n_components": 3, "alpha": 0.1, "batch_size": 10, "n_epochs": 1, "random_state": 0, "n_threads": 1}
    return MaskedDictionaryLearning(**(defaults | parameters))


class TestRefusedFit:
    """A fit that fails before its first step, or finds wrong data before its first checkpoint, leaves nothing."""

    @pytest.mark.parametrize(
        ("parameters", "holdout"), [({"alpha": -1.0}, None), ({"n_components": 0}, None), ({}, 1000), ({}, "many")]
    )
    def test_bad_parameters(self, X, tmp_path, parameters, holdout):
        with pytest.raises(ParameterError):
            train(estimator(**parameters), X, tmp_path / "a" / "b" / "run", holdout=holdout)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_bad_data(self, X, tmp_path, bad):
        X = X.copy()
        X[:, 3] = bad
        with pytest.raises(TerafactorError):
            train(estimator(), X, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []

    def test_bad_data_found_after_the_first_step(self, X, tmp_path):
        X = X.copy()
        X[-1, 3] = np.nan
        np.save(tmp_path / "X.npy", X)
        model = estimator(batch_size=5, n_epochs=3)
        with pytest.raises(DataError, match="NaN at row 89"):
            train(model, tmp_path / "X.npy", tmp_path / "run", holdout=0)
        assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]
        train(model.set_params(missing="nan"), tmp_path / "X.npy", tmp_path / "run", holdout=0)

    def test_nothing_to_resume(self, X, tmp_path):
        with pytest.raises(DataError, match="is not a run directory"):
            train(estimator(), X, tmp_path / "run", resume=True)
        assert list(tmp_path.iterdir()) == []

    def test_what_was_there_before_stays(self, X, tmp_path):
        (tmp_path / "run").mkdir()
        for name in ("config.toml", "log.txt", "notes.txt"):
            (tmp_path / "run" / name).write_text("mine\n")
        with pytest.raises(ParameterError):
            train(estimator(alpha=-1.0), X, tmp_path / "run")
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.toml", "log.txt", "notes.txt"]

    def test_a_run_that_failed_later_stays(self, X, tmp_path):
        def fail(snapshot):
            raise RuntimeError("at the first step")

        with pytest.raises(RuntimeError):
            train(estimator(callbacks=[fail]), X, tmp_path / "run", holdout=0)
        assert RunDirectory(tmp_path / "run").is_run
        train(estimator(), X, tmp_path / "run", resume=True)

    def test_a_run_that_cannot_be_resumed_stays(self, X, tmp_path):
        train(estimator(), X, tmp_path / "run")
        before = {path for path in tmp_path.rglob("*") if path.name != "log.txt"}
        with pytest.raises(DataError):
            train(estimator(), X[:50], tmp_path / "run", resume=True)
        assert {path for path in tmp_path.rglob("*") if path.name != "log.txt"} == before


class TestReplacedDirectory:
    """A directory that is deleted or moved during a run, and in which another run may be started."""

    @pytest.fixture(params=["deleted", "moved", "lock deleted"])
    def take_away(self, request, tmp_path):
        def act():
            if request.param == "deleted":
                shutil.rmtree(tmp_path / "run")
            elif request.param == "moved":
                os.rename(tmp_path / "run", tmp_path / "elsewhere")
            else:
                (tmp_path / "run" / ".lock").unlink()

        return act

    def once(self, step, act):
        def callback(snapshot):
            if snapshot.step == step and snapshot.stopped_by is None:
                act()

        return callback

    @pytest.mark.parametrize("step", [1, 5, 9])
    def test_stops_the_run(self, X, tmp_path, take_away, step):
        with pytest.raises(StorageError, match=r"run: it was deleted or moved while this run was working in it"):
            train(estimator(callbacks=[self.once(step, take_away)]), X, tmp_path / "run", checkpoints=EVERY_STEP)
        assert not (tmp_path / "run" / "model").exists()

    @pytest.mark.parametrize("policy", [EVERY_STEP, CheckpointPolicy()])
    def test_does_not_change_the_run_started_there(self, X, tmp_path, policy):
        def start_again():
            shutil.rmtree(tmp_path / "run")
            train(estimator(alpha=0.7), X, tmp_path / "run")
            files.update({path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()})

        files = {}
        first = estimator(n_epochs=5, callbacks=[self.once(5, start_again)])
        with pytest.raises(StorageError, match="another run may be there now"):
            train(first, X, tmp_path / "run", checkpoints=policy)
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == files
        assert load_model(tmp_path / "run").alpha == 0.7

    def test_during_the_last_report_keeps_its_model(self, X, tmp_path, monkeypatch):
        def replace(report_writer):
            monkeypatch.undo()
            shutil.rmtree(tmp_path / "run")
            train(estimator(alpha=0.7), X, tmp_path / "run")

        monkeypatch.setattr(ReportWriter, "finish", replace)
        with pytest.raises(StorageError, match="another run may be there now"):
            train(estimator(), X, tmp_path / "run")
        assert load_model(tmp_path / "run").alpha == 0.7

    def test_of_a_lock_that_was_removed_before_it_was_taken(self, tmp_path, monkeypatch):
        run = RunDirectory(tmp_path / "run")
        monkeypatch.setattr("terafactor.runs.directory.try_lock", lambda file: run.lock_file.unlink() or True)
        with pytest.raises(StorageError, match="deleted or moved"), run.locked():
            pass


class TestCheckpoints:
    NOTHING = Artifact("kind", {}, StateDict({}, {"values": np.zeros(1)}))

    def checkpointer(self, folder, **policy):
        return Checkpointer(folder, CheckpointPolicy(None, 1, **policy), lambda _: self.NOTHING, print)

    def test_beyond_nine_digits_are_in_the_order_of_steps(self, tmp_path):
        checkpointer = self.checkpointer(tmp_path)
        for step in (999_999_998, 999_999_999, 1_000_000_000, 1_000_000_001, 10_000_000_000):
            checkpointer.write(step, self.NOTHING.state_dict)
            assert step_of(newest(tmp_path)[0]) == step
        assert [step_of(path) for path in checkpoints(tmp_path)] == [1_000_000_001, 10_000_000_000]

    def test_names_of_other_files_are_ignored(self, tmp_path):
        for name in ("step-1", f"step-{'9' * 5000}"[:200], "step-00000000x", "step-٠٠٠٠٠٠٠٠٩", "other"):
            (tmp_path / name).mkdir()
        assert checkpoints(tmp_path) == []

    def test_the_newest_is_kept_next_to_a_later_damaged_one(self, tmp_path):
        (tmp_path / "step-000000020").mkdir()
        checkpointer = self.checkpointer(tmp_path, keep=1)
        for step in (5, 6):
            checkpointer.write(step, self.NOTHING.state_dict)
        assert step_of(newest(tmp_path)[0]) == 6

    def test_an_old_one_that_cannot_be_removed_does_not_end_the_run(self, X, tmp_path, monkeypatch, caplog):
        rename = os.rename

        def refuse(old, new):
            if str(new).endswith(".removed"):
                raise PermissionError(13, "Permission denied")
            rename(old, new)

        monkeypatch.setattr(os, "rename", refuse)
        with caplog.at_level(logging.WARNING, "terafactor"):
            train(estimator(), X, tmp_path / "run", checkpoints=EVERY_STEP)
        assert len(checkpoints(tmp_path / "run" / "checkpoints")) == 9
        assert "an old checkpoint was not removed: cannot remove" in caplog.text
        assert "step-000000001: Permission denied" in caplog.text
