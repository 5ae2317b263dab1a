"""Notices about a run: problems that its results show, and remedies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from terafactor import _format
from terafactor._typing import Array
from terafactor.report.context import ReportContext

STILL_FALLING = 0.01
"""Relative decrease over the last fifth of the rows above which more epochs would help."""

BEYOND_CHANCE = 3.0
"""A change counts if it exceeds this many standard errors, so that noise on a flat curve is ignored."""

DUPLICATE_CORRELATION = 0.95
"""Absolute cosine above which two atoms count as copies."""

WANTED_VISITS = 30
"""Number of steps in which masked statistics should see each feature."""


@dataclass(frozen=True)
class Notice:
    """A problem or a hint, with a remedy."""

    what: str
    """What was found: a sentence."""

    remedy: str = ""
    """What to do about it: a sentence."""


def notices(context: ReportContext) -> list[Notice]:
    """Return the notices about a run, the most serious first."""
    checks = [check for check in CHECKS if not (context.advice and check in SYMPTOMS)]
    found = [check(context) for check in checks]
    advice = [f"{text[0].upper()}{text[1:]}." for text in context.advice]
    return [*(notice for notice in found if notice is not None), *map(Notice, (*advice, *context.warnings))]


def not_finite(context: ReportContext) -> Notice | None:
    """The model holds NaN or infinity."""
    if context.components is None or np.isfinite(context.components.sum()):
        return None
    return Notice("Atoms contain NaN or infinity.", "Check the data for huge values, and scale its features.")


def ended_early(context: ReportContext) -> Notice | None:
    """Something other than the last epoch ended the run."""
    if context.stopped_by in (None, "n_epochs", "tol"):  # a fit should end by "tol"
        return None
    max_time = context.parameters.get("max_time")
    known = {
        "max_time": Notice(
            f"The time limit ended the run before the last epoch (max_time={_format.setting(max_time)} s).",
            "Resume the run with a larger max_time.",
        ),
        "interrupt": Notice("The run was interrupted.", "The model is usable; resume the run to finish it."),
        "SIGINT": Notice("The run was interrupted by Ctrl-C.", "Resume it to finish it."),
        "callback": Notice("A callback stopped the run before the last epoch."),
    }
    stopped = Notice(f"The run was stopped by {context.stopped_by}.", "Resume it to finish it.")
    return known.get(context.stopped_by or "", stopped)


def all_codes_zero(context: ReportContext) -> Notice | None:
    """The penalty sets all codes to zero."""
    if context.sample is None or context.sample.codes.any():
        return None
    return Notice(
        "All codes are zero: the penalty is too strong for these rows.",
        f"Lower alpha{_now(context, 'alpha')}.",
    )


def unused_atoms(context: ReportContext) -> Notice | None:
    """No row uses some of the atoms."""
    if context.sample is None or not context.sample.codes.any():
        return None
    unused, total = int((context.sample.usage == 0).sum()), len(context.sample.usage)
    if unused == 0:
        return None
    return Notice(
        f"No row in a sample of {len(context.sample.codes):,} uses {unused:,} of the {total:,} atoms.",
        f"Lower alpha{_now(context, 'alpha')} to use more atoms, or n_components to learn fewer; "
        "a small sample may miss rare atoms.",
    )


def still_falling(context: ReportContext) -> Notice | None:
    """The objective was still decreasing at the end."""
    if context.running or len(context.known_progress) < 3 or context.known_progress[-1] == 0:
        return None
    samples, values, chance = _smoothed(context)
    first, last = np.interp([0.8 * samples[-1], samples[-1]], samples, values)
    if first - last < max(STILL_FALLING * abs(first), chance):
        return None
    fall = (first - last) / max(abs(first), np.finfo(float).tiny)
    return Notice(
        f"Not converged: the {context.progress_name} fell by {_format.percent(fall)} over the last fifth of the rows.",
        f"Raise n_epochs{_now(context, 'n_epochs')}.",
    )


def rose(context: ReportContext) -> Notice | None:
    """The held-out objective ended clearly above its lowest value."""
    if not context.held_out or len(context.known_progress) < 3 or still_falling(context):
        return None
    _, values, chance = _smoothed(context)
    lowest = values.min()
    if values[-1] - lowest <= max(STILL_FALLING * abs(lowest), chance):
        return None
    rise = (values[-1] - lowest) / abs(lowest)
    larger = "" if context.parameters.get("alpha") is None else " a larger alpha,"
    return Notice(
        f"The {context.objective_name} ended {_format.percent(float(rise))} above its lowest value.",
        f"The model may overfit its rows: use fewer atoms,{larger} or more rows.",
    )


def _smoothed(context: ReportContext) -> tuple[Array, Array, float]:
    """Return rows seen and progress, smoothed over a fifth of the figures, and the size of random changes."""
    samples = np.array([line.n_samples for line in context.history])[np.isfinite(context.progress)]
    values = context.known_progress
    width = max(1, len(values) // 5)
    chance = BEYOND_CHANCE * np.diff(values[-2 * width :]).std() / np.sqrt(width)
    samples, values = (np.convolve(each, np.full(width, 1 / width), "valid") for each in (samples, values))
    return samples, values, float(chance)


def few_visits(context: ReportContext) -> Notice | None:
    """Masked statistics have seen each feature in too few steps."""
    if context.running or context.feature_visits is None or context.feature_visits >= WANTED_VISITS:
        return None
    full = ', or use statistics="full" in RandomMasks' if "statistics" in context.parameters else ""
    return Notice(
        f"Each feature was seen in {_format.number(context.feature_visits)} steps on average; masked statistics need "
        f"about {WANTED_VISITS}.",
        f"Raise n_epochs, or lower reduction or batch_size{full}.",
    )


def unseen_features(context: ReportContext) -> Notice | None:
    """No step has seen some of the features."""
    if context.running or context.n_unseen_features == 0:
        return None
    return Notice(
        f"Features that no step has seen: {context.n_unseen_features:,}. They keep their initial values.",
        "Raise n_epochs, lower reduction, or drop features without values.",
    )


def alike_atoms(context: ReportContext) -> Notice | None:
    """Some atoms nearly duplicate others."""
    if context.components is None or len(context.components) < 2:
        return None
    cosines = np.abs(context.similarity.cosines)
    copies = int((np.triu(cosines, 1).max(axis=0) > DUPLICATE_CORRELATION).sum())
    if copies == 0:
        return None
    return Notice(
        f"Atoms that nearly duplicate another one (correlation above {DUPLICATE_CORRELATION}): {copies:,}.",
        f"Lower n_components{_now(context, 'n_components')}: fewer atoms would fit as well.",
    )


def _now(context: ReportContext, name: str) -> str:
    value = context.parameters.get(name)
    return "" if value is None else f" (now {_format.setting(value)})"


CHECKS: tuple[Callable[[ReportContext], Notice | None], ...] = (
    not_finite,
    ended_early,
    all_codes_zero,
    still_falling,
    rose,
    few_visits,
    unseen_features,
    unused_atoms,
    alike_atoms,
)

SYMPTOMS = (all_codes_zero, unused_atoms, alike_atoms)
"""Checks that are skipped if the fit has warnings, because these name the cause, such as the scale of a column."""
