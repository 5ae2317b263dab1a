"""Foreign strings never reach the terminal as control sequences or as markup."""

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from terafactor import MaskedDictionaryLearning, pack, train
from terafactor._format import NOTICE, ConsoleFormatter, LogFormatter, printable
from terafactor.cli.app import app, main
from terafactor.runs.artifact import write_artifact

EVIL = "\x1b]0;owned\x07\x1b[31m\u202e\x9b2J[bold]"
"""Escape sequences of terminals, a reversal of the writing direction, and markup of Rich."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, X):
    np.save(tmp_path / "X.npy", X[:, :6])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run_main(monkeypatch, capsys, *words):
    """Run the command; return its exit code and everything that it prints."""
    monkeypatch.setattr(sys, "argv", ["terafactor", *map(str, words)])
    with pytest.raises(SystemExit) as exited:
        main()
    captured = capsys.readouterr()
    return exited.value.code, captured.out + captured.err


def check(text):
    """Assert that a text, wrapped or not, shows the evil string, and that nothing in it can control a terminal."""
    joined = "".join(text.split())
    assert "\\x1b" in joined
    assert "[bold]" in joined
    check_harmless(text)


def check_harmless(text):
    assert [each for each in text if not each.isprintable() and each != "\n"] == []


def test_printable_escapes_all_but_printable_characters():
    assert printable("Zürich 日本 [x]") == "Zürich 日本 [x]"
    assert printable("a\nb\t\x1b\x7f\udc80") == r"a\nb\t\x1b\x7f\udc80"
    assert printable("a\nb\r", lines=True) == "a\nb\\r"


def test_the_summary_of_a_model_escapes_its_strings(folder, monkeypatch, capsys):
    estimator = MaskedDictionaryLearning(2, n_epochs=1, random_state=0).fit(np.load("X.npy"))
    parameters = {"n_components": 2, "penalty": EVIL, EVIL: EVIL}
    write_artifact(replace(estimator._task().artifact(), parameters=parameters, fingerprint=EVIL), "model")
    code, text = run_main(monkeypatch, capsys, "inspect", "model")
    assert code == 0
    check(text)


def test_the_summary_of_a_run_escapes_its_strings(folder, monkeypatch, capsys):
    CliRunner().invoke(app, ["fit", "X.npy", "-k", "2", "--epochs", "1", "--out", "run"])
    config = folder / "run" / "config.toml"
    config.write_text(f"{config.read_text()}\n{json.dumps(EVIL)} = {json.dumps(EVIL)}\n")
    code, text = run_main(monkeypatch, capsys, "inspect", "run")
    assert code == 0
    check(text)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not allow such names")
def test_the_summary_of_a_file_escapes_its_name(folder, monkeypatch, capsys):
    name = EVIL.replace("/", "") + ".npy"
    shutil.copy("X.npy", name)
    for words in (("inspect", name), ("plan", name, "-k", 2)):
        code, text = run_main(monkeypatch, capsys, *words)
        assert code == 0
        check(text)
    pack(name, EVIL)
    code, text = run_main(monkeypatch, capsys, "inspect", EVIL)
    assert code == 0
    check(text)


def test_recommendations_escape_users_and_items(folder, monkeypatch, capsys):
    users = [f"{EVIL}{number}" for number in range(8)]
    lines = [f"{user},{item}{EVIL},{1 + (row * item) % 5}" for row, user in enumerate(users) for item in range(6)]
    (folder / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    fit = ["ratings", "fit", "ratings.csv", "-k", "2", "--epochs", "1", "--out", "run"]
    assert CliRunner().invoke(app, fit).exit_code == 0
    code, text = run_main(monkeypatch, capsys, "ratings", "recommend", "run", "--user", users[0], "--with-seen")
    assert code == 0
    check(text)
    assert len([line for line in text.splitlines() if "owned" in line]) > 2


def test_errors_escape_names_of_files_and_columns(folder, monkeypatch, capsys):
    code, text = run_main(monkeypatch, capsys, "fit", f"{EVIL}.npy", "--out", "run")
    assert code == 3
    check(text)
    (folder / "t.csv").write_text(f"a,{EVIL}\n1,x\n2,y\n")
    for words in (("t.csv",), ("t.csv", "--columns", "zz"), ("t.csv", "--drop", "zz", "--debug")):
        code, text = run_main(monkeypatch, capsys, "fit", *words, "--out", "run")
        assert code == 3
        check(text)


def test_settings_of_a_configuration_are_escaped(folder, monkeypatch, capsys):
    (folder / "c.toml").write_text(f"{json.dumps(EVIL)} = 1\n")
    code, text = run_main(monkeypatch, capsys, "fit", "X.npy", "--config", "c.toml", "--out", "run")
    assert code == 2
    assert "\x1b]0" not in text
    assert "\\x1b]0" in text


def test_log_lines_are_escaped():
    record = logging.LogRecord("terafactor", logging.WARNING, "", 0, "%s\nsecond line", (EVIL,), None)
    check(LogFormatter("%(levelname)s %(message)s").format(record))
    check(ConsoleFormatter().format(record))


def test_notices_are_not_marked_as_warnings():
    record = logging.makeLogRecord({"msg": "compiling"})
    assert ConsoleFormatter().format(record) == "warning: compiling"
    assert ConsoleFormatter().format(logging.makeLogRecord({"msg": "compiling"} | NOTICE)) == "compiling"


@pytest.mark.skipif(os.name == "nt", reason="Windows does not allow such names")
def test_warnings_outside_and_inside_a_run_are_escaped(folder):
    """The data has disappeared when the report is written: a warning names it."""
    name = EVIL.replace("/", "") + ".npy"
    shutil.copy("X.npy", name)
    terafactor = [sys.executable, "-m", "terafactor"]
    fit = [*terafactor, "fit", name, "-k", "2", "--epochs", "1", "--out", "run"]
    check_harmless(subprocess.run(fit, check=True, capture_output=True, text=True).stderr)
    (folder / name).unlink()
    done = subprocess.run([*terafactor, "report", "run"], check=True, capture_output=True, text=True)
    check(done.stderr)
    assert done.stderr.startswith("warning: ")
    check((folder / "run" / "log.txt").read_text())


@pytest.mark.skipif(os.name == "nt", reason="Windows does not allow such names")
def test_the_log_of_a_run_started_from_python_is_escaped(folder):
    name = EVIL.replace("/", "") + ".npy"
    shutil.copy("X.npy", name)
    train(MaskedDictionaryLearning(2, n_epochs=1, random_state=0), name, "run")
    check((folder / "run" / "log.txt").read_text())
