"""The benchmark of the defaults runs at a tiny size; its page lists losses first."""

import json
import math

import pytest

pytest.importorskip("matplotlib")

from benchmarks.learning import page
from benchmarks.learning.data import TINY
from benchmarks.learning.measure import BEFORE, NEW
from benchmarks.learning.run import main


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    main(["--tiny", "--seeds", "1", "--output", str(folder / "numbers"), "--page", str(folder / "page/learning.md")])
    return folder


@pytest.mark.parametrize("name", TINY)
def test_data_set_has_numbers_picture_and_section(output, name):
    result = json.loads((output / "numbers" / f"{name}.json").read_text())["result"]
    assert {NEW, BEFORE} <= set(result["curves"])
    for curves in result["curves"].values():
        for curve in curves:
            assert len(curve["seconds"]) == len(curve["rows"]) == len(curve["objective"]) > 0
            assert curve["seconds"] == sorted(curve["seconds"])
    text = (output / "page" / "learning.md").read_text()
    assert text.index("### Where it loses") < text.index(f"## {result['title']}")
    assert (output / "page" / "figures" / f"learning_{name}.png").stat().st_size > 5000


def curve(*points):
    seconds, rows, values = zip(*points, strict=True)
    return {"seconds": list(seconds), "rows": list(rows), "objective": list(values)}


def test_times_are_medians_over_seeds():
    curves = [curve((1.0, 10, 5.0), (2.0, 20, 1.0)), curve((3.0, 10, 1.0)), curve((4.0, 10, 9.0))]
    assert page.time_to(curves, 1.0) == 3.0
    assert math.isinf(page.time_to(curves, 0.5))


def test_losses_are_listed():
    curves = {NEW: [curve((1.0, 10, 2.0), (4.0, 20, 1.0))], BEFORE: [curve((1.0, 10, 2.0), (3.0, 20, 1.0))]}
    assert next(iter(page.losses("test", {"curves": curves}))) == (
        f"- test, 10 % above the best: {BEFORE} takes 3 s, the default takes 4 s."
    )
    curves[BEFORE] = [curve((1.0, 10, 2.0), (5.0, 20, 1.0))]
    assert list(page.losses("test", {"curves": curves})) == []


def test_the_earlier_default_is_evaluated_after_ten_passes():
    found = [curve((1.0, 40, 3.0), (2.0, 100, 2.0), (3.0, 200, 1.0))]
    assert page.evaluation_of(found, n_rows=10) == (2.0, 2.0)
    assert page.evaluation_of(found, n_rows=1000) == (3.0, 1.0)
