"""Reports of runs, from their directories."""

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
from terafactor.training.model_file import restore_estimator

logger = logging.getLogger("terafactor")


def report_runs(
    *directories: Path | str,
    path: Path | str | None = None,
    title: str | None = None,
    geometry: tuple[int, ...] | None = None,
) -> Path:
    """Write the report of a run, or one page that compares several on the same axes; return its path.

    Parameters
    ----------
    *directories : paths
        Run directories, of runs that are done, interrupted or running.
    path : path, optional
        The HTML file. By default ``report.html`` in the directory of a single run, or in the current directory for
        several.
    title : str, optional
        Title of the page.
    geometry : tuple of int, optional
        Shape of a row as a picture, (height, width) or (height, width, 3), if the data does not have it.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from terafactor import MaskedDictionaryLearning, report_runs, train
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(MaskedDictionaryLearning(3, random_state=0), X, f"{folder}/run")
    ...     report_runs(f"{folder}/run").name
    'report.html'
    """
    if path is None:
        path = RunDirectory(directories[0]).report_file if len(directories) == 1 else Path("report.html")
    contexts = [read_context(directory, Path(path).parent) for directory in directories]
    if geometry is not None:
        contexts = [context.shaped(geometry) for context in contexts]
    return write_report(path, *contexts, title=title)


def read_context(directory: Path | str, folder: Path | None = None) -> ReportContext:
    """Return the report context of a run. folder: where the report will be, for links to the files there.

    Rows are read again if the configuration names a file; if that fails, the page and the log have a warning.
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
    estimator = restore_estimator(artifact)
    if finished and folder is not None and folder.absolute() == run.path:
        estimator._link(run.path)
    rows, missing = _rows(estimator, config) if estimator._task().shows_rows else (None, None)
    if missing is not None:
        logger.warning("the report of %s is incomplete: %s", run.path, missing)
    return estimator._report_context(rows, warnings=[] if missing is None else [missing], **details)


def _latest(run: RunDirectory) -> tuple[Artifact | None, bool]:
    """Return the newest state of a run (None before its first checkpoint), and whether the run is finished."""
    path, finished = run.latest()
    if path is not None and finished:
        return read_artifact(path), True
    checkpoint = newest(run.checkpoints)  # latest() does not look for damage
    return None if checkpoint is None else checkpoint[1], False


def _rows(estimator: Any, config: dict[str, Any]) -> tuple[Any, str | None]:
    """Return the rows to show (held-out ones if there are some), or None and the reason, a sentence."""
    source, missing = config["data"].get("source"), "the report shows neither use nor reconstruction of rows"
    if source is None:
        return None, f"The data was an array in memory, so {missing}."
    try:
        task = copy(estimator)._task()  # opening other data may set attributes that do not fit the model
        data = task.open_data(source)
        found = task.describe_data(data).get("fingerprint")
        if found != config["data"].get("fingerprint"):
            raise DataError("it is not the data that the run learned from")
        _, held_out, _ = task.hold_out(data, config.get("holdout", 0), config["seed"])
    except (TerafactorError, OSError, LookupError, TypeError, ValueError) as error:
        return None, f"The data could not be read again, so {missing}: {error}"
    return data if held_out is None else held_out, None
