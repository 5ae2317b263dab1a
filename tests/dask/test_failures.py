"""Workers, schedulers and drivers may die at any moment."""

import threading

import numpy as np
import pytest
from tests.dask.cluster import Cluster

from terafactor import MaskedDictionaryLearning, dask, train
from terafactor.datasets import make_planted
from terafactor.errors import ClusterError

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)  # of Dask

PARAMETERS = {"n_components": 6, "alpha": 1.0, "shards": 2, "round_steps": 2, "n_epochs": 6, "random_state": 0}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "X.npy"
    np.save(path, make_planted(500, 60, 6)[0])
    return path


@pytest.fixture(scope="module")
def expected(path):
    return MaskedDictionaryLearning(**PARAMETERS).fit(path)._state


def assert_same_bits(model, expected):
    for name in ("dictionary", "data_code", "code_gram"):
        np.testing.assert_array_equal(getattr(model._state, name), getattr(expected, name))


def at_step(step, action):
    """Return a callback that does something once, after a step."""
    done = []

    def call(snapshot):
        if snapshot.step >= step and not done:
            done.append(snapshot.step)
            action()

    return call


def test_a_killed_worker_is_replaced(path, expected, tmp_path):
    with Cluster(tmp_path, 2) as cluster, cluster.client() as client:

        def replace_worker():
            cluster.kill_worker()
            cluster.add_worker()

        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client, callbacks=[at_step(8, replace_worker)])
        assert_same_bits(model.fit(path), expected)


def test_all_workers_gone_then_back(path, expected, tmp_path):
    with Cluster(tmp_path, 1) as cluster, cluster.client() as client:

        def kill():
            cluster.kill_worker()
            threading.Timer(1.0, cluster.add_worker).start()

        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client, callbacks=[at_step(8, kill)])
        assert_same_bits(model.fit(path), expected)


def test_a_cluster_that_is_gone_leaves_a_run_to_resume_anywhere(path, expected, tmp_path):
    run = tmp_path / "run"
    with Cluster(tmp_path, 1) as cluster, cluster.client() as client:
        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client, timeout=1.0)
        with pytest.raises(ClusterError, match="has no workers"):
            train(model, path, run, holdout=0, callbacks=[at_step(8, cluster.kill_worker)])
        assert len(list((run / "checkpoints").iterdir())) == 1
    assert_same_bits(train(MaskedDictionaryLearning(**PARAMETERS), path, run, holdout=0, resume=True), expected)


def test_a_scheduler_that_is_gone_leaves_a_run_to_resume_on_another_cluster(path, expected, tmp_path):
    run, (first, second) = tmp_path / "run", (tmp_path / "1", tmp_path / "2")
    first.mkdir()
    second.mkdir()
    with Cluster(first, 1) as cluster, cluster.client(timeout=2) as client:
        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client, timeout=2.0)
        with pytest.raises(ClusterError, match="does not answer"):
            train(model, path, run, holdout=0, callbacks=[at_step(8, cluster.scheduler.kill)])
    with Cluster(second, 2) as cluster, cluster.client() as client:
        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client)
        assert_same_bits(train(model, path, run, holdout=0, resume=True), expected)
