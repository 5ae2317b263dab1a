"""The study of the reduction runs at a tiny size."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks.reduction import claim, components, page
from benchmarks.reduction.data import TINY
from benchmarks.reduction.methods import Task, from_pass, nested, on_grid, package
from benchmarks.reduction.run import METHODS, STAGES, main


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reduction")
    main(["--tiny", "--seeds", "1", "--output", str(folder / "numbers"), "--page", str(folder / "page/reduction.md")])
    return folder


@pytest.mark.parametrize("name", TINY)
def test_data_set_has_numbers_picture_and_section(output, name):
    result = json.loads((output / "numbers" / f"{name}.json").read_text())["result"]
    assert set(METHODS) <= set(result["curves"])
    for curves in result["curves"].values():
        for curve in curves:
            assert len({len(values) for values in curve.values()}) == 1
            for what in ("seconds", "clock", "rows", "bytes"):
                assert curve[what] == sorted(curve[what])
                assert curve[what][0] > 0
    assert f"## {result['title']}" in (output / "page" / "reduction.md").read_text()
    assert (output / "page" / "figures" / f"reduction_{name}.png").stat().st_size > 5000


def test_claim_has_a_row_for_each_property(output):
    text = (output / "page" / "reduction.md").read_text()
    assert all(f"| {name} |" in text for name in claim.VARIED)
    assert (output / "page" / "figures" / "reduction_claim.png").stat().st_size > 5000


def test_stages_and_small_components_are_on_the_page(output):
    text = (output / "page" / "reduction.md").read_text()
    assert all(f"| {name} |" in text for name in STAGES)
    assert "## Small components" in text


def test_planted_maps_correlate_with_themselves():
    X, maps = components.simulate(components.TINY)
    assert X.shape == (60, 2000)
    assert maps.sum(axis=0).max() == 1
    assert maps.sum(axis=1).tolist() == [20, 63, 200]
    np.testing.assert_allclose(components.correlations(-2 * maps[::-1], maps), 1, rtol=1e-6)


@pytest.mark.parametrize("method", [from_pass(0), nested((1, 1000))], ids=["whole rows", "a stage of all features"])
def test_methods_outside_the_package_take_the_steps_of_the_package(method):
    data = TINY["digits"]
    train, test = data.make()
    ours, theirs = (run(Task(data, train, test, seed=3, rows=2 * len(train))) for run in (package(), method))
    n_points = len(theirs.rows)  # the package evaluates its end twice
    assert theirs.rows == ours.rows[:n_points]
    np.testing.assert_allclose(theirs.objective, ours.objective[:n_points], rtol=1e-4)


def curve(*points):
    seconds, n_bytes, values = zip(*points, strict=True)
    rows = list(range(1, 1 + len(points)))
    return {"seconds": list(seconds), "bytes": list(n_bytes), "rows": rows, "objective": list(values)}


def paired(packed=False, **curves):
    return page.comparable({"shape": [100, 1], "packed": packed, "curves": curves})


def test_ratios_are_paired_and_unreached_levels_infinite():
    base = curve((1.0, 4e8, 2.0), (2.0, 8e8, 1.0))
    result = paired(**{page.BASE: [base, base], "other": [curve((1.0, 1e8, 1.0)), curve((3.0, 1e8, 3.0))]})
    low, median, high = page.ratios(result, "other", 1.0, "seconds")
    assert low == 0.5
    assert math.isinf(median)
    assert math.isinf(high)
    assert page.middle(result, "other", 1.0, "seconds") == "> 1.50"
    assert page.cost_of(base, 1.0, "paper") == 4.0


def test_methods_outside_the_package_are_compared_with_the_control_on_a_packed_study():
    fits = {page.BASE: [curve((4.0, 4e8, 1.0))], page.CONTROL: [curve((2.0, 1e8, 0.9))]}
    fits |= {name: [curve((1.0, 1e8, 0.9))] for name in (page.MASKS, page.NESTED)}
    for packed, expected in ((True, 0.5), (False, 0.25)):
        result = paired(packed, **fits)
        assert page.ratios(result, page.NESTED, 1.0, "seconds")[1] == expected
        assert page.ratios(result, page.MASKS, 1.0, "seconds")[1] == 0.25


def test_quartiles_of_ten_take_the_mean_of_the_middle_values():
    assert page.quartiles(range(10, 0, -1)) == [3, 5.5, 8]
    assert page.quartiles([1.0, math.inf])[1] == math.inf


def test_a_last_evaluation_off_the_grid_does_not_count():
    rows = [1, 2, 3, 4, 5, 7, 8, 10, 10]  # passes of four rows; the fit stops at 10
    assert on_grid({"rows": rows}, 4)["rows"] == [1, 2, 3, 4, 5, 7, 8, 10]
    assert on_grid({"rows": [4, 8, 9]}, 4)["rows"] == [4, 8]


def test_noise_of_codes_grows_with_the_reduction_unless_noise_is_shared():
    rows, shared = claim.Rows(noise=2.0), claim.Rows(noise=2.0, smooth=20)
    assert rows.noise_of_codes(12, 2000) == 12 * rows.noise_of_codes(1, 2000) == 4 * 20 * 12 / 2000
    assert shared.noise_of_codes(12, 2000) < 2 * shared.noise_of_codes(1, 2000)
    noise = np.random.default_rng(0).standard_normal((200, 400), np.float32)
    assert claim.smoothed(noise, 20).std() == pytest.approx(1, rel=0.1)
