"""Every figure of the paper runs at a tiny size, once, and writes its section of the page."""

import json
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

pytest.importorskip("matplotlib")

from benchmarks.coordinate_descent import coordinate_descent
from benchmarks.paper import figure4
from benchmarks.paper.brain import time_to
from benchmarks.paper.run import FIGURES, main


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    main(["--tiny", "--output", str(folder / "numbers"), "--page", str(folder / "page" / "paper.md")])
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_figure_has_numbers_picture_and_section(output, name):
    record = json.loads((output / "numbers" / f"{name}.json").read_text())
    assert record["result"]
    assert record["machine"]["processor"]
    assert (output / "page" / "figures" / f"paper_{name}.png").stat().st_size > 5000
    page = (output / "page" / "paper.md").read_text()
    assert f"## {FIGURES[name].TITLE}" in page
    assert "nan" not in page


def test_masks_read_their_features_only(output):
    curves = json.loads((output / "numbers" / "figure3.json").read_text())["result"][0]["curves"]
    assert curves["12"]["epochs"][-1] == curves["1"]["epochs"][-1]
    assert 10 < curves["1"]["bytes"][-1] / curves["12"]["bytes"][-1] < 14


def test_figure_with_a_result_is_not_run_again(output, monkeypatch):
    def refuse(size):
        raise AssertionError("measured again")

    monkeypatch.setattr(FIGURES["figure3"], "measure", refuse)
    line = ["--tiny", "--output", str(output / "numbers"), "--page", str(output / "page" / "paper.md"), "figure3"]
    main(line)
    with pytest.raises(AssertionError, match="measured again"):
        main([*line, "--again"])


def test_page_depends_only_on_the_records(output):
    page = output / "page" / "paper.md"
    before = page.read_text()
    path = output / "numbers" / "figure4.json"
    record = json.loads(path.read_text())
    for run in record["result"][0]["runs"]:
        run[figure4.PAPER]["rmse"] = 0.12345
    path.write_text(json.dumps(record))
    main(["--tiny", "--output", str(output / "numbers"), "--page", str(page), "figure4"])
    assert "0.1235" in page.read_text()
    assert "0.1235" not in before


def test_time_to_target_is_when_the_objective_stays_below_it():
    curve = {"seconds": [1, 2, 3, 4], "objective": [9, 5, 7, 5]}
    assert time_to(curve, 5) == 4
    assert time_to(curve, 7) == 2
    assert time_to(curve, 4) is None


def test_coordinate_descent_decreases_to_a_stationary_point():
    random = np.random.default_rng(0)
    observed = random.random((40, 30)) < 0.4
    values = np.where(observed, random.standard_normal((40, 30)), 0).astype(np.float32)
    found = []

    def keep(users, items):
        found.append((users.astype(float), items.astype(float)))

    penalty = 0.05
    coordinate_descent(csr_array(values * observed), 3, penalty, 300, keep, n_threads=2)

    def objective(users, items):
        fit = ((values - users.T @ items) ** 2)[observed].sum()
        return fit + penalty * ((observed.sum(1) * users**2).sum() + (observed.sum(0) * items**2).sum())

    curve = [objective(*factors) for factors in found]
    assert all(later <= earlier * (1 + 1e-5) for earlier, later in pairwise(curve))
    users, items = found[-1]
    residual = np.where(observed, values - users.T @ items, 0)
    gradient = -items @ residual.T + penalty * observed.sum(1) * users
    assert np.abs(gradient).max() < 1e-2


def test_coordinate_descent_does_not_depend_on_threads():
    random = np.random.default_rng(0)
    matrix = csr_array((random.random((50, 40)) < 0.3) * random.standard_normal((50, 40)))
    ends = []
    for n_threads in (1, 2):
        coordinate_descent(matrix, 4, 0.1, 3, lambda users, items: ends.append(items.copy()), n_threads=n_threads)
    np.testing.assert_array_equal(ends[2], ends[5])


def test_trend_of_table_1_is_reported_either_way():
    def entry(name, baseline, ours):
        line = {figure4.BASELINE: baseline, figure4.PAPER: ours, figure4.EXACT: ours, figure4.TODAY: ours}
        runs = [{method: {"rmse": 0.9, "seconds": seconds} for method, seconds in line.items()}]
        return {"name": f"synthetic {name}", "runs": runs}

    rising, falling = [entry("a", 1, 1), entry("b", 4, 2)], [entry("a", 4, 2), entry("b", 1, 1)]
    assert "It grows with the size" in figure4._sentences(rising)[0]
    assert "does not grow" in figure4._sentences(falling)[0]
