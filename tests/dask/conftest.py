import pytest

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return a cluster of two workers that no test kills."""
    from tests.dask.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def client(cluster):
    """Return a client of that cluster."""
    with cluster.client() as connected:
        yield connected
