"""From stories to one self-contained page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from terafactor._durable import write_durably
from terafactor.errors import ParameterError
from terafactor.report.comparison import check_kinds
from terafactor.report.markup import fragment, static
from terafactor.report.panel import Panel
from terafactor.report.panels import panels_of
from terafactor.report.story import Story

REFRESH_SECONDS = 10
"""How often the page of a run that goes on looks for a newer one."""

SCRIPTS = ("uPlot.js", "report.js")
STYLES = ("uPlot.css", "report.css")

STATES = {
    None: "running",
    "n_epochs": "finished",
    "tol": "finished: settled",
    "max_time": "stopped: time was up",
    "callback": "stopped by a callback",
    "interrupt": "interrupted",
}


def write_report(path: str | Path, *stories: Story, title: str | None = None) -> Path:
    """Write the page of one run, or of several on the same axes; return its path.

    The file is replaced at once, so that a browser never reads half a page.
    """
    path = Path(path)
    write_durably(path, render(stories, title).encode("utf-8"))
    return path


def render(stories: Sequence[Story], title: str | None = None) -> str:
    """Return the page of one run, or of several on the same axes."""
    if not stories:
        raise ParameterError("a report needs at least one run, got none")
    check_kinds(stories)
    if len(stories) > 1 and any(story.held_out for story in stories):
        stories = [replace(story, beside_held_out=True) for story in stories]
    scripts = [static(name) for name in SCRIPTS]
    now = datetime.now(UTC)
    return fragment(
        static("page.html"),
        title=title or _title(stories),
        kind=stories[0].kind,
        state=_state(stories),
        running=any(story.running for story in stories),
        refresh=REFRESH_SECONDS,
        written=now.strftime("%Y-%m-%d %H:%M:%S UTC"),
        written_seconds=int(now.timestamp()),
        version=version("terafactor"),
        sections=_sections(stories),
        styles=[static(name) for name in STYLES],
        scripts=scripts,
        licence=static("uPlot.LICENSE.txt"),
        script_hashes=" ".join(map(_policy_hash, scripts)),
    )


def _sections(stories: Sequence[Story]) -> list[tuple[Panel, str]]:
    """Return the panels that have something to draw, with what they drew."""
    drawn = []
    for panel in panels_of(stories):
        shown = [story for story in stories if panel.of(story).applies(story)]
        if shown:
            drawn.append((panel, panel.draw(shown[0]) if len(stories) == 1 else panel.compare(shown)))
    return drawn


def _title(stories: Sequence[Story]) -> str:
    return stories[0].title if len(stories) == 1 else f"{len(stories)} runs compared"


def _state(stories: Sequence[Story]) -> str:
    if len(stories) > 1:
        n_running = sum(story.running for story in stories)
        return f"{len(stories)} runs" + (f", {n_running} running" if n_running else "")
    reason = stories[0].stopped_by
    return STATES.get(reason, f"stopped by {reason}")


def _policy_hash(script: str) -> str:
    """Return what allows a script in the content security policy of the page, and no other."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
