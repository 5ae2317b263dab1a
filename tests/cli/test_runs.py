"""The commands that create, resume and use runs."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest
import zarr
from rich.console import Console
from typer.testing import CliRunner

from terafactor import KINDS, MaskedDictionaryLearning, NormBall, RandomMasks, load_model, train
from terafactor.cli.app import app, main
from terafactor.cli.transform import COMMANDS as MODEL_COMMANDS
from terafactor.errors import DataError
from terafactor.problem import GroupLasso, SmoothBall

COMMANDS = [command.callback.__name__ for command in app.registered_commands]


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch, X):
    np.save(tmp_path / "X.npy", X)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def invoke(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_main(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["terafactor", *map(str, words)])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code


def test_reduction_is_a_number_or_auto(scratch):
    line = ["fit", "X.npy", "-k", 3, "--epochs", 30, "--batch-size", 10, "--seed", 0, "--out", "run"]
    assert invoke(*line, "--reduction", "auto").exit_code == 0
    assert load_model("run").reduction_ == 1
    assert invoke(*line[:-1], "masked", "--reduction", "4:full:exact").exit_code == 0
    assert load_model("masked").reduction == RandomMasks(4.0, "full", "exact")
    for unknown in ("4:half", "auto:full", "4:full:masked"):
        refused = invoke(*line[:-1], "refused", "--reduction", unknown)
        assert refused.exit_code == 2
        assert "8:full:exact" in refused.output
    refused = invoke(*line, "--reduction", "most")
    assert refused.exit_code == 2
    assert "auto" in refused.output


def test_from_fit_to_codes(scratch, X):
    line = ["fit", "X.npy", "-k", 3, "--penalty", "l2", "--constraint", "l1", "--alpha", 1e-3, "--reduction", 3]
    line += ["--epochs", 2, "--seed", 0, "--out", "run"]
    result = invoke(*line, "--batch-size", 10)
    assert result.exit_code == 0
    assert "held out 4 of 90 rows for evaluation: --holdout 0 learns from all" in result.output
    assert tomllib.loads((scratch / "run" / "config.toml").read_text())["parameters"]["alpha"] == 1e-3
    assert invoke("transform", "run", "X.npy", "--out", "codes.npy").exit_code == 0
    np.testing.assert_array_equal(np.load("codes.npy"), load_model("run").transform(X))
    assert invoke("export", "run", "--out", "model.npz").exit_code == 0
    with np.load("model.npz") as arrays:
        np.testing.assert_array_equal(arrays["components_"], load_model("run").components_)
    again = CliRunner().invoke(app, ["export", "run", "--out", "model.npz"])
    assert "model.npz exists: choose another name, or remove it" in str(again.exception)


def test_json_output_contains_the_result():
    result = json.loads(invoke("fit", "X.npy", "--out", "run", "--json", "-k", 2, "--epochs", 1).stdout)
    assert result["stopped_by"] == "n_epochs"
    assert np.isfinite(result["objective"])
    assert result["steps"] == 3


def test_a_configuration_equals_the_flags(scratch):
    (scratch / "c.toml").write_text(
        'source = "X.npy"\ncomponents = 3\nbatch-size = 10\npenalty = "elastic-net:0.3"\nseed = 4\n'
    )
    invoke("fit", "--config", "c.toml", "--out", "by-file")
    invoke(
        "fit", "X.npy", "-k", 3, "--batch-size", 10, "--penalty", "elastic-net:0.3", "--seed", 4, "--out", "by-flags"
    )
    invoke("fit", "--config", "by-flags/config.toml", "--out", "by-run")
    invoke("fit", "--config", "c.toml", "--seed", 5, "--out", "other")
    manifests = [
        (scratch / name / "model" / "manifest.json").read_bytes() for name in ("by-file", "by-flags", "by-run")
    ]
    assert len(set(manifests)) == 1
    assert (scratch / "other" / "model" / "manifest.json").read_bytes() != manifests[0]


def test_the_configuration_of_a_run_may_lack_a_seed(scratch):
    (scratch / "c.toml").write_text("[parameters]\nn_components = 3\n")
    assert invoke("fit", "X.npy", "--config", "c.toml", "--out", "run").exit_code == 0
    assert load_model("run").n_components == 3
    (scratch / "c.toml").write_text("[parameters]\nrandom_state = 7\n")
    assert invoke("fit", "X.npy", "--config", "c.toml", "--out", "seeded").exit_code == 0
    assert tomllib.loads((scratch / "seeded" / "config.toml").read_text())["seed"] == 7


def test_the_constraint_of_a_run_is_restored_from_its_configuration(scratch):
    balls = [NormBall("l1"), NormBall("elastic-net", l1_ratio=0.3), NormBall("l2", radius=3), SmoothBall(shape=(4, 6))]
    for number, ball in enumerate(balls):
        train(MaskedDictionaryLearning(3, constraint=ball, random_state=0), "X.npy", f"first{number}")
        assert invoke("fit", "--config", f"first{number}/config.toml", "--out", f"again{number}").exit_code == 0
        first, again = load_model(f"first{number}"), load_model(f"again{number}")
        np.testing.assert_array_equal(again.components_, first.components_)
    penalty = GroupLasso((0, 0, 1), l1_ratio=0.5)
    train(MaskedDictionaryLearning(3, penalty=penalty, random_state=0), "X.npy", "groups")
    assert invoke("fit", "--config", "groups/config.toml", "--out", "groups-again").exit_code == 0
    np.testing.assert_array_equal(load_model("groups-again").components_, load_model("groups").components_)


def test_an_unknown_setting_in_a_configuration_is_rejected(scratch):
    (scratch / "c.toml").write_text("atoms = 3\n")
    result = invoke("fit", "X.npy", "--config", "c.toml", "--out", "run")
    assert result.exit_code == 2
    assert "not options: atoms" in re.sub(r"[\s│]+", " ", result.output)


def test_a_configuration_may_name_parameters(scratch):
    (scratch / "c.toml").write_text("n_components = 3\nn_epochs = 1\nrandom_state = 4\n")
    assert invoke("fit", "X.npy", "--config", "c.toml", "--out", "run").exit_code == 0
    model = load_model("run")
    assert (model.n_components, model.n_epochs, model._seed) == (3, 1, 4)


def test_resume_accepts_more_epochs():
    invoke("fit", "X.npy", "-k", 3, "--seed", 0, "--epochs", 1, "--out", "run")
    assert invoke("resume", "run", "--epochs", 3).exit_code == 0
    invoke("fit", "X.npy", "-k", 3, "--seed", 0, "--epochs", 3, "--out", "whole")
    np.testing.assert_array_equal(load_model("run").components_, load_model("whole").components_)


@pytest.mark.parametrize("address", ["X.npy", "*.npy", "npy://X.npy", "zarr://Z.zarr::inner/X"])
def test_resume_finds_the_data_from_any_folder(scratch, X, monkeypatch, address):
    (scratch / "[1]").mkdir()  # brackets have a meaning in globs
    monkeypatch.chdir(scratch / "[1]")
    np.save("X.npy", X)
    zarr.create_array("Z.zarr", name="inner/X", data=X)
    invoke("fit", address, "-k", 3, "--epochs", 1, "--seed", 0, "--out", "run")
    monkeypatch.chdir("run")
    result = invoke("resume", ".", "--epochs", 2)
    assert result.exit_code == 0, (result.output, result.exception)
    assert load_model(".").n_steps_ == 6


@pytest.mark.parametrize("wrong", [("--penalty", "l3"), ("--missing", "zero"), ("--reduction", 1000), ("--alpha", -1)])
def test_an_invalid_parameter_starts_no_run(monkeypatch, wrong):
    assert run_main(monkeypatch, "fit", "X.npy", "-k", 3, *wrong, "--out", "run") == 2
    result = invoke("fit", "X.npy", "-k", 3, "--out", "run")
    assert result.exit_code == 0, (result.output, result.exception)


def test_data_that_fails_at_the_first_step_does_not_block_the_directory(scratch, X, monkeypatch, capsys):
    X[:, 3] = np.nan
    np.save("gaps.npy", X)
    line = ["fit", "gaps.npy", "-k", 3, "--seed", 0, "--out", "run"]
    assert run_main(monkeypatch, *line) == 3
    assert invoke(*line, "--missing", "nan").exit_code == 0
    assert tomllib.loads((scratch / "run" / "config.toml").read_text())["parameters"]["missing"] == "nan"
    assert run_main(monkeypatch, *line) == 2
    assert "holds a run already: continue it with terafactor resume run" in capsys.readouterr().err


def test_resume_finds_the_data_under_another_name(scratch, X):
    line = ["fit", "X.npy", "-k", 3, "--batch-size", 10, "--epochs", 1, "--seed", 0, "--out", "run"]
    assert invoke(*line).exit_code == 0
    (scratch / "X.npy").rename(scratch / "other.npy")
    assert invoke("resume", "run", "--epochs", 2, "--source", "other.npy").exit_code == 0
    assert invoke("resume", "run", "--epochs", 3).exit_code == 0  # the run remembers
    np.save(scratch / "other.npy", X + 1)
    with pytest.raises(
        DataError, match=r"the data of run changed: fingerprint .*under their old names.*start a new run"
    ):
        invoke("resume", "run", "--epochs", 4)


def test_resume_to_fewer_epochs_than_done_is_rejected_and_changes_nothing(scratch, monkeypatch, capsys):
    invoke("fit", "X.npy", "-k", 3, "--seed", 0, "--epochs", 3, "--out", "run")
    kept = {path: path.read_bytes() for path in scratch.glob("run/**/*") if path.is_file() and path.name != "log.txt"}
    capsys.readouterr()
    assert run_main(monkeypatch, "resume", "run", "--epochs", 1) == 2
    errors = capsys.readouterr().err
    assert "n_epochs must be at least 3, the passes done in run, got 1" in errors
    assert "done:" not in errors
    assert [path.name for path, content in kept.items() if path.read_bytes() != content] == []
    result = invoke("resume", "run")
    assert result.exit_code == 0
    assert "the run is complete: nothing to do (--epochs or --tol continue it)" in " ".join(result.output.split())
    assert "done: " in invoke("resume", "run", "--epochs", 4).output


def test_a_signal_exits_with_4_and_resume_finishes(scratch):
    X = np.random.default_rng(0).standard_normal((4000, 400))
    np.save("large.npy", X)
    line = [sys.executable, "-m", "terafactor", "fit", "large.npy", "-k", "8", "--epochs", "100000", "--seed", "0"]
    process = subprocess.Popen([*line, "--out", "run", "--checkpoint-steps", "20"], stderr=subprocess.PIPE, text=True)
    while not list(scratch.glob("run/checkpoints/step-*")) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate()
    assert process.returncode == 4, errors
    assert len(re.findall("stopped by SIGUSR1 after step [0-9,]+: continue with terafactor resume run", errors)) == 1
    assert "warning" not in errors
    assert "Traceback" not in errors
    facts = json.loads(invoke("inspect", "run", "--json").stdout)
    assert "unfinished" in facts["run"]["state"]
    enough = facts["run"]["steps"] / 95 + 1  # rows held out leave 95 batches per epoch
    assert invoke("resume", "run", "--epochs", enough).exit_code == 0
    assert load_model("run").n_steps_ > facts["run"]["steps"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fit", "nothing.npy", "--out", "run"], 3, "nothing.npy does not exist"),
        (["fit", "X.npy", "--out", "run", "--alpha", "-1"], 2, "alpha must be"),
        (["fit", "X.npy", "--out", "run", "--penalty", "l3"], 2, "penalty must be"),
        (["fit", "X.npy", "--out", "X.npy"], 2, "X.npy is a file, not a run directory"),
        (["fit", "https://x.org/X.npy", "--out", "run"], 3, "https:// is a URL, and these are not supported: download"),
        (["fit", "raw://X.npy", "--out", "run"], 2, "or convert it to .npy"),
        (["fit", "line.npy", "--out", "run"], 3, "must be (rows, features), at least one of each: reshape it"),
        (["resume", "."], 3, "is not a run directory"),
        (["transform", ".", "X.npy", "--out", "codes.npy"], 3, "is not a model"),
        (["transform", ".", "X.npy", "--out", "X.npy"], 2, "X.npy exists"),
    ],
)
def test_errors_are_one_message(monkeypatch, capsys, words, code, message):
    np.save("line.npy", np.ones(5))
    assert run_main(monkeypatch, *words) == code
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors
    assert errors.strip().count("\n") == 0


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("-k", "0", "greater than or equal to 1"),
        ("-k", "ten", "a valid integer"),
        ("--threads", "0", "greater than or equal to 1"),
        ("--seed", "-1", "greater than or equal to 0"),
        ("--checkpoint-seconds", "x", "a valid number"),
        ("--missing", "foo", "one of"),
        ("--holdout", "200%", "a share below 100%"),
    ],
)
def test_an_invalid_value_is_named_with_what_is_needed(option, value, needed):
    output = " ".join(re.sub("[│╭╮╰╯─]", " ", invoke("fit", "X.npy", "--out", "run", option, value).output).split())
    assert option in output
    assert f"'{value}'" in output
    assert needed in output


def test_several_files_need_a_quoted_glob():
    output = invoke("fit", "X.npy", "X.npy", "X.npy", "--out", "run").output
    assert "quoted glob" in " ".join(output.split())
    assert "quoted glob" not in invoke("doctor", "X.npy").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pack", "X.npy", "--out", "store"], "interrupted: the same command continues"),
        (["plan", "X.npy"], "interrupted"),
        (["ratings", "fit", "X.npy", "--out", "run"], "interrupted"),
    ],
)
def test_ctrl_c_is_one_line(monkeypatch, capsys, words, message):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for name in ("open_source", "MatrixCompletion"):
        monkeypatch.setattr(f"terafactor.{name}", interrupt)
    assert run_main(monkeypatch, *words) == 130
    assert capsys.readouterr().err.strip() == message


def test_the_bar_of_a_converged_fit_is_full_and_leaves_room_for_ctrl_c(X):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    train(MaskedDictionaryLearning(2, random_state=0, tol=0.9), X, "run", console=console)
    *_, last = console.file.getvalue().rpartition("learning until converged")
    assert "converged (tol)" in last
    assert "100%" in last
    assert all(len(line) < 100 for line in last.splitlines()[1:])


def test_debug_shows_the_traceback(monkeypatch, capsys):
    assert run_main(monkeypatch, "fit", "nothing.npy", "--out", "run", "--debug") == 3
    errors = capsys.readouterr().err
    assert "Traceback" in errors
    assert "nothing.npy does not exist" in errors


def test_an_internal_error_is_reported_as_such(monkeypatch, capsys):
    monkeypatch.setattr("terafactor.cli.doctor.examine", lambda: 1 / 0)
    assert run_main(monkeypatch, "doctor") == 1
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err


def test_a_fit_too_large_for_memory_is_not_an_internal_error(scratch, monkeypatch, capsys):
    assert run_main(monkeypatch, "fit", "X.npy", "-k", 10**12, "--out", "run") == 2
    assert "error: not enough memory" in (shown := capsys.readouterr().err)
    assert "terafactor plan" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen(command):
    result = invoke(command, "--help")
    assert result.output.count("\n") <= 53
    if command not in ("demo", "pack"):
        assert f"Example: terafactor {command}" in result.output


def test_doctor_shows_versions_and_machine():
    facts = json.loads(invoke("doctor", "--json").stdout)
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["machine"]["cores"] == os.cpu_count()
    assert set(facts) == {"machine", "packages", "linear algebra", "compiled kernels", "free disk"}
    assert "numpy" in invoke("doctor").output


def test_doctor_shows_the_cache_of_kernels_before_any_was_used(scratch):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(scratch / "cache")}
    words = [sys.executable, "-m", "terafactor", "doctor", "--json"]
    facts = json.loads(subprocess.run(words, env=environment, check=True, capture_output=True).stdout)
    assert facts["compiled kernels"]["cache"].startswith(str(scratch / "cache"))


def test_inspect_summarizes_every_kind_of_path(scratch):
    invoke("fit", "X.npy", "-k", 3, "--out", "run")
    invoke("pack", "X.npy", "--out", "store")
    assert json.loads(invoke("inspect", "run", "--json").stdout)["run"]["state"] == "done"
    assert json.loads(invoke("inspect", "run/model", "--json").stdout)["parameters"]["n_components"] == 3
    checkpoint = next((scratch / "run" / "checkpoints").glob("step-*"))
    assert "arrays" in json.loads(invoke("inspect", checkpoint, "--json").stdout)
    assert json.loads(invoke("inspect", "X.npy", "--json").stdout)["source"]["rows"] == 90
    assert json.loads(invoke("inspect", "store", "--json").stdout)["source"]["rows read together"] == 40
    assert "90" in invoke("inspect", "store").output


def test_inspect_shows_settings_as_text(scratch):
    invoke("fit", "X.npy", "-k", 3, "--epochs", 1, "--out", "run")
    shown = invoke("inspect", "run/model").output
    assert "norm l2" in shown
    assert not re.search("l1_ratio|multipliers|idle_rows", shown)
    assert "{" not in shown


def test_inspect_shows_what_matters_to_a_newcomer():
    shown = " ".join(invoke("inspect", "X.npy").output.split())
    assert "format npy" in shown
    assert "read together" not in shown
    invoke("fit", "X.npy", "-k", 3, "--epochs", 1, "--out", "run")
    facts = json.loads(invoke("inspect", "run", "--json").stdout)["run"]
    assert facts["alpha"] == load_model("run").alpha_
    assert facts["seconds"] > 0
    assert "training time 0 s" not in " ".join(invoke("inspect", "run").output.split())


def test_inspect_shows_the_format_of_a_store(scratch):
    invoke("pack", "X.npy", "--out", "store", "--dtype", "int16", "--standardize")
    facts = json.loads(invoke("inspect", "store", "--json").stdout)["source"]
    assert (facts["dtype"], facts["stored as"], facts["standardized"]) == ("float32", "int16", True)
    assert facts["bytes on disk"] == sum(path.stat().st_size for path in scratch.glob("store/**/*") if path.is_file())


def test_inspect_names_the_arrays_of_an_archive(monkeypatch, capsys):
    np.savez("model.npz", components_=np.ones((2, 3)), feature_counts_=np.ones(3))
    assert run_main(monkeypatch, "inspect", "model.npz") == 3
    assert "archive of arrays (components_, feature_counts_)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["brain", "report", "run"],
        ["brain", "transform", "run", "X.npy", "--out", "series.tsv"],
        ["ratings", "recommend", "run", "--user", "3"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_model_of_another_kind_is_rejected(monkeypatch, capsys, words):
    invoke("fit", "X.npy", "-k", 2, "--out", "run")
    assert run_main(monkeypatch, *words) == 3
    assert "run holds a MaskedDictionaryLearning, but this command needs a " in capsys.readouterr().err


def test_transform_names_the_right_command_for_a_run_of_ratings(scratch, monkeypatch, capsys):
    lines = [f"{user},{item},{(user * item) % 5 + 1}" for user in range(12) for item in range(9)]
    (scratch / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    invoke("ratings", "fit", "ratings.csv", "-k", 2, "--epochs", 1, "--out", "rated")
    assert run_main(monkeypatch, "transform", "rated", "X.npy", "--out", "codes.npy") == 3
    errors = capsys.readouterr().err
    assert "rated holds a MatrixCompletion, but this command needs a MaskedDictionaryLearning" in errors
    assert "use terafactor ratings predict, recommend or evaluate" in errors


def test_every_kind_of_model_has_a_command():
    assert set(KINDS) == set(MODEL_COMMANDS)
