"""Whether the objectives of several runs are comparable."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor import _format
from terafactor.errors import ParameterError
from terafactor.report.context import ReportContext

PROBLEM_PARAMETERS = ("alpha", "penalty", "constraint", "positive_code", "positive_dict")
"""Parameters that define the objective: its values are comparable only if these are equal."""


def check_kinds(contexts: Sequence[ReportContext]) -> None:
    """Refuse runs of different estimators, which minimize unrelated objectives."""
    kinds = {context.kind: context.title for context in contexts}
    if len(kinds) > 1:
        found = ", ".join(f"{title} of {kind}" for kind, title in kinds.items())
        raise ParameterError(f"only runs of one kind can be compared, got {found}: write a report for each kind")


def differences(contexts: Sequence[ReportContext]) -> str:
    """Return the differences between runs that make their objectives incomparable, as text; "" if there are none.

    Prediction errors are comparable if the data is the same, whatever the objective.
    """
    errors = all(context.objective_is_error and context.held_out for context in contexts)
    found = []
    for name in () if errors else PROBLEM_PARAMETERS:
        values = dict.fromkeys(_format.setting(context.parameters.get(name)) for context in contexts)
        if len(values) > 1:
            found.append(f"{name} ({', '.join(values)})")
    if len({context.fingerprint for context in contexts}) > 1:
        found.append("data")
    return ", ".join(found[:-1]) + (" and " if len(found) > 1 else "") + "".join(found[-1:])
