"""``terafactor plan``."""

import json
import re

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, pack
from terafactor.cli import main
from terafactor.solver import plan as plan_module


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command in a folder with a matrix; return its exit code."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.random.default_rng(0).standard_normal((60, 90)).astype(np.float32))

    def run_command(*arguments, source="X.npy"):
        monkeypatch.setattr("sys.argv", ["terafactor", "plan", source, *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code

    return run_command


def test_it_shows_a_table(run, capsys):
    assert run("-k", "3", "--reduction", "4", "--epochs", "2") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("60 x 90", "memory", "read per epoch", "4 times less if packed", "2 epochs"):
        assert text in shown


def test_statistics_are_named_only_with_masks(run, capsys):
    for words, shown in ((["--reduction", "4"], True), ([], False)):
        assert run("-k", "3", "--epochs", "1", *words) == 0
        assert ("masked statistics" in capsys.readouterr().out) == shown


def test_a_plan_prints_as_lines():
    plan = MaskedDictionaryLearning(3, n_epochs=1).plan(np.ones((60, 90), np.float32))
    assert [line.split("  ")[0] for line in str(plan).splitlines()[:3]] == ["matrix", "step", "memory"]
    assert "60 x 90" in str(plan)
    assert "Plan(" not in str(plan)


def test_it_prints_numbers_for_scripts(run, capsys):
    assert run("--components", "3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_components"] == 3
    assert found["bytes_per_epoch"] == 60 * 90 * 4


def test_it_rejects_a_fit_that_needs_too_much_memory(run, capsys, monkeypatch):
    monkeypatch.setattr(plan_module, "available_memory", lambda: 1000)
    assert run("-k", "3") == 2
    assert "learning 3 atoms of 90 features needs" in capsys.readouterr().err


def test_it_accepts_reduction_auto(run, capsys):
    assert run("-k", "3", "--reduction", "auto") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "32 x 90",
        "200 epochs at",
        "the fit stops when it converges",
    ):
        assert text in shown
    assert run("-k", "3", "--reduction", "some") == 2
    assert "--reduction needs a number or auto, got 'some'" in " ".join(capsys.readouterr().err.split())


def test_packing_is_not_recommended_for_a_packed_store(run, capsys):
    np.save("X.npy", np.random.default_rng(0).standard_normal((400, 300)).astype(np.float32))
    pack("X.npy", "store", block_rows=40)
    assert run("-k", "7", "--reduction", "12", source="store") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "packed" not in shown
    assert re.search(r"[\d.]+ times less than whole rows, \d", shown)
