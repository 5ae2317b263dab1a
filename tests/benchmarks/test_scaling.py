"""The scaling benchmark runs at a tiny size and writes its page."""

import json
import sys

import pytest

pytest.importorskip("matplotlib")

from benchmarks import scaling


def test_curves_and_page(tmp_path):
    scaling.main(["--tiny", "--output", str(tmp_path / "numbers"), "--page", str(tmp_path / "page" / "scaling.md")])
    result = json.loads((tmp_path / "numbers" / "scaling.json").read_text())["result"]
    assert set(result["times"]) == {"n", "p", "k", "r", "threads"}
    full, masked = result["bytes"]["measured"]
    assert full / masked == pytest.approx(4)
    assert bool(result["memory"]) == sys.platform.startswith("linux")
    text = (tmp_path / "page" / "scaling.md").read_text()
    assert "Bytes of an epoch" in text
    assert (tmp_path / "page" / "figures" / "scaling.png").stat().st_size > 5000


def test_line_of_theory_passes_through_a_measured_point():
    found = {"values": [1, 2, 4], "measured": [5.0, 6.0, 20.0]}
    assert scaling.line_of_theory(found, lambda value: value) == [3, 6, 12]
    assert scaling.line_of_theory(found, lambda value: 1 / value) == [5, 2.5, 1.25]


def test_slope_is_the_exponent_of_a_power_law():
    assert scaling.slope({"values": [1, 2, 4], "measured": [3, 12, 48]}) == pytest.approx(2)
