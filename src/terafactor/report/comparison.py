"""Whether the figures of several runs may be drawn on one axis."""

from __future__ import annotations

from collections.abc import Sequence

from terafactor import _words as words
from terafactor.errors import ParameterError
from terafactor.report.story import Story

PROBLEM = ("alpha", "penalty", "constraint", "positive_code", "positive_dict")
"""Parameters that say what is minimised, so that its values under others mean something else."""


def check_kinds(stories: Sequence[Story]) -> None:
    """Refuse runs of different estimators, whose figures have nothing in common."""
    kinds = {story.kind: story.title for story in stories}
    if len(kinds) > 1:
        told = ", ".join(f"{title} of {kind}" for kind, title in kinds.items())
        raise ParameterError(f"runs of one kind can be compared, got {told}: make a report of each kind")


def differences(stories: Sequence[Story]) -> str:
    """Return in which respects runs differ that make their figures mean different things; "" where these compare.

    Errors of predictions compare whatever was minimised, as long as the data is the same.
    """
    errors = all(story.objective_is_error and story.held_out for story in stories)
    found = []
    for name in () if errors else PROBLEM:
        values = dict.fromkeys(words.setting(story.parameters.get(name)) for story in stories)
        if len(values) > 1:
            found.append(f"{name} ({', '.join(values)})")
    if len({story.fingerprint for story in stories}) > 1:
        found.append("data")
    return ", ".join(found[:-1]) + (" and " if len(found) > 1 else "") + "".join(found[-1:])
