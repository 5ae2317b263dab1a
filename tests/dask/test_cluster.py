"""Errors and warnings about unsuitable clusters: versions, memory, options of the command line."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from terafactor import MaskedDictionaryLearning, pack
from terafactor.cli.app import app
from terafactor.dask.cluster import check_workers, environment, wait_for_workers
from terafactor.datasets import make_planted
from terafactor.errors import ClusterError

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)  # of Dask


class FakeClient:
    """A client of a cluster with one worker."""

    status, scheduler = "running", SimpleNamespace(address="tcp://scheduler:8786")

    def __init__(self, state="running", **differences):
        self.state = state
        self.differences = differences

    def nthreads(self):
        return {"tcp://worker:1": 1}

    def scheduler_info(self, n_workers):
        return {"workers": {"tcp://worker:1": {"status": self.state}}}

    def run(self, function):
        return {"tcp://worker:1": function() | self.differences}


def test_equal_workers_need_no_word(caplog):
    check_workers(FakeClient())
    assert caplog.text == ""


def test_other_libraries_and_processors_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        check_workers(FakeClient(numpy="1.0", processor="i386"))
    assert f"numpy 1.0 on 1 of 1 workers, such as tcp://worker:1, but {np.__version__} in this process" in caplog.text
    assert f"processor i386 on 1 of 1 workers, such as tcp://worker:1, but {environment()['processor']}" in caplog.text


def test_another_terafactor_is_refused():
    with pytest.raises(ClusterError, match=r"terafactor 9\.9 on 1 of 1 workers.*install the same version everywhere"):
        check_workers(FakeClient(terafactor="9.9"))


def test_paused_workers_are_named():
    with pytest.raises(ClusterError, match="are paused, because they are short of memory"):
        wait_for_workers(FakeClient("paused"), timeout=0.1)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_line_fits_packs_and_encodes_on_a_cluster(cluster, tmp_path):
    X, _ = make_planted(300, 40, 4)
    np.save(tmp_path / "X.npy", X)
    there = ("--scheduler-file", cluster.file)
    run("pack", tmp_path / "X.npy", "--out", tmp_path / "store", *there)
    pack(tmp_path / "X.npy", tmp_path / "local")
    files = {
        file.relative_to(tmp_path / "local"): file for file in (tmp_path / "local").rglob("c/**/*") if file.is_file()
    }
    assert files
    assert all((tmp_path / "store" / name).read_bytes() == file.read_bytes() for name, file in files.items())
    fit = ("fit", tmp_path / "X.npy", "-k", 4, "--alpha", 1, "--shards", 2, "--epochs", 2, "--seed", 0, "--holdout", 0)
    run(*fit, "--out", tmp_path / "run", *there)
    local = MaskedDictionaryLearning(4, alpha=1, shards=2, n_epochs=2, random_state=0).fit(X)
    run("transform", tmp_path / "run", tmp_path / "X.npy", "--out", tmp_path / "codes.npy", *there)
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), local.transform(X))


def test_a_cluster_that_cannot_be_found_is_named(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", np.eye(9))
    fit = ("fit", str(tmp_path / "X.npy"), "-k", "2", "--out", str(tmp_path / "run"))
    both = CliRunner().invoke(app, [*fit, "--scheduler", "tcp://x:1", "--local-cluster", "2"])
    assert "cannot be combined" in both.output
    missing = CliRunner().invoke(app, [*fit, "--scheduler-file", str(tmp_path / "none.json")])
    assert "none.json does not exist" in str(missing.exception)
    monkeypatch.setattr("terafactor.cli.cluster.CONNECT_SECONDS", 0.2)
    silent = CliRunner().invoke(app, [*fit, "--scheduler", "tcp://127.0.0.1:9"])
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in str(silent.exception)
    assert not (tmp_path / "run").exists()
