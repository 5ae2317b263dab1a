"""Whether the figures of several runs may be drawn on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor import _format
from terafactor.errors import ParameterError
from terafactor.report.context import ReportContext

PROBLEM = ("alpha", "penalty", "constraint", "positive_code", "positive_dict")
"""Parameters that say what is minimised, so that its values under others mean something else."""


def check_kinds(contexts: Sequence[ReportContext]) -> None:
    """Refuse runs of different estimators, whose figures have nothing in common."""
    kinds = {context.kind: context.title for context in contexts}
    if len(kinds) > 1:
        told = ", ".join(f"{title} of {kind}" for kind, title in kinds.items())
        raise ParameterError(f"runs of one kind can be compared, got {told}: make a report of each kind")


def differences(contexts: Sequence[ReportContext]) -> str:
    """Return in which respects runs differ that make their figures mean different things; "" where these compare.

    Errors of predictions compare whatever was minimised, as long as the data is the same.
    """
    errors = all(context.objective_is_error and context.held_out for context in contexts)
    found = []
    for name in () if errors else PROBLEM:
        values = dict.fromkeys(_format.setting(context.parameters.get(name)) for context in contexts)
        if len(values) > 1:
            found.append(f"{name} ({', '.join(values)})")
    if len({context.fingerprint for context in contexts}) > 1:
        found.append("data")
    return ", ".join(found[:-1]) + (" and " if len(found) > 1 else "") + "".join(found[-1:])
