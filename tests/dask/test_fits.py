"""Fits on a cluster equal fits on one machine, bit for bit, whatever the data are."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from tests.dask.cluster import Cluster

from terafactor import MaskedDictionaryLearning, MatrixCompletion, dask, load_model, open_source, pack, train
from terafactor.dask.chunks import ClusterArray
from terafactor.data.describe import open_description
from terafactor.datasets import make_planted
from terafactor.errors import ClusterError, DataError, ParameterError

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)  # of Dask

PARAMETERS = {"n_components": 6, "alpha": 1.0, "shards": 3, "round_steps": 2, "n_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module", name="X")
def rows():
    return make_planted(500, 60, 6)[0]


@pytest.fixture(scope="module")
def path(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "X.npy"
    np.save(path, X)
    return path


@pytest.fixture(scope="module")
def local(X):
    return MaskedDictionaryLearning(**PARAMETERS, n_threads=1).fit(X)


def assert_same_model(one, other):
    for name in ("dictionary", "data_code", "code_gram", "sizes", "idle_rows"):
        np.testing.assert_array_equal(getattr(one._state, name), getattr(other._state, name), err_msg=name)


def test_paths_are_opened_by_the_workers(client, path, local):
    assert_same_model(dask.MaskedDictionaryLearning(**PARAMETERS).fit(path), local)


def test_arrays_in_memory_are_sent_with_a_warning(client, X, local, caplog):
    assert_same_model(dask.MaskedDictionaryLearning(**PARAMETERS, client=client).fit(X), local)
    assert "are copied to every worker" in caplog.text


@pytest.mark.parametrize("persisted", [False, True])
def test_dask_arrays_stay_where_they_are(client, X, persisted, monkeypatch):
    array, read, n_read = da.from_array(X, chunks=(90, 25)), ClusterArray.read, []

    def counted(source, rows, columns=None):
        n_read.append(len(rows))
        return read(source, rows, columns)

    monkeypatch.setattr(ClusterArray, "read", counted)
    expected = MaskedDictionaryLearning(**PARAMETERS).fit(da.from_array(X, chunks=(90, 60)))
    on_cluster = dask.MaskedDictionaryLearning(**PARAMETERS).fit(array.persist() if persisted else array)
    assert_same_model(on_cluster, expected)
    assert 0 < sum(n_read) < len(X) / 2  # the sample and the initial atoms, of three passes over the rows


def test_held_out_rows_of_a_dask_array(client, X, tmp_path):
    array, run = da.from_array(X, chunks=(90, 60)), tmp_path / "run"
    model = train(dask.MaskedDictionaryLearning(**PARAMETERS), array, run, holdout=50)
    local = train(MaskedDictionaryLearning(**PARAMETERS), da.from_array(X, chunks=(90, 60)), tmp_path / "l", holdout=50)
    assert_same_model(model, local)
    assert model.history_[-1].objective == pytest.approx(local.history_[-1].objective)


def test_sparse_rows_missing_values_and_masks(client, X, path, tmp_path):
    wide = np.zeros((len(X), 2000), np.float32)
    wide[:, ::40] = X[:, :50]
    sparse.save_npz(tmp_path / "wide.npz", sparse.csr_array(wide))
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.float32(np.nan), X)
    np.save(tmp_path / "holes.npy", holes)
    store = pack(X, tmp_path / "store", block_rows=20)
    for data, changes in (
        (tmp_path / "wide.npz", {}), (tmp_path / "holes.npy", {"missing": "nan"}), (store, {"reduction": 4}),
        (path, {"constraint": "l1", "penalty": "l2"}),
    ):  # fmt: skip
        models = [
            kind(**(PARAMETERS | changes)).fit(data)
            for kind in (MaskedDictionaryLearning, dask.MaskedDictionaryLearning)
        ]
        assert_same_model(*models)


def test_auto_shards_are_the_threads_of_the_cluster_and_are_recorded(client, path, tmp_path):
    model = dask.MaskedDictionaryLearning(**(PARAMETERS | {"shards": "auto", "round_steps": "auto"})).fit(path)
    assert (model.shards_, model.round_steps_) == (2, 20)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is MaskedDictionaryLearning
    assert (loaded.shards_, loaded.round_steps_) == (2, 20)


def test_to_local_and_back(client, path, X, local):
    model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client).fit(path)
    plain = model.to_local()
    assert type(plain) is MaskedDictionaryLearning
    assert plain.get_params() == local.get_params() | {"n_threads": None}
    np.testing.assert_array_equal(plain.transform(X), local.transform(X))
    assert dask.on_cluster(plain, client).objective(path) == local.objective(X)
    assert clone(model).client is None
    assert "client" not in model.get_params()


def test_codes_and_objectives_of_dask_arrays_are_lazy(client, X, path):
    model = dask.MaskedDictionaryLearning(**PARAMETERS).fit(path)
    array = da.from_array(X, chunks=(90, 25))
    codes, objective = model.transform(array), model.objective(array)
    assert isinstance(codes, da.Array)
    assert codes.shape == (500, 6)
    np.testing.assert_allclose(codes.compute(), model.to_local().transform(X), atol=1e-5)
    assert float(objective.compute()) == pytest.approx(model.to_local().objective(X), rel=1e-6)
    assert float(model.score(array).compute()) == pytest.approx(-model.to_local().objective(X), rel=1e-6)


@pytest.mark.parametrize("name", ["codes.npy", "codes.zarr"])
def test_workers_write_codes(client, path, X, local, name, tmp_path):
    codes = dask.on_cluster(local, client).transform(path, out=tmp_path / name)
    np.testing.assert_array_equal(codes[:], local.transform(path))


def test_workers_pack_the_same_bytes(client, path, X, tmp_path):
    ours, theirs = pack(path, tmp_path / "a", block_rows=20), dask.pack(path, tmp_path / "b", block_rows=20)
    files = {file.relative_to(ours): file.read_bytes() for file in ours.rglob("*") if file.is_file()}
    assert files == {file.relative_to(theirs): file.read_bytes() for file in theirs.rglob("*") if file.is_file()}
    with pytest.raises(DataError, match="is in the memory of this process, so workers cannot read it"):
        dask.pack(X, tmp_path / "c")


def test_errors_name_the_problem(client, X, path, tmp_path):
    with pytest.raises(DataError, match="unknown lengths"):
        dask.MaskedDictionaryLearning(**PARAMETERS).fit(
            da.from_array(X, chunks=90)[da.from_array(X[:, 0] > 0, chunks=90)]
        )
    with pytest.raises(DataError, match="holds object, which is not a number"):
        dask.MaskedDictionaryLearning(**PARAMETERS).fit(da.from_array(X, chunks=90).astype(object))
    with pytest.raises(ParameterError, match=r"client must be a dask\.distributed\.Client, got str"):
        dask.MaskedDictionaryLearning(**PARAMETERS, client="tcp://x").fit(path)
    with pytest.raises(ParameterError, match="runs on one machine only"):
        dask.on_cluster(MatrixCompletion())
    moved = tmp_path / "moved.npy"
    np.save(moved, X)
    source = open_source(moved)
    description = source.describe()
    moved.rename(tmp_path / "elsewhere.npy")
    with pytest.raises(DataError, match=r"moved\.npy"):
        client.submit(open_description, description).result()


def test_without_a_client():
    with pytest.raises(ParameterError, match="no Dask client is active"):
        dask.MaskedDictionaryLearning(**PARAMETERS).fit(np.eye(9))


def test_a_chunk_larger_than_a_worker_is_refused(X, tmp_path):
    with (
        Cluster(tmp_path, 1, memory="50 kB") as small,
        small.client() as client,
        pytest.raises(ParameterError, match=r"largest chunk .* but the memory limit of a worker is 50 kB"),
    ):
        dask.MaskedDictionaryLearning(**PARAMETERS, client=client).fit(da.from_array(X, chunks=(400, 60)))


def test_no_workers(tmp_path, path):
    with Cluster(tmp_path, 0) as empty, empty.client() as client:
        model = dask.MaskedDictionaryLearning(**PARAMETERS, client=client, timeout=0.2)
        with pytest.raises(ClusterError, match="has no workers"):
            model.fit(path)
