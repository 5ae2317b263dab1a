"""Render report contexts as one self-contained page."""

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
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment, static
from terafactor.report.panel import Panel
from terafactor.report.panels import panels_of

REFRESH_SECONDS = 10
"""Interval at which the page of a running fit reloads itself."""

SCRIPTS = ("uPlot.js", "report.js")
STYLES = ("uPlot.css", "report.css")

STATES = {
    None: "running",
    "n_epochs": "finished",
    "tol": "finished: converged",
    "max_time": "stopped: time limit reached",
    "callback": "stopped by a callback",
    "interrupt": "interrupted",
    "SIGINT": "interrupted by Ctrl-C",
}


def write_report(path: str | Path, *contexts: ReportContext, title: str | None = None) -> Path:
    """Write the page of one run, or of several on the same axes; return its path.

    The file is replaced atomically: a browser never reads half a page.

    Examples
    --------
    >>> import tempfile
    >>> from terafactor.report import ReportContext, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(f"{folder}/out.html", ReportContext(title="first run", kind="Example")).name
    'out.html'
    """
    path = Path(path)
    write_durably(path, render(contexts, title).encode("utf-8"))
    return path


def render(contexts: Sequence[ReportContext], title: str | None = None) -> str:
    """Return the page of one run, or of several on the same axes."""
    if not contexts:
        raise ParameterError("a report needs at least one run, got none")
    check_kinds(contexts)
    if len(contexts) > 1 and any(context.held_out for context in contexts):
        contexts = [replace(context, compared_on_held_out=True) for context in contexts]
    scripts = [static(name) for name in SCRIPTS]
    now = datetime.now(UTC)
    return fragment(
        static("page.html"),
        title=title or _title(contexts),
        kind=contexts[0].kind,
        state=_state(contexts),
        running=any(context.running for context in contexts),
        refresh=REFRESH_SECONDS,
        written=now.strftime("%Y-%m-%d %H:%M:%S UTC"),
        written_seconds=int(now.timestamp()),
        version=version("terafactor"),
        sections=_sections(contexts),
        styles=[static(name) for name in STYLES],
        scripts=scripts,
        license=static("uPlot.LICENSE.txt"),
        script_hashes=" ".join(map(_policy_hash, scripts)),
    )


def _sections(contexts: Sequence[ReportContext]) -> list[tuple[Panel, str]]:
    """Return the panels that apply, with their content."""
    drawn = []
    for panel in panels_of(contexts):
        shown = [context for context in contexts if panel.of(context).applies(context)]
        if shown:
            drawn.append((panel, panel.draw(shown[0]) if len(contexts) == 1 else panel.compare(shown)))
    return drawn


def _title(contexts: Sequence[ReportContext]) -> str:
    return contexts[0].title if len(contexts) == 1 else f"{len(contexts)} runs compared"


def _state(contexts: Sequence[ReportContext]) -> str:
    if len(contexts) > 1:
        n_running = sum(context.running for context in contexts)
        return f"{len(contexts)} runs" + (f", {n_running} running" if n_running else "")
    reason = contexts[0].stopped_by
    return STATES.get(reason, f"stopped by {reason}")


def _policy_hash(script: str) -> str:
    """Return the hash by which the content security policy of the page allows a script."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
