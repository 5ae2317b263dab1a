"""The page as a file: whole, self-contained, small, safe."""

import re
from dataclasses import replace

import numpy as np
import pytest

from terafactor.errors import MissingDependencyError, ParameterError
from terafactor.report import ReportContext, fragment, write_report
from terafactor.report.markup import _environment
from terafactor.report.page import render
from terafactor.testing import make_history, make_report_context
from terafactor.testing.panel_contract import HOSTILE, dangers, hostile

MEGABYTES = 10**6


def body(page):
    """Return the page between its own head and its own scripts."""
    return page[page.index("<body") : page.index("</footer>")]


def test_page_has_every_panel_and_needs_nothing_else(context, tmp_path):
    path = write_report(tmp_path / "new" / "report.html", context)
    page = path.read_text(encoding="utf-8")
    for heading in ("Progress", "Atoms", "Use of atoms", "Reconstruction of rows", "Correlation between atoms"):
        assert f"<h2>{heading}</h2>" in page
    assert dangers(body(page)) == []
    assert "default-src 'none'" in page
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_hostile_texts_stay_texts():
    for page in (render([hostile(make_report_context())], HOSTILE), render([hostile(make_report_context())] * 2)):
        assert dangers(body(page)) == []
        assert page.count("<script>") == 2
        assert "alert(1)</script>" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "{{ 7 * 7 }}" in page


def test_hostile_texts_would_be_found():
    assert dangers(f"<p>{HOSTILE}</p>") != []
    assert dangers('<a href="https://example.org">') != []
    assert dangers('<a href="javascript:x()">') != []
    assert dangers('<a href="#atoms"><a href="maps/one.html">') == []
    assert dangers('<img src="picture.png">') != []
    assert dangers('<p onclick="x()">') != []


def test_scripts_of_the_page_are_the_only_ones_that_its_policy_allows(context):
    page = render([context])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.count("sha256-") == 2
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert "http" not in policy


def test_the_page_carries_the_license_of_what_it_copies(context):
    page = render([context])
    assert re.search(r"<!-- [^>]*uPlot\. The MIT License", page)
    assert "Leon Sorokin" in page


def test_thousand_atoms_stay_small():
    page = render([make_report_context(1000, shape=(32, 32, 3))])
    assert len(page) < 10 * MEGABYTES
    assert page.count('<i title="atom') == 1000


@pytest.mark.parametrize("changes", [{"geometry": None}, {"geometry": None, "feature_names": ["gene"] * 3072}])
def test_thousand_atoms_without_pictures_stay_small(changes):
    assert len(render([make_report_context(1000, shape=(32, 32, 3), **changes)])) < 10 * MEGABYTES


def test_large_pictures_are_shown_smaller():
    assert len(render([make_report_context(60, shape=(300, 200))])) < 10 * MEGABYTES


def test_hundred_thousand_lines_stay_small():
    page = render([make_report_context(history=make_history(100_000))])
    assert len(page) < MEGABYTES


def test_more_atoms_than_are_shown():
    page = render([make_report_context(1100, shape=(2, 2))])
    assert "1,000 of 1,100 atoms" in page


def test_run_that_has_just_begun():
    page = render([ReportContext(title="new", kind="MaskedDictionaryLearning")])
    assert "running" in page
    assert "data-refresh" in page


def test_only_a_running_page_refreshes(context):
    assert "data-refresh" not in render([context])
    assert "data-refresh" in render([context, replace(context, stopped_by=None)])


@pytest.mark.parametrize(
    ("stopped_by", "text"),
    [
        ("n_epochs", "finished"),
        ("tol", "converged"),
        ("max_time", "time limit reached"),
        ("SIGINT", "interrupted by Ctrl-C"),
        ("SIGTERM", "stopped by SIGTERM"),
    ],
)
def test_the_page_shows_the_state(context, stopped_by, text):
    assert re.search(rf'class="badge done">[^<]*{text}', render([replace(context, stopped_by=stopped_by)]))


def test_no_run_is_refused():
    with pytest.raises(ParameterError, match="at least one run"):
        render([])


def test_shape_that_does_not_fit_is_refused(context):
    assert context.shaped((5, 6)).picture_shape == (5, 6, 1)
    assert context.shaped((5, 2, 3)).picture_shape == (5, 2, 3)
    for wrong in ((5, 5), (30,), (5, 3, 2)):
        with pytest.raises(ParameterError, match="30 entries"):
            context.shaped(wrong)


def test_missing_package_names_the_extra(monkeypatch, context, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    _environment.cache_clear()
    from terafactor.report.markup import _template

    _template.cache_clear()
    with pytest.raises(MissingDependencyError, match=r"jinja2.*terafactor\[report\]"):
        write_report(tmp_path / "report.html", context)
    assert not list(tmp_path.iterdir())


def test_fragments_nest_and_escape():
    inner = fragment("<b>{{ text }}</b>", text="<i>")
    assert fragment("{{ inner }}{{ text }}", inner=inner, text="<u>") == "<b>&lt;i&gt;</b>&lt;u&gt;"


def test_atoms_are_shown_the_most_used_first(context):
    used = (context.sample.codes != 0).mean(axis=0)
    order = [int(atom) for atom in re.findall(r'title="atom (\d+), used', render([context]))]
    assert len(order) == len(used)
    assert (np.diff(used[order]) <= 0).all()


def test_runs_without_held_out_rows_are_not_compared_by_another_figure():
    history = make_history(5)
    blind = make_report_context(title="blind", history=make_history(8, held_out=False))
    for contexts in ([make_report_context(history=history), blind], [blind, make_report_context(history=history)]):
        page = render(contexts)
        assert "<th>held-out objective</th>" in page
        row = page[page.index("</span>blind</th>") :]
        assert re.findall(r"<td>([^<]*)</td>", row)[:2] == ["-", "-"]
    assert "<th>surrogate</th>" in render([blind, blind])
