"""The options of commands are the parameters of estimators."""

import inspect
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from terafactor import MaskedDictionaryLearning, MatrixCompletion
from terafactor.brain import BrainDictionaryLearning
from terafactor.cli.app import app
from terafactor.cli.options import BRAIN, CHECKPOINTS, CLUSTER, DICTIONARY, RATINGS

OF_PYTHON = {
    "callbacks": "they are functions",
    "verbose": "a run always shows its progress",
}
NOT_OFFERED = {
    MaskedDictionaryLearning: OF_PYTHON | {"init": "it is an array or a fitted estimator"},
    MatrixCompletion: OF_PYTHON,
    BrainDictionaryLearning: OF_PYTHON
    | {
        "dict_init": "initial maps are created in Python",
        "store": "--store and --no-pack set it, and the default is a folder of the run",
        "masker_options": "--smoothing and --set set them",
    },
}
"""Parameters without an option, and the reason."""

TABLES = {MaskedDictionaryLearning: DICTIONARY, MatrixCompletion: RATINGS, BrainDictionaryLearning: BRAIN}
COMMANDS = {
    MaskedDictionaryLearning: ["fit"],
    MatrixCompletion: ["ratings", "fit"],
    BrainDictionaryLearning: ["brain", "fit"],
}
each_estimator = pytest.mark.parametrize("estimator", TABLES)


@each_estimator
def test_every_parameter_has_an_option_or_a_reason(estimator):
    offered = [parameter.name for parameter in TABLES[estimator]]
    assert len(offered) == len(set(offered))
    assert not set(offered) & set(NOT_OFFERED[estimator])
    assert {*offered, *NOT_OFFERED[estimator]} == set(inspect.signature(estimator).parameters)


@each_estimator
def test_defaults_of_options_are_those_of_parameters(estimator):
    known = inspect.signature(estimator).parameters
    for parameter in TABLES[estimator]:
        assert parameter.value(parameter.default) == known[parameter.name].default, parameter.name


@each_estimator
def test_the_command_takes_all_options(estimator):
    command = typer.main.get_command(app)
    for name in COMMANDS[estimator]:
        command = command.commands[name]
    found = {parameter.name: parameter for parameter in command.params}
    for parameter in TABLES[estimator]:
        assert found[parameter.option].default == parameter.default
        assert found[parameter.option].help


def test_declaring_options_does_not_import_numerical_packages():
    code = (
        "import sys, terafactor.cli.app; print([name for name in ('sklearn', 'numba', 'numpy') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def commands(group=None, path=()):
    """Yield the words and the command for every command of the application."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


OURS = [(words, command) for words, command in commands() if words[0] not in ("brain", "ratings")]


@pytest.mark.parametrize(
    ("words", "command"), OURS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_describes_every_option(words, command):
    assert command.help
    for parameter in command.params:
        if parameter.name not in ("help", "install_completion", "show_completion"):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help


def test_help_of_fit_explains_held_out_rows(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"[\s│]+", " ", CliRunner().invoke(app, ["fit", "--help"]).output)
    assert "Rows held out for evaluation" in shown
    assert "default: 5%, at most 2,000 rows." in shown


@pytest.mark.parametrize("command", [["fit"], ["resume"], ["pack"], ["transform"], ["brain", "fit"]])
def test_help_shows_every_way_to_name_a_cluster(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    panel = shown[shown.index("─ Cluster ─") :]
    assert all(f"--{parameter.option.replace('_', '-')}" in panel for parameter in CLUSTER)


def test_help_shows_the_default_of_every_number_of_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = CliRunner().invoke(app, ["fit", "--help"]).output.splitlines()
    for parameter in (*DICTIONARY, *CHECKPOINTS):
        if parameter.default not in (None, False):
            name = f"--{parameter.option.replace('_', '-')} "
            assert f"[default: {parameter.default}]" in next(line for line in lines if name in line)
