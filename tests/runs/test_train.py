"""Runs: the directory, resuming, holding out, signals."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tomllib

import numpy as np
import polars
import pytest
from scipy import sparse

from terafactor import ArraySource, CheckpointPolicy, MaskedDictionaryLearning, RandomMasks, load_model, pack, train
from terafactor._durable import try_lock
from terafactor.cli.inspect import describe
from terafactor.dictionary.task import DictionaryTask
from terafactor.errors import DataError, ParameterError, RunInterruptedError
from terafactor.runs import Artifact, RunDirectory
from terafactor.runs.checkpoint import Checkpointer, checkpoints, newest, step_of
from terafactor.runs.metrics import read_metrics
from terafactor.solver.state_dict import StateDict
from terafactor.testing import CountingSource
from terafactor.training import Start

STEPS = CheckpointPolicy(seconds=None, steps=3)


def estimator(**parameters):
    defaults = {"n_components": 3, "alpha": 0.1, "batch_size": 10, "reduction": 3, "n_epochs": 3, "random_state": 0}
    return MaskedDictionaryLearning(**(defaults | {"n_threads": 1} | parameters))


class KilledError(Exception):
    pass


def die_at(step):
    def callback(snapshot):
        if snapshot.step == step and snapshot.stopped_by is None:
            raise KilledError

    return callback


def interrupted_run(X, folder, step, **parameters):
    """Start a run that dies after ``step`` steps."""
    with pytest.raises(KilledError):
        train(estimator(callbacks=[die_at(step)], **parameters), X, folder, checkpoints=STEPS)


def files(folder):
    return [(folder / "model" / name).read_bytes() for name in ("manifest.json", "arrays.safetensors")]


VARIANTS = {
    "full": {},
    "unmasked": {"reduction": 1, "tol": 1e-12},
    "masked": {"reduction": RandomMasks(3, "masked"), "constraint": "l1", "penalty": "l2"},
    "exact l2": {"reduction": RandomMasks(3, "masked", "exact")},
    "exact l1": {"reduction": RandomMasks(4, "masked", "exact"), "constraint": "l1"},
    "missing": {"reduction": RandomMasks(3, "masked"), "missing": "nan"},
    "odd reduction": {"reduction": RandomMasks(2.5, "masked"), "forgetting": 0.75, "n_epochs": 2.4},
}


def assert_same_where_both_looked(one, other):
    """When to evaluate depends on the time that evaluations take, what is found does not."""
    found = {(line.step, line.objective is None): line for line in one}
    for line in other:
        twin = found.get((line.step, line.objective is None), line)
        assert (line.objective, line.surrogate, line.bytes_read) == (twin.objective, twin.surrogate, twin.bytes_read)


@pytest.mark.parametrize("step", [1, 7, 9, 20])
@pytest.mark.parametrize("parameters", VARIANTS.values(), ids=VARIANTS)
def test_a_resumed_run_ends_at_the_same_bits(X, tmp_path, parameters, step):
    if parameters.get("missing"):
        X = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    train(estimator(**parameters), X, tmp_path / "whole", checkpoints=STEPS)
    interrupted_run(X, tmp_path / "cut", step, **parameters)
    resumed = train(estimator(n_threads=2, **parameters), X, tmp_path / "cut", resume=True, checkpoints=STEPS)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    whole = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert_same_where_both_looked(whole, resumed.history_)
    assert resumed.history_[-1].objective == whole[-1].objective is not None
    assert resumed.history_ == read_metrics(tmp_path / "cut" / "metrics.jsonl")
    seconds = [line.seconds for line in resumed.history_]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("in_memory_first", [True, False])
def test_a_run_resumes_from_the_same_data_in_another_form(X, tmp_path, in_memory_first):
    np.save(tmp_path / "X.npy", X)
    forms = [X, tmp_path / "X.npy"] if in_memory_first else [tmp_path / "X.npy", X]
    train(estimator(reduction=3), forms[0], tmp_path / "whole", checkpoints=STEPS)
    interrupted_run(forms[0], tmp_path / "cut", 7, reduction=3)
    train(estimator(reduction=3), forms[1], tmp_path / "cut", resume=True, checkpoints=STEPS)
    whole, resumed = (load_model(tmp_path / name) for name in ("whole", "cut"))
    assert resumed.statistics_ == whole.statistics_ == ("full" if in_memory_first else "masked")
    np.testing.assert_array_equal(resumed.components_, whole.components_)


def test_a_run_killed_after_convergence_ends_there(X, tmp_path):
    parameters = {"n_epochs": 1000, "tol": 0.05}
    whole = train(estimator(**parameters), X, tmp_path / "whole", checkpoints=STEPS)
    assert whole.stopped_by_ == "tol"
    for step in (whole.n_steps_, whole.n_steps_ - 1):
        interrupted_run(X, tmp_path / f"{step}", step, **parameters)
        train(estimator(**parameters), X, tmp_path / f"{step}", resume=True, checkpoints=STEPS)
        assert files(tmp_path / f"{step}") == files(tmp_path / "whole")


def test_a_run_that_converged_continues_without_a_tolerance(X, tmp_path):
    converged = train(estimator(n_epochs=1000, tol=0.05), X, tmp_path, checkpoints=STEPS)
    n_epochs = converged.n_steps_ // 9 + 2  # nine steps a pass
    again = train(estimator(n_epochs=n_epochs, tol=0.05), X, tmp_path, resume=True, checkpoints=STEPS)
    assert (again.stopped_by_, again.n_steps_) == ("tol", converged.n_steps_)
    further = train(estimator(n_epochs=n_epochs, tol=0.0), X, tmp_path, resume=True, checkpoints=STEPS)
    assert further.stopped_by_ == "n_epochs"
    whole = train(estimator(n_epochs=n_epochs, tol=0.0), X, tmp_path / "whole", checkpoints=STEPS)
    np.testing.assert_array_equal(further.components_, whole.components_)


def test_a_run_on_sparse_rows_keeps_checkpoints_and_resumes_to_the_same_bits(tmp_path):
    rows = sparse.random_array((400, 3000), density=0.02, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    parameters = {"reduction": 1, "n_components": 9}
    whole = train(estimator(**parameters), rows, tmp_path / "whole", checkpoints=STEPS)
    interrupted_run(rows, tmp_path / "cut", 58, **parameters)
    # Several steps are done at once, 20 at the most: 58 is no multiple of three, but passed some.
    assert newest(tmp_path / "cut" / "checkpoints")[0].name == "step-000000058"
    assert whole.n_steps_ == 114
    train(estimator(**parameters), rows, tmp_path / "cut", resume=True, checkpoints=STEPS)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_run_from_a_packed_store_resumes_too(X, tmp_path):
    pack(ArraySource(X.astype(np.float32)), tmp_path / "store", block_rows=10)
    for folder in ("whole", "cut"):
        with contextlib.suppress(KilledError):
            callbacks = [die_at(11)] if folder == "cut" else []
            train(estimator(callbacks=callbacks), tmp_path / "store", tmp_path / folder, checkpoints=STEPS)
    train(estimator(), tmp_path / "store", tmp_path / "cut", resume=True)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_the_directory_has_what_it_promises(X, tmp_path):
    model = train(estimator(random_state=None), X, tmp_path / "run", checkpoints=STEPS)
    run = RunDirectory(tmp_path / "run")
    names = {path.name for path in run.path.iterdir() if not path.name.startswith(".")}
    assert names == {"config.toml", "metrics.jsonl", "log.txt", "report.html", "checkpoints", "model"}
    config = tomllib.loads(run.config_file.read_text())
    assert config["parameters"]["alpha"] == 0.1
    assert config["holdout"]["rows"] == 4
    assert config["data"]["shape"] == [90, 24]
    assert "run done" in run.log_file.read_text()
    assert all(json.loads(line)["step"] for line in run.metrics_file.read_text().splitlines())
    np.testing.assert_array_equal(load_model(run.path).components_, model.components_)
    again = train(estimator(random_state=config["seed"]), X, tmp_path / "again")
    np.testing.assert_array_equal(again.components_, model.components_)


def test_the_newest_two_checkpoints_are_kept_and_more_by_keep_every(X, tmp_path):
    train(estimator(), X, tmp_path / "two", checkpoints=STEPS)
    assert [path.name for path in checkpoints(tmp_path / "two" / "checkpoints")] == ["step-000000024", "step-000000027"]
    train(estimator(), X, tmp_path / "more", checkpoints=CheckpointPolicy(None, 3, keep=1, keep_every=4))
    kept = [int(path.name[5:]) for path in checkpoints(tmp_path / "more" / "checkpoints")]
    assert kept == [12, 24, 27]


@pytest.mark.parametrize(
    ("policy", "kept"), [((7, 2), [15, 30, 45, 60]), ((5, 3), [15, 30, 45, 60]), ((1, 28), [30, 60])]
)
def test_keep_every_keeps_the_first_checkpoint_past_each_multiple(tmp_path, policy, kept):
    nothing = Artifact("kind", {}, StateDict({}, {"values": np.zeros(1)}))
    for last in (30, 60):  # the second resumes the first
        checkpointer = Checkpointer(tmp_path, CheckpointPolicy(None, policy[0], 1, policy[1]), lambda _: nothing, print)
        for step in range(last - 25, last + 1, 5):
            checkpointer.write(step, nothing.state_dict)
    assert [step_of(path) for path in checkpoints(tmp_path)] == kept


def test_keep_every_without_steps_is_refused():
    with pytest.raises(ParameterError, match="got 4 without steps: pass steps"):
        CheckpointPolicy(keep_every=4)


def test_a_checkpoint_is_a_model(X, tmp_path):
    train(
        estimator(reduction=RandomMasks(3, "masked", "exact"), constraint="l1"), X, tmp_path / "run", checkpoints=STEPS
    )
    place = checkpoints(tmp_path / "run" / "checkpoints")[-1]
    np.testing.assert_array_equal(load_model(place).components_, load_model(tmp_path / "run").components_)


def test_a_run_that_fails_leaves_the_model_as_it_was(X, tmp_path):
    model = train(estimator(), X, tmp_path / "run")
    before = dict(vars(model))
    with pytest.raises(KilledError):
        train(model, X[:, :10], tmp_path / "narrow", callbacks=[die_at(5)])
    with pytest.raises(DataError, match="changed"):
        train(model, X[:, :10], tmp_path / "run", resume=True)
    assert vars(model) == before
    assert model.transform(X).shape == (90, 3)


def test_a_new_run_does_not_touch_an_old_one(X, tmp_path):
    train(estimator(), X, tmp_path / "run")
    before = files(tmp_path / "run")
    with pytest.raises(ParameterError, match="holds a run already: continue it with terafactor resume"):
        train(estimator(), X, tmp_path / "run")
    assert files(tmp_path / "run") == before


def test_more_epochs_continue_where_the_run_ended(X, tmp_path):
    train(estimator(n_epochs=1), X, tmp_path / "run")
    train(estimator(n_epochs=3), X, tmp_path / "run", resume=True)
    train(estimator(n_epochs=3), X, tmp_path / "whole")
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_a_run_interrupted_after_a_resume_is_unfinished(X, tmp_path, caplog):
    done = train(estimator(n_epochs=1), X, tmp_path / "run", checkpoints=STEPS)
    run = RunDirectory(tmp_path / "run")
    assert run.latest() == (run.model, True)
    load_model(run.path)
    assert "was resumed" not in caplog.text
    with pytest.raises(KilledError):
        train(estimator(callbacks=[die_at(20)]), X, run.path, resume=True, checkpoints=STEPS)
    assert run.latest() == (run.checkpoints / "step-000000018", False)
    np.testing.assert_array_equal(load_model(run.path).components_, done.components_)
    assert "was resumed after this model was written" in caplog.text
    assert "step-000000018" in caplog.text
    assert "unfinished" in describe(str(run.path))["run"]["state"]
    with run.locked():
        assert describe(str(run.path))["run"]["state"] == "running"


def test_a_run_killed_while_its_model_was_replaced_has_the_one_before(X, tmp_path):
    done = train(estimator(), X, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.model.rename(run.path / ".model.replaced")
    assert run.latest() == (run.path / ".model.replaced", True)
    np.testing.assert_array_equal(load_model(run.path).components_, done.components_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.2}, r"alpha was 0\.1, now 0\.2"),
        ({"reduction": 2}, "reduction was 3, now 2"),
        ({"random_state": 1}, "random_state of .* was 0, now 1"),
    ],
)
def test_a_changed_configuration_is_refused(X, tmp_path, change, message):
    interrupted_run(X, tmp_path / "run", 10)
    with pytest.raises(ParameterError, match=message):
        train(estimator(**change), X, tmp_path / "run", resume=True)
    train(estimator(), X, tmp_path / "run", resume=True)


def test_changed_data_is_refused(X, tmp_path):
    interrupted_run(X, tmp_path / "run", 10)
    other = X.copy()
    other[0, 0] += 1
    with pytest.raises(DataError, match=r"the data of .* changed: fingerprint"):
        train(estimator(), other, tmp_path / "run", resume=True)
    with pytest.raises(DataError, match=r"shape was \[90, 24\], now \[80, 24\]"):
        train(estimator(), X[:80], tmp_path / "run", resume=True)


def test_resuming_nothing_is_refused(X, tmp_path):
    with pytest.raises(DataError, match="is not a run directory"):
        train(estimator(), X, tmp_path / "run", resume=True)


def test_a_damaged_checkpoint_is_skipped(X, tmp_path, caplog):
    train(estimator(), X, tmp_path / "whole", checkpoints=STEPS)
    interrupted_run(X, tmp_path / "run", 20)
    newest_one = checkpoints(tmp_path / "run" / "checkpoints")[-1]
    (newest_one / "arrays.safetensors").write_bytes(b"junk")
    train(estimator(), X, tmp_path / "run", resume=True, checkpoints=STEPS)
    assert "skipping a damaged checkpoint" in caplog.text
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_all_checkpoints_damaged_is_an_error(X, tmp_path):
    interrupted_run(X, tmp_path / "run", 20)
    for place in checkpoints(tmp_path / "run" / "checkpoints"):
        (place / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match=r"all checkpoints in .* are damaged \(2\)"):
        train(estimator(), X, tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_stops_the_run_with_a_checkpoint(X, tmp_path, name):
    def send(snapshot):
        if snapshot.step == 13 and snapshot.stopped_by is None:
            os.kill(os.getpid(), getattr(signal, name))

    before = signal.getsignal(getattr(signal, name))
    end = "interrupted by Ctrl-C" if name == "SIGINT" else f"stopped by {name}"
    with pytest.raises(RunInterruptedError, match=rf"{end} after step 13: .*terafactor resume"):
        train(estimator(callbacks=[send]), X, tmp_path / "run")
    assert signal.getsignal(getattr(signal, name)) == before
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count(end) == 2
    assert "stopped by callback" not in log
    found = newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert found[1].state_dict.numbers["n_steps"] in (13, 14)
    train(estimator(), X, tmp_path / "run", resume=True)
    train(estimator(), X, tmp_path / "whole")
    assert files(tmp_path / "run") == files(tmp_path / "whole")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_while_data_is_prepared_stops_at_once(X, tmp_path, name):
    class Packing(DictionaryTask):
        def open_data(self, X):
            os.kill(os.getpid(), getattr(signal, name))
            raise AssertionError("the signal did not stop it")

    class PackingEstimator(MaskedDictionaryLearning):
        def _task(self):
            return Packing(self)

    before = signal.getsignal(getattr(signal, name))
    end = "interrupted by Ctrl-C" if name == "SIGINT" else f"stopped by {name}"
    with pytest.raises(RunInterruptedError, match=f"{end} before the first step"):
        train(PackingEstimator(3), X, tmp_path / "run")
    assert signal.getsignal(getattr(signal, name)) == before
    train(estimator(), X, tmp_path / "run")
    assert files(tmp_path / "run")


def test_two_processes_cannot_share_a_directory(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    data, folder = str(tmp_path / "X.npy"), str(tmp_path / "run")
    command = f"from terafactor import *; train(MaskedDictionaryLearning(2), {data!r}, {folder!r})"

    def try_another(snapshot):
        if snapshot.step == 1:
            other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
            assert "another process is working in" in other.stderr

    train(estimator(callbacks=[try_another]), X, tmp_path / "run")
    assert files(tmp_path / "run")


def test_looking_whether_a_run_is_in_use_writes_nothing(tmp_path, monkeypatch):
    assert not RunDirectory(tmp_path / "nothing").in_use
    assert not (tmp_path / "nothing").exists()
    run = RunDirectory(tmp_path)
    assert not run.in_use
    with run.locked():
        monkeypatch.setattr("builtins.open", functools.partial(open_unless_writing, open))
        assert run.in_use
    assert not run.in_use


def open_unless_writing(open_file, place, mode="r", **options):
    assert mode.startswith("r"), f"{place} was opened for writing"
    return open_file(place, mode, **options)


def test_looking_whether_a_run_is_in_use_does_not_keep_it_from_starting(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path)
    run.lock_file.touch()
    with open(run.lock_file, "rb") as looking:
        assert try_lock(looking.fileno(), shared=True)
        assert not run.in_use
        monkeypatch.setattr("terafactor.runs.directory.time.sleep", lambda seconds: looking.close())
        with run.locked():
            assert run.in_use


def test_held_out_rows_are_never_learned_from(X, tmp_path):
    source = CountingSource(ArraySource(X))
    seen = []
    read = source.read
    source.read = lambda rows, columns=None: seen.append(np.array(rows)) or read(rows, columns)
    task = estimator()._task()
    data, held_out, chosen = task.hold_out(source, 30, seed=5)
    assert (data.shape, held_out.shape, chosen["rows"]) == ((60, 24), (30, 24), 30)
    task.prepare(data, Start(seed=0))
    task.learn(data, [])
    assert set(np.concatenate(seen)) == set(range(90)) - set(held_out.rows)


def test_amounts_to_hold_out(X, tmp_path):
    source = ArraySource(X)
    sizes = [estimator()._task().hold_out(source, amount, 0)[2]["rows"] for amount in (None, 0, 7, 0.5)]
    assert sizes == [4, 0, 7, 45]
    for amount in (-1, 90, 1.5, "many", True, "1 records"):
        with pytest.raises(ParameterError, match="holdout must be"):
            estimator()._task().hold_out(source, amount, 0)
    chosen = estimator()._task().hold_out(source, 7, 0)[2]
    assert estimator()._task().hold_out(source, chosen, 0)[2] == chosen
    with pytest.raises(DataError, match="cannot reproduce the choice of held-out rows"):
        estimator()._task().hold_out(source, chosen, 1)


@pytest.mark.parametrize("amount", [np.int64(20), np.float32(0.29)])
def test_an_amount_to_hold_out_may_be_a_number_of_numpy(X, tmp_path, amount):
    train(estimator(), X, tmp_path / "run", holdout=amount)
    chosen = RunDirectory(tmp_path / "run").config()["holdout"]
    assert chosen["amount"] == amount
    assert estimator()._task().hold_out(ArraySource(X), chosen, 0)[2] == chosen


def test_whole_blocks_and_records_are_held_out(X, tmp_path):
    for part in range(3):
        np.save(tmp_path / f"part{part}.npy", X[part * 30 : part * 30 + 30])
    task = estimator()._task()
    source = task.open_data(str(tmp_path / "part*.npy"))
    data, held_out, _ = task.hold_out(source, "1 record", 0)
    assert [len(record) for record in data.records] == [30, 30]
    assert held_out.rows[0] % 30 == 0
    pack(source, tmp_path / "store", block_rows=10)
    store = task.open_data(tmp_path / "store")
    data, held_out, _ = task.hold_out(store, 20, 0)
    assert {row // 10 for row in held_out.rows} == set(held_out.rows[::10] // 10)
    assert held_out.shape[0] == 20
    np.testing.assert_array_equal(data.read(np.arange(70)), store.read(data.rows))


@pytest.mark.parametrize("name", ["X.npy", "X.parquet"])
def test_single_rows_of_a_small_block_are_held_out(X, tmp_path, name):
    if name == "X.npy":
        np.save(tmp_path / name, np.asfortranarray(X))
    else:
        polars.DataFrame(X).write_parquet(tmp_path / name)
    model = train(estimator(), tmp_path / name, tmp_path / "run")
    assert RunDirectory(tmp_path / "run").config()["holdout"]["rows"] == 4
    assert model.history_[-1].objective is not None


def test_a_run_without_held_out_rows_warns_with_the_reason(X, tmp_path, monkeypatch):
    monkeypatch.setattr("terafactor.training.holdout.SMALL_BLOCK", X.nbytes - 1)
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    train(estimator(), tmp_path / "X.npy", tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("no rows are held out: the 90 rows form one block") == 1
    assert "held-out objective" not in log
    assert "end: all passes over the data are done (n_epochs)" in log


def test_a_fit_inside_an_abandoned_directory_starts(X, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    train(estimator(), X, tmp_path / "run")
    assert files(tmp_path / "run")


@pytest.mark.parametrize(("own", "given"), [(print, ()), (None, ()), ((), print), ((), None)])
def test_callbacks_that_are_not_a_sequence_are_refused_before_the_run_starts(X, tmp_path, own, given):
    with pytest.raises(ParameterError, match="callbacks must be a sequence of callables, got"):
        train(estimator(callbacks=own), X, tmp_path / "run", callbacks=given)
    assert not (tmp_path / "run").exists()
