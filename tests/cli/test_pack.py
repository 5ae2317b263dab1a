"""``terafactor pack``."""

import numpy as np
import pytest

from terafactor import open_source
from terafactor.cli import main


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command in an empty folder; return its exit code."""
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments):
        monkeypatch.setattr("sys.argv", ["terafactor", "pack", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code

    return run_command


def test_it_packs_many_files(run, capsys):
    X = np.random.default_rng(0).standard_normal((50, 30))
    for number, part in enumerate(np.split(X, 5)):
        np.save(f"part{number}.npy", part)
    assert run("part*.npy", "--out", "store", "--block-rows", "5", "--dtype", "float32") == 0
    assert "packed 50 rows of 30 features into store" in capsys.readouterr().err
    source = open_source("store")
    assert source.dtype == np.float32
    np.testing.assert_array_equal(source.read(np.arange(50)), X.astype(np.float32))


def test_errors_have_exit_codes_and_messages(run, capsys):
    assert run("missing.npy", "--out", "store") == 3
    assert "missing.npy does not exist" in capsys.readouterr().err
    np.save("bad.npy", np.full((3, 4), np.nan))
    assert run("bad.npy", "--out", "store") == 3
    assert "bad.npy contains NaN at row 0, feature 0" in capsys.readouterr().err
    np.save("good.npy", np.ones((3, 4)))
    assert run("good.npy", "--out", "other", "--dtype", "int8") == 2
    assert "'int8' is not one of" in capsys.readouterr().err
    assert run("good.npy", "--out", "other") == 0
    assert run("good.npy", "--out", "other") == 3
    assert "other exists" in capsys.readouterr().err


def test_it_prints_the_rounding_error_of_integers(run, capsys):
    X = np.random.default_rng(0).standard_normal((50, 30)) * 5 + 100
    np.save("X.npy", X)
    assert run("X.npy", "--out", "store", "--dtype", "int16", "--standardize") == 0
    message = capsys.readouterr().err
    assert "int16 rounding error: " in message
    share = float(message.split("rounding error: ")[1].split()[0])
    assert 1e-6 < share < 1e-4
    found = open_source("store").read(np.arange(50))
    np.testing.assert_allclose(found, (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-3)


def test_counts_of_one_are_singular(run, capsys):
    np.save("row.npy", np.ones((1, 4)))
    assert run("row.npy", "--out", "row") == 0
    assert "packed 1 row of 4 features into row" in capsys.readouterr().err
    np.save("column.npy", np.ones((2, 1)))
    assert run("column.npy", "--out", "column") == 0
    assert "packed 2 rows of 1 feature into column" in capsys.readouterr().err
