"""A simulated study that is fitted in less than a second."""

import pytest

pytest.importorskip("nilearn", reason="needs the extra 'brain'")

from terafactor.datasets import make_brain_study


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Two subjects with two runs each, five networks, voxels of 10 mm."""
    return make_brain_study(
        tmp_path_factory.mktemp("study"),
        n_subjects=2,
        n_runs=2,
        n_networks=5,
        n_volumes=50,
        resolution=10,
        noise=1.0,
        seed=1,
    )
