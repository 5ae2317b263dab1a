"""Every panel passes the contract, with pictures, curves and named features."""

import re
from dataclasses import replace

import numpy as np
import pytest

from terafactor.report import Panel, fragment
from terafactor.report.page import render
from terafactor.report.panels import panels_of
from terafactor.report.panels.atoms import AtomsPanel, largest_entries
from terafactor.report.panels.correlation import CorrelationPanel, coarse
from terafactor.report.panels.notices import NoticesPanel
from terafactor.report.panels.progress import ProgressPanel
from terafactor.report.panels.reconstruction import ReconstructionPanel
from terafactor.report.panels.setting import SettingPanel
from terafactor.report.panels.summary import SummaryPanel, differing
from terafactor.report.panels.usage import UsagePanel
from terafactor.testing import PanelContract, make_history, make_report_context


class TestSummary(PanelContract):
    def make(self):
        return SummaryPanel(), make_report_context()


class TestNotices(PanelContract):
    def make(self):
        return NoticesPanel(), make_report_context(stopped_by="max_time")


class TestProgress(PanelContract):
    def make(self):
        return ProgressPanel(), make_report_context()


class TestAtomsAsPictures(PanelContract):
    def make(self):
        return AtomsPanel(), make_report_context()


class TestAtomsAsColorPictures(PanelContract):
    def make(self):
        return AtomsPanel(), make_report_context(shape=(4, 4, 3))


class TestAtomsAsCurves(PanelContract):
    def make(self):
        return AtomsPanel(), make_report_context(geometry=None)


class TestAtomsAsNamedFeatures(PanelContract):
    def make(self):
        return AtomsPanel(), make_report_context(geometry=None, feature_names=[f"gene {i}" for i in range(30)])


class TestUsage(PanelContract):
    def make(self):
        return UsagePanel(), make_report_context()


class TestReconstructionOfPictures(PanelContract):
    def make(self):
        return ReconstructionPanel(), make_report_context()


class TestReconstructionOfCurves(PanelContract):
    def make(self):
        return ReconstructionPanel(), make_report_context(geometry=None)


class TestCorrelation(PanelContract):
    def make(self):
        return CorrelationPanel(), make_report_context()


class TestSetting(PanelContract):
    def make(self):
        return SettingPanel(), make_report_context()


class Extra(Panel):
    name, title = "extra", "Something else"

    def draw(self, context):
        return fragment("<p>{{ n }} atoms by another package</p>", n=len(context.components))


class InsteadOfAtoms(Extra):
    name = "atoms"


class Plain(Extra):
    def draw(self, context):
        return "<b>not made by fragment</b>"


def test_a_panel_of_an_estimator_enters_the_page_before_the_settings():
    page = render([make_report_context(panels=[Extra()])])
    assert "12 atoms by another package" in page
    anchors = re.findall(r'<section id="([a-z-]+)"', page)
    assert anchors[-2:] == ["extra", "setting"]


def test_a_panel_takes_the_place_of_the_one_with_its_name():
    ours = [panel.name for panel in panels_of([make_report_context()])]
    panels = panels_of([make_report_context(panels=[InsteadOfAtoms()])])
    assert [panel.name for panel in panels] == ours
    assert sum(isinstance(panel, AtomsPanel) for panel in panels) == 0


class Knowing(Extra):
    """A panel that knows its estimator."""

    def __init__(self, estimator):
        self.estimator = estimator

    def draw(self, context):
        return fragment("<p>{{ title }} by {{ estimator }}</p>", title=context.title, estimator=self.estimator)


def test_each_run_is_drawn_by_its_own_panel():
    page = render([make_report_context(title=name, panels=[Knowing(f"model of {name}")]) for name in ("a", "b")])
    assert "<p>a by model of a</p>" in page
    assert "<p>b by model of b</p>" in page


def test_sparse_atoms_show_their_density():
    components = np.eye(4, 30)
    drawn = UsagePanel().draw(make_report_context(components=components, sample=None))
    assert "97 % of the entries of the atoms are zero" in drawn
    assert "Nonzero entries of each atom" in drawn


def test_plain_text_of_a_panel_is_escaped():
    page = render([make_report_context(panels=[Plain()])])
    assert "&lt;b&gt;not made by fragment" in page


def test_several_runs_share_one_chart():
    runs = [make_report_context(title=f"run {number}") for number in range(3)]
    drawn = ProgressPanel().compare(runs)
    assert drawn.count('"kind":"lines","small":false') == 1
    assert all(f'"label":"run {number}"' in drawn for number in range(3))


def test_progress_explains_a_missing_curve():
    drawn = ProgressPanel().draw(make_report_context(history=make_history(1)))
    assert "validation=rows" in drawn
    assert "<figure" not in drawn


def test_progress_of_a_run_that_has_been_evaluated_once():
    first, *later = make_history(5)
    begun = make_report_context(history=[first, *(replace(line, objective=None) for line in later)], stopped_by=None)
    drawn = ProgressPanel().draw(begun)
    assert "one evaluation of the held-out objective so far" in drawn
    assert drawn.count("<figure") == 2  # what is known at every line


def test_progress_draws_the_surrogate_where_nothing_was_held_out():
    drawn = ProgressPanel().draw(make_report_context(history=make_history(held_out=False)))
    assert '"y":{"label":"surrogate"' in drawn
    assert drawn.count('"label":"surrogate"') == 1
    assert "surrogate" not in ProgressPanel().draw(make_report_context(history=make_history()))


def test_table_of_runs_shows_the_parameters_that_differ():
    runs = [make_report_context(parameters={"reduction": r, "alpha": 1, "penalty": np.ones(2)}) for r in (1, 8)]
    assert differing(runs) == ["reduction"]
    assert "<th>reduction</th>" in SummaryPanel().compare(runs)


@pytest.mark.parametrize("n_features", [1, 3, 100])
def test_largest_entries_are_of_every_atom_and_each_once(n_features):
    atoms = np.random.default_rng(0).standard_normal((7, 40))
    chosen = largest_entries(atoms, n_features)
    assert len(chosen) == len(set(chosen.tolist())) == min(n_features, 40)
    if n_features == 100:
        assert set(np.abs(atoms).argmax(axis=1)) <= set(chosen.tolist())


def test_coarse_keeps_the_largest_of_each_block_with_its_sign():
    matrix = np.zeros((5, 5))
    matrix[1, 4], matrix[4, 1] = -0.9, 0.3
    shown = coarse(matrix, 3)
    assert shown.shape == (3, 3)
    assert shown[0, 2] == -0.9
    assert shown[2, 0] == 0.3
    assert coarse(matrix, 5) is matrix


def test_names_of_figures_keep_their_capitals():
    drawn = ProgressPanel().draw(make_report_context(objective_name="RMSE on held-out ratings"))
    assert "RMSE on held-out ratings: from" in drawn


def test_correlation_states_the_order_of_atoms():
    context = make_report_context()
    assert "the most used first." in CorrelationPanel().draw(context)
    assert "by number." in CorrelationPanel().draw(replace(context, sample=None))
