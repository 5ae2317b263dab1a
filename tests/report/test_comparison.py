"""Runs whose figures mean different things are not compared as if they meant the same."""

import pytest

from terafactor import ElasticNet
from terafactor.errors import ParameterError
from terafactor.report.comparison import differences
from terafactor.report.page import render
from terafactor.testing import make_history, make_report_context


def runs(*changes, **common):
    return [make_report_context(title=f"run {number}", **common, **change) for number, change in enumerate(changes)]


def with_parameters(*parameters, **common):
    return runs(*({"parameters": values} for values in parameters), **common)


def test_runs_of_one_problem_on_the_same_data_are_comparable():
    same = with_parameters({"alpha": 1, "reduction": 1}, {"alpha": 1.0, "reduction": 8}, fingerprint="a")
    assert differences(same) == ""
    page = render(same)
    assert "lower is better" in page
    assert "not comparable" not in page


@pytest.mark.parametrize(
    ("compared", "words"),
    [
        (with_parameters({"alpha": 0.5}, {"alpha": 2.0}), "alpha (0.5, 2)"),
        (with_parameters({"constraint": "l2"}, {"constraint": "l1"}), "constraint (l2, l1)"),
        (with_parameters({"penalty": "l1"}, {"penalty": ElasticNet(0.5)}), "penalty (l1, ElasticNet("),
        (runs({"fingerprint": "a"}, {"fingerprint": "b"}), "data"),
        (
            runs({"fingerprint": "a", "parameters": {"alpha": 1}}, {"fingerprint": "b", "parameters": {"alpha": 2}}),
            "alpha (1, 2) and data",
        ),
    ],
)
def test_the_page_explains_why_runs_are_not_comparable(compared, words):
    assert differences(compared).startswith(words)
    page = render(compared)
    assert "lower is better" not in page
    assert page.count("differ in " + words) == 2  # above the table, and above the chart
    assert page.count("not comparable") == 2


def test_prediction_errors_are_comparable_whatever_is_minimized():
    strengths = {"alpha": 0.5}, {"alpha": 2.0}
    assert differences(with_parameters(*strengths, objective_is_error=True)) == ""
    surrogates = with_parameters(*strengths, objective_is_error=True, history=make_history(held_out=False))
    assert differences(surrogates) == "alpha (0.5, 2)"
    assert differences(runs({"fingerprint": "a"}, {"fingerprint": "b"}, objective_is_error=True)) == "data"


def test_runs_of_different_kinds_are_refused():
    with pytest.raises(ParameterError, match="run 0 of MaskedDictionaryLearning, run 1 of MatrixCompletion"):
        render(runs({}, {"kind": "MatrixCompletion"}))
