"""Reports of fitted estimators: from Python, in notebooks, with the rows that the user has."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from terafactor import ArraySource, MaskedDictionaryLearning, PatchSource, RandomMasks
from terafactor.data.views.joined import JoinedSource
from terafactor.data.views.rows import SelectedRows
from terafactor.errors import DataError, ParameterError
from terafactor.report import Panel, fragment
from terafactor.report.markup import _environment, _template
from terafactor.report.sample import (
    MAX_SHOWN_ROWS,
    MAX_VALUES,
    examples,
    explained_share,
    row_name,
    sample_rows,
    spread,
)
from terafactor.testing import CountingSource


def fitted(X, **parameters):
    estimator = MaskedDictionaryLearning(5, random_state=0, batch_size=10, alpha=0.5, **parameters)
    return estimator.fit(X[:80], validation=X[80:])


def page_of(estimator, tmp_path, *given, **options):
    return estimator.report(tmp_path / "out.html", *given, **options).read_text(encoding="utf-8")


def headings(page):
    return re.findall(r"<h2>([^<]*)</h2>", page)


def test_report_with_rows_has_every_panel(X, tmp_path):
    page = page_of(fitted(X, n_epochs=2), tmp_path, X)
    for heading in ("Progress", "Atoms", "Use of atoms", "Reconstruction of rows", "Correlation between atoms"):
        assert heading in headings(page)
    assert "On 90 rows" in page


def test_report_without_rows_leaves_rows_out(X, tmp_path):
    page = page_of(fitted(X), tmp_path)
    assert "Atoms" in headings(page)
    assert "Reconstruction of rows" not in headings(page)


def test_report_needs_a_fit(tmp_path):
    with pytest.raises(NotFittedError):
        MaskedDictionaryLearning().report(tmp_path / "out.html")
    assert not list(tmp_path.iterdir())


def test_rows_of_another_width_are_refused(X, tmp_path):
    with pytest.raises((DataError, ValueError), match="features"):
        fitted(X).report(tmp_path / "out.html", X[:, 1:])


def test_patches_are_pictures_and_a_clone_forgets_them(tmp_path):
    image = np.random.default_rng(0).random((20, 24, 3))
    patches = PatchSource([image], (4, 4))
    estimator = MaskedDictionaryLearning(6, alpha=0.1, random_state=0).fit(patches)
    assert estimator.geometry_ == (4, 4, 3)
    assert 'class="sprites"' in page_of(estimator, tmp_path, patches)
    assert not hasattr(clone(estimator), "geometry_")
    estimator.fit(patches.read(np.arange(50)))
    assert estimator.geometry_ is None


def test_geometry_can_be_passed(X, tmp_path):
    assert 'class="sprites"' in page_of(fitted(X), tmp_path, X, geometry=(4, 6))
    with pytest.raises(ParameterError, match="24 entries"):
        fitted(X).report(tmp_path / "other.html", X, geometry=(5, 5))
    assert not (tmp_path / "other.html").exists()


def test_feature_names_of_a_frame_are_shown(X, tmp_path):
    frame = pd.DataFrame(X, columns=[f"gene <{number}>" for number in range(X.shape[1])])
    page = page_of(MaskedDictionaryLearning(5, random_state=0).fit(frame), tmp_path, frame)
    assert "gene &lt;3&gt;" in page


@pytest.mark.parametrize("missing", ["nan", "absent"])
def test_missing_values_stay_out_of_what_is_explained(X, tmp_path, missing):
    gaps = np.random.default_rng(0).random(X.shape) < 0.3
    data = np.where(gaps, np.nan, X) if missing == "nan" else csr_array(np.where(gaps, 0, X))
    estimator = MaskedDictionaryLearning(5, random_state=0, alpha=0.5, missing=missing).fit(data)
    context = estimator._report_context(data)
    assert np.isfinite(context.sample.explained).all()
    assert np.isnan(context.sample.examples[0].values).any()
    assert "Reconstruction of rows" in headings(page_of(estimator, tmp_path, data))


def test_the_choice_of_auto_is_shown(X):
    assert fitted(X, reduction=2)._report_context().parameters["statistics"] == "full"


def test_visits_count_steps_of_masked_statistics(X):
    masked = fitted(X, reduction=RandomMasks(4, "masked"), n_epochs=3)._report_context()
    assert masked.feature_visits == pytest.approx(3 * 80 / 10 / 4, rel=0.2)
    assert fitted(X)._report_context().feature_visits is None


def test_the_page_shows_the_reduction_that_auto_chose(X, tmp_path):
    estimator = fitted(X, reduction="auto")
    assert estimator._report_context().parameters["reduction"] == estimator.reduction_
    assert "Progress" in headings(page_of(estimator, tmp_path, X))


class OwnPanel(Panel):
    name, title = "own", "One of my own"

    def __init__(self, estimator):
        self.estimator = estimator

    def draw(self, context):
        return fragment("<p>{{ n }} steps</p>", n=self.estimator.n_steps_)


class WithPanel(MaskedDictionaryLearning):
    def panels(self):
        return [OwnPanel(self)]


def test_an_estimator_adds_its_panels(X, tmp_path):
    page = page_of(WithPanel(5, batch_size=9, n_epochs=1).fit(X), tmp_path)
    assert "One of my own" in headings(page)
    assert "<p>10 steps</p>" in page


class TestNotebook:
    def html(self, estimator):
        return estimator._repr_mimebundle_()["text/html"]

    def test_fitted_model_shows_a_compact_report_after_the_diagram(self, X):
        estimator = fitted(X)
        html = self.html(estimator)
        assert html.startswith("<style>")  # of scikit-learn, as it is
        assert "5 atoms of 24 features" in html
        assert "<svg" in html
        assert len(self.html(clone(estimator))) < len(html)
        assert "atoms of" not in self.html(clone(estimator))

    def test_without_the_extra_the_diagram_is_left(self, X, monkeypatch):
        estimator = fitted(X)
        monkeypatch.setitem(sys.modules, "jinja2", None)
        _environment.cache_clear()
        _template.cache_clear()
        html = self.html(estimator)
        assert "MaskedDictionaryLearning" in html
        assert "atoms of" not in html

    def test_text_is_as_scikit_learn_has_it(self, X):
        assert fitted(X)._repr_mimebundle_()["text/plain"].startswith("MaskedDictionaryLearning(")

    def test_it_holds_no_script_of_ours_and_escapes(self, X):
        frame = pd.DataFrame(X, columns=[f"<b>{number}" for number in range(X.shape[1])])
        html = self.html(MaskedDictionaryLearning(5, alpha=100.0).fit(frame))
        ours = html[html.index("atoms of") :]
        assert "<script" not in ours
        assert "All codes are zero" not in ours  # no rows available to check


class TestSample:
    def test_rows_are_spread_and_bounded(self):
        assert spread((10, 5)).tolist() == list(range(10))
        rows = spread((10**6, 50))
        assert len(rows) == MAX_SHOWN_ROWS
        assert rows[0] == 0
        assert rows[-1] == 10**6 - 1
        assert len(spread((100, MAX_VALUES // 7))) == 7
        assert len(spread((100, 10 * MAX_VALUES))) == 1

    def test_no_more_is_read_than_is_shown(self):
        source = CountingSource(ArraySource(np.ones((1000, 30), np.float32)))
        sample_rows(source, lambda rows: np.ones((rows.shape[0], 2)), lambda codes: np.ones((len(codes), 30)))
        assert source.n_values == MAX_SHOWN_ROWS * 30

    def test_explained_share_of_known_answers(self):
        values = np.array([[3.0, 4.0], [1.0, np.nan], [0.0, 0.0], [np.nan, np.nan]])
        shares = explained_share(values, np.array([[3.0, 0.0], [1.0, 9.0], [0.0, 0.0], [1.0, 1.0]]))
        np.testing.assert_allclose(shares, [9 / 25, 1.0, np.nan, np.nan])

    def test_examples_go_from_best_to_worst(self):
        explained = np.array([0.2, np.nan, 0.9, 0.5])
        found = examples(np.zeros((4, 1)), np.zeros((4, 1)), explained, "row {}".format)
        assert [(example.label, example.row) for example in found] == [
            ("best", "row 2"),
            ("median", "row 3"),
            ("worst", "row 0"),
        ]

    def test_one_row_is_the_best_and_none_is_none(self):
        (only,) = examples(np.zeros((1, 1)), np.zeros((1, 1)), np.array([0.5]), str)
        assert only.label == "best"
        assert examples(np.zeros((1, 1)), np.zeros((1, 1)), np.array([np.nan]), str) == []

    def test_rows_have_the_numbers_that_users_know(self):
        parts = [SelectedRows(ArraySource(np.ones((9, 2))), np.array([2, 5, 8])), ArraySource(np.ones((4, 2)))]
        assert row_name(parts[0], 1) == "row 5"
        joined = SelectedRows(JoinedSource(parts), np.array([1, 2, 5]))
        assert [row_name(joined, row) for row in range(3)] == [
            "row 5 of X (0)",
            "row 8 of X (0)",
            "row 2 of X (1)",
        ]
