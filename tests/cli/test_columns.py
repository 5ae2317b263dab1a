"""Tables with columns that are not features: ``--columns`` and ``--drop``."""

import json
import sys
import tomllib

import numpy as np
import polars
import pytest
from typer.testing import CliRunner

from terafactor import load_model, open_source
from terafactor.cli.app import app, main
from terafactor.cli.parsing import join_names, parse_names
from terafactor.errors import DataError, ParameterError

FIT = ("-k", 2, "--epochs", 2, "--seed", 0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, X):
    """Change to a folder with the first features of X as X.npy, and as a CSV file with an id and a text column."""
    X = X[:, :6]
    np.save(tmp_path / "X.npy", X)
    lines = [f"{row},name {row}," + ",".join(map(repr, values.tolist())) for row, values in enumerate(X)]
    (tmp_path / "t.csv").write_text("\n".join(["id,name,a,b,c,d,e,f", *lines]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def components(run):
    return load_model(run).components_


def test_the_error_names_the_option_that_leaves_a_text_column_out(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["terafactor", "fit", "t.csv", "--out", "run"])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 3
    assert "--drop name" in capsys.readouterr().err


@pytest.mark.filterwarnings("always::terafactor.errors.FitWarning")
def test_a_skipped_index_is_a_warning_without_lines_of_code(monkeypatch, capsys, folder):
    text = (folder / "t.csv").read_text()
    (folder / "index.csv").write_text(text.removeprefix("id"))
    monkeypatch.setattr(sys, "argv", ["terafactor", "inspect", "index.csv", "--drop", "name"])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: the first column of index.csv has no name")
    assert "--columns" in error
    assert ".py" not in error


@pytest.mark.parametrize("words", [("--drop", "id,name"), ("--columns", "a,b,c,d,e,f")])
def test_fit_reads_the_selected_columns(words):
    invoke("fit", "X.npy", *FIT, "--out", "reference")
    invoke("fit", "t.csv", *words, *FIT, "--out", "run")
    np.testing.assert_array_equal(components("run"), components("reference"))
    assert load_model("run").feature_names_in_.tolist() == list("abcdef")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_columns_are_read_in_the_given_order_and_without_those_to_drop(X, name):
    table = polars.read_csv("t.csv")
    table.write_parquet("t.parquet")
    table.write_ipc("t.arrow")
    source = open_source(name, columns=["c", "name", "a"], drop=["name"])
    assert source.feature_names == ["c", "a"]
    np.testing.assert_array_equal(source.read(np.arange(90)), X[:, [2, 0]])


def test_the_columns_of_a_frame_are_selected_in_the_same_way(X):
    source = open_source(polars.read_csv("t.csv"), drop=["id", "name"])
    np.testing.assert_array_equal(source.read(np.arange(90)), X[:, :6])


def test_resume_and_report_read_the_same_columns(folder, monkeypatch):
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    assert tomllib.loads((folder / "run" / "config.toml").read_text())["data"]["source"] == {
        "source": str(folder / "t.csv"),
        "drop": ["id", "name"],
    }
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    invoke("resume", folder / "run", "--epochs", 4)
    invoke("report", folder / "run")
    page = (folder / "run" / "report.html").read_text()
    assert "could not be read again" not in page
    assert "id, name" in page
    monkeypatch.chdir(folder)
    invoke("fit", "t.csv", "--drop", "id,name", "-k", 2, "--epochs", 4, "--seed", 0, "--out", "whole")
    np.testing.assert_array_equal(components("run"), components("whole"))


def test_a_new_run_names_the_table_and_its_columns(folder):
    words = ("--columns", "a,b,name", "--drop", "name")
    assert f"on {folder / 't.csv'} with only a, b, name without name (90 x 2)" in invoke(
        "fit", "t.csv", *words, *FIT, "--out", "run"
    ).output.replace("\n", "")


def test_resume_keeps_the_columns_of_a_table_that_moved(folder):
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    (folder / "t.csv").rename(folder / "moved.csv")
    invoke("resume", "run", "--epochs", 3, "--source", "moved.csv")
    invoke("resume", "run", "--epochs", 4)  # the run recorded the new location
    assert load_model("run").n_features_in_ == 6


def test_the_configuration_of_a_run_selects_its_columns():
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    invoke("fit", "--config", "run/config.toml", "--out", "again")
    np.testing.assert_array_equal(components("again"), components("run"))


def test_a_configuration_may_list_columns(folder):
    (folder / "c.toml").write_text('source = "t.csv"\ndrop = ["id", "name"]\ncolumns = "a,b,name"\n')
    invoke("fit", "--config", "c.toml", *FIT, "--out", "run")
    assert load_model("run").feature_names_in_.tolist() == ["a", "b"]


def test_transform_reads_the_columns_of_the_model(folder):
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    expected = load_model("run").transform("X.npy")
    header, *lines = (folder / "t.csv").read_text().splitlines()
    reordered = [",".join(reversed(line.split(","))) for line in (header, *lines)]
    (folder / "reordered.csv").write_text("\n".join(reordered) + "\n")
    (folder / "no names.csv").write_text("\n".join(line.split(",", 2)[2] for line in lines) + "\n")
    for number, words in enumerate(
        [("t.csv",), ("t.csv", "--drop", "id,name"), ("reordered.csv",), ("no names.csv",), ("X.npy",)]
    ):
        invoke("transform", "run", *words, "--out", f"{number}.npy")
        np.testing.assert_array_equal(np.load(f"{number}.npy"), expected)


def test_transform_names_a_column_that_is_missing(folder):
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    (folder / "numbers.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"the model was fitted on column 'c', which numbers\.csv lacks"):
        invoke("transform", "run", "numbers.csv", "--out", "codes.npy")
    (folder / "other.csv").write_text("name,a,b\nx,1,2\n")
    with pytest.raises(DataError, match=r"other.csv has no column 'c'; it has 'name', 'a', 'b'"):
        invoke("transform", "run", "other.csv", "--out", "codes.npy")
    (folder / "broken.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"broken.npy"):
        invoke("transform", "run", "broken.npy", "--out", "codes.npy")


def test_plan_pack_and_inspect_read_the_selected_columns():
    assert json.loads(invoke("plan", "t.csv", "--drop", "id,name", "-k", 2, "--json").stdout)["n_features"] == 6
    assert json.loads(invoke("inspect", "t.csv", "--columns", "a,c", "--json").stdout)["source"]["features"] == 2
    invoke("pack", "t.csv", "--drop", "id,name", "--out", "store")
    np.testing.assert_array_equal(open_source("store").read(np.arange(90)), np.load("X.npy"))
    invoke("fit", "t.csv", "--drop", "id,name", *FIT, "--out", "run")
    assert json.loads(invoke("inspect", "run", "--json").stdout)["data"]["drop"] == ["id", "name"]


def test_a_selection_that_cannot_be_made_is_an_error():
    for words in (("--columns", "a,zz"), ("--drop", "zz,name")):
        with pytest.raises(DataError, match=r"t\.csv has no column 'zz'; it has 'id', 'name', 'a'"):
            invoke("fit", "t.csv", *words, "--out", "run")
    with pytest.raises(DataError, match=r"no column of t\.csv is left"):
        invoke("fit", "t.csv", "--columns", "a", "--drop", "a", "--out", "run")
    for command in ("plan", "inspect"):
        with pytest.raises(ParameterError, match=r"columns= cannot be used with X.npy.*are for tables"):
            invoke(command, "X.npy", "--columns", "a")


@pytest.mark.parametrize("names", [["a"], ["a", "b c"], ["a,b", 'see "x"', " c "], [""]])
def test_names_survive_a_round_trip_through_an_option(names):
    assert parse_names(join_names(names)) == names


def test_names_may_be_quoted_and_followed_by_spaces():
    assert parse_names('a, b,"c,d"') == ["a", "b", "c,d"]
