"""The report of a run from what is in its directory."""

from __future__ import annotations

import logging
from copy import copy
from pathlib import Path
from typing import Any

from terafactor.errors import DataError, TerafactorError
from terafactor.report import ReportContext, write_report
from terafactor.report.reporting import run_details
from terafactor.runs.artifact import Artifact, read_artifact
from terafactor.runs.checkpoint import newest
from terafactor.runs.directory import RunDirectory
from terafactor.runs.metrics import read_metrics
from terafactor.runs.parameters import from_plain
from terafactor.training.model_file import restored

logger = logging.getLogger("terafactor")


def report_runs(
    *directories: Path | str,
    path: Path | str | None = None,
    title: str | None = None,
    geometry: tuple[int, ...] | None = None,
) -> Path:
    """Write the report of a run anew, or one page that draws several on the same axes; return its path.

    Parameters
    ----------
    *directories : paths
        Run directories, of runs that are done, interrupted or going on.
    path : path, optional
        The HTML file. By default ``report.html`` of the only run, or ``report.html`` here for several.
    title : str, optional
        What the page is called.
    geometry : tuple of int, optional
        Shape of a row as a picture, (height, width) or (height, width, 3), where the data does not tell.
    """
    if path is None:
        path = RunDirectory(directories[0]).report_file if len(directories) == 1 else Path("report.html")
    contexts = [context_of_run(directory, Path(path).parent) for directory in directories]
    if geometry is not None:
        contexts = [context.shaped(geometry) for context in contexts]
    return write_report(path, *contexts, title=title)


def context_of_run(directory: Path | str, folder: Path | None = None) -> ReportContext:
    """Return what the report of a run is made from. folder: where it will be, to link to what is there.

    Rows are read again where the configuration names a file; where that fails, a warning in the page and in the log
    says so.
    """
    run = RunDirectory(Path(directory).absolute())
    config, history, running = run.config(), read_metrics(run.metrics_file), run.in_use
    artifact, finished = _latest(run)
    details = run_details(config) | {"title": run.path.name, "history": history}
    if running:
        details["stopped_by"] = None
    elif not finished:
        details["stopped_by"] = "interrupt"
    if artifact is None:
        return ReportContext(
            kind=config.get("kind", "run"), parameters=from_plain(config.get("parameters", {})), **details
        )
    estimator = restored(artifact)
    if finished and folder is not None and folder.absolute() == run.path:
        estimator._link(run.path)
    rows, missing = _rows(estimator, config) if estimator._task().shows_rows else (None, None)
    if missing is not None:
        logger.warning("the report of %s has less in it than it could: %s", run.path, missing)
    return estimator._report_context(rows, warnings=[] if missing is None else [missing], **details)


def _latest(run: RunDirectory) -> tuple[Artifact | None, bool]:
    """Return the newest state of a run, None before its first checkpoint, and whether it is that of its end."""
    place, finished = run.latest()
    if place is not None and finished:
        return read_artifact(place), True
    checkpoint = newest(run.checkpoints)  # that is whole
    return None if checkpoint is None else checkpoint[1], False


def _rows(estimator: Any, config: dict[str, Any]) -> tuple[Any, str | None]:
    """Return the rows to show, those held out where some were, or None and what is missing for it and why."""
    source, lacking = config["data"].get("source"), "neither use nor reconstruction of rows is shown"
    if source is None:
        return None, f"The data was in memory and is not at hand, so {lacking}."
    try:
        task = copy(estimator)._task()  # what it sets may not fit the model, if the data is another by now
        data = task.open_data(source)
        found = task.describe_data(data).get("fingerprint")
        if found != config["data"].get("fingerprint"):
            raise DataError("it is other data than the run learned from")
        _, held_out, _ = task.hold_out(data, config.get("holdout", 0), config["seed"])
    except (TerafactorError, OSError) as error:
        return None, f"The data could not be read again, so {lacking}: {error}"
    return data if held_out is None else held_out, None
