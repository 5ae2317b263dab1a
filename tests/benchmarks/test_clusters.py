"""The benchmark of rounds and clusters runs at a tiny size."""

import pytest

pytest.importorskip("distributed")
pytest.importorskip("matplotlib")

from benchmarks.clusters.page import study
from benchmarks.clusters.run import main

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)  # of Dask


def test_every_experiment_has_a_section(tmp_path):
    page = tmp_path / "page" / "clusters.md"
    names = ["subjects", "overhead", "memory", "records"]
    main([*names, "--tiny", "--output", str(tmp_path / "numbers"), "--page", str(page)])
    text = page.read_text()
    for title in ("## Steps", "## Time of a round", "## Memory of a worker", "## One task per record", "## A study"):
        assert title in text
    assert "DIFFERENT" not in text


def test_more_workers_take_less_time_on_paper_on_fast_networks():
    rows = [
        line.split(" | ")
        for line in study({"step_on_one_thread": 0.1})
        if line.startswith("| ") and "workers" not in line
    ]
    hours = [float(row[6].rstrip(" |")) for row in rows]
    assert hours == sorted(hours, reverse=True)
