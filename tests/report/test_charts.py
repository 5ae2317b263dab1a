"""Numbers on their way into charts and pictures."""

import base64
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from terafactor.report import Axis, Curve, bar_chart, drawings, histogram, line_chart, pictures
from terafactor.report.charts import N_BUCKETS, thin


def content(figure):
    """Return what a chart hands to the script."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure)[1])


def pixels(uri):
    """Return the picture that a page would show."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=500), st.integers(4, 40))
def test_thinning_keeps_ends_and_extremes(values, n_buckets):
    values = np.array(values)
    kept = thin(values, n_buckets)
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    assert values[kept].min() == values.min()
    assert values[kept].max() == values.max()
    assert np.all(np.diff(kept) > 0)


def test_thinning_bounds_a_long_curve_and_keeps_its_beginning():
    kept = thin(np.random.default_rng(0).random(100_000))
    assert len(kept) <= 4 * N_BUCKETS
    assert (kept < 100).sum() > 50  # where a logarithmic axis looks
    spike = np.zeros(100_000)
    spike[54_321] = 1
    assert 54_321 in thin(spike)


def test_a_short_curve_keeps_all_its_points():
    np.testing.assert_array_equal(thin(np.arange(30.0)), np.arange(30))


def test_a_curve_drops_what_is_not_finite_and_ascends():
    curve = Curve("run", [np.array([0.0, 1.0, 0.5, 2.0])], np.array([3.0, np.nan, 2.0, np.inf]))
    (series,) = content(line_chart("caption", [Axis("time", "duration")], Axis("y"), [curve]))["series"]
    assert series["xs"] == [[0, 0.5]]
    assert series["y"] == [3, 2]
    backwards = Curve("run", [np.array([0.0, 2.0, 1.0])], np.arange(3.0))
    (series,) = content(line_chart("caption", [Axis("time")], Axis("y"), [backwards]))["series"]
    assert series["xs"] == [[0, 2, 2]]


def test_a_name_cannot_end_the_script_that_holds_it():
    figure = bar_chart("c", Axis("x"), Axis("y"), np.ones(1), ["</script><script>alert(1)</script>"])
    assert figure.count("</script>") == 1
    assert content(figure)["series"][0]["names"] == ["</script><script>alert(1)</script>"]


def test_histogram_counts_all_values_once():
    values = np.array([0.0, 0.1, 0.5, 1.0, np.nan])
    (series,) = content(histogram("c", Axis("x"), values, bins=np.linspace(0, 1, 5)))["series"]
    assert series["y"] == [2, 0, 1, 1]
    assert series["names"][0] == "0 to 0.25"


def test_gray_maps_zero_to_the_middle():
    picture = pictures.gray(np.array([-2.0, 0.0, 2.0, np.nan]).reshape(1, 2, 2, 1))
    assert picture.ravel().tolist() == [0, 127, 255, 127]
    assert pictures.gray(np.zeros((1, 2, 2, 1))).tolist() == np.full((1, 2, 2, 1), 127).tolist()


def test_signed_colors_differ_by_sign_and_leave_zero_out():
    shown = pictures.signed(np.array([[-1.0, 0.0, 0.5, 9.0]]), scale=1.0)[0]
    assert tuple(shown[0]) == (*pictures.BLUE, 255)
    assert shown[1, 3] == 0
    assert tuple(shown[2, :3]) == pictures.ORANGE
    assert 0 < shown[2, 3] < 255
    assert shown[3, 3] == 255


def test_sprite_reads_like_a_page():
    cells = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1) * np.ones((5, 2, 3, 1), np.uint8)
    joined = pictures.sprite(cells, across=3)
    assert joined.shape == (4, 9)
    assert joined[::2, ::3].tolist() == [[0, 1, 2], [3, 4, 0]]


@pytest.mark.parametrize(
    ("shape", "most"), [((64, 64), 256), ((100, 7), 50), ((3, 3), 100), ((1, 1000), 10), ((1000, 1), 10), ((7, 300), 1)]
)
def test_shrunk_pictures_keep_their_mean(shape, most):
    values = np.full((2, *shape, 3), 4.0)
    small = pictures.shrink(values, most)
    assert small.shape[1] * small.shape[2] <= most
    np.testing.assert_allclose(small, 4.0)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (4, 5, 4)])
def test_pictures_survive_the_page(shape):
    given = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.testing.assert_array_equal(pixels(pictures.picture(given)), given)


def heights(svg, line=0):
    (path,) = re.findall(rf'class="line{line}" d="([^"]*)"', svg)
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]


def test_drawn_curve_spans_the_drawing_upside_up():
    drawn = heights(drawings.curve(np.array([0.0, 1.0, 2.0]), height=48))
    assert drawn == [46, 24, 2]


def test_long_curve_shows_its_extremes():
    values = np.zeros(100_000)
    values[70_000] = 5
    drawn = heights(drawings.curve(values, width=100))
    assert len(drawn) == 100
    assert drawn.count(2.0) == 1


def test_curves_with_gaps_or_nothing_to_draw():
    svg = drawings.curve(np.array([1.0, np.nan, 2.0]))
    assert svg.count("M") == 2
    assert "<svg" in drawings.curve(np.full(3, np.nan))
    assert "<svg" in drawings.curve(np.ones(5))
