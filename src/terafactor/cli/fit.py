"""``terafactor fit`` and ``terafactor resume``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terafactor._format import counted, duration, printable
from terafactor.cli.cluster import connected
from terafactor.cli.config import Config
from terafactor.cli.options import (
    CHECKPOINTS,
    CLUSTER,
    DICTIONARY,
    Columns,
    Drop,
    Holdout,
    Json,
    RunFolder,
    Source,
    Values,
    offering,
    some,
)
from terafactor.cli.parsing import column_selection, parse_holdout
from terafactor.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

FIT_EXAMPLE = "Example: terafactor fit X.npy -k 70 --penalty l2 --constraint l1 --out run/"
RESUME_EXAMPLE = "Example: terafactor resume run/ --epochs 4"


@offering(parameters=DICTIONARY, checkpoints=CHECKPOINTS, cluster=CLUSTER)
def fit(
    source: Source,
    out: RunFolder,
    parameters: Values,
    checkpoints: Values,
    cluster: Values,
    columns: Columns = None,
    drop: Drop = None,
    holdout: Holdout = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Learn a dictionary from a matrix and save it in a run directory, with checkpoints and a report."""
    from terafactor import MaskedDictionaryLearning

    selection = column_selection(columns, drop)
    data = {"source": source, **selection} if selection else source
    model = MaskedDictionaryLearning(**parameters)
    train_in_directory(model, data, out, checkpoints, as_json, cluster=cluster, holdout=holdout)
    show_held_out(out)


def show_held_out(run: Path) -> None:
    """Print how many rows or ratings of a new run are held out, if any are."""
    from terafactor.runs import RunDirectory

    config = RunDirectory(run).config()
    for unit, total in (("rows", config["data"]["shape"][0]), ("ratings", config["data"].get("ratings"))):
        if n_held_out := config["holdout"].get(unit):
            text = f"held out {n_held_out:,} of {total:,} {unit} for evaluation: --holdout 0 learns from all"
            typer.echo(text, err=True)


@offering(
    changes=some(DICTIONARY, "n_epochs", "tol", "max_time", "n_threads", default=None),
    checkpoints=CHECKPOINTS,
    cluster=CLUSTER,
)
def resume(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory of an earlier fit.", exists=True, file_okay=False)
    ],
    changes: Values,
    checkpoints: Values,
    cluster: Values,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="New location of the data, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest checkpoint. The result is the same as without an interruption.

    --epochs and --max-time count from the beginning of the run; by default, they keep their values.
    """
    from terafactor.runs import RunDirectory

    estimator, stored = stored_estimator(run)
    _, was_complete = RunDirectory(run).latest()
    estimator.set_params(**{name: value for name, value in changes.items() if value is not None})
    data = stored if source is None else moved(stored, source)
    if data is None:
        raise typer.BadParameter(f"{run} learned from an array in memory: pass --source, or use terafactor.train")
    train_in_directory(
        estimator, data, run, checkpoints, as_json, cluster=cluster, resume=True, was_complete=was_complete
    )


def stored_estimator(run: Path) -> tuple[Any, Any]:
    """Return the estimator described by the configuration of a run, and the address of its data."""
    from terafactor.runs import RunDirectory
    from terafactor.training.model_file import make_estimator

    config = RunDirectory(run).config()
    estimator = make_estimator(config.get("kind"), config["parameters"])
    store = getattr(estimator, "store", None)
    if store and not os.path.lexists(store) and not Path(store).resolve().is_relative_to(run.resolve()):
        raise DataError(
            f"{run} used the packed store {store}, which does not exist: restore it, or start a new run (resume does "
            "not write outside of the run directory)"
        )
    return estimator, config["data"].get("source")


def moved(stored: Any, source: str) -> Any:
    """Return the address of data that moved to ``source``, with the columns that the run selected."""
    return {**stored, "source": source} if isinstance(stored, Mapping) and "source" in stored else source


def train_in_directory(
    estimator: Any,
    data: Any,
    run: Path,
    checkpoints: Values,
    as_json: bool,
    *,
    cluster: Values | None = None,
    resume: bool = False,
    was_complete: bool = False,
    holdout: str | None = None,
) -> None:
    """Train in a run directory, with progress on standard error, and print the result.

    was_complete: whether the run to resume had ended.
    """
    from rich.console import Console

    from terafactor import CheckpointPolicy, train
    from terafactor.runs import RunDirectory
    from terafactor.runs.metrics import read_metrics

    console, policy, amount = Console(stderr=True), CheckpointPolicy(**checkpoints), parse_holdout(holdout)
    before = read_metrics(RunDirectory(run).metrics_file) if was_complete else []
    with connected(cluster or {}) as client:
        if client is not None:
            from terafactor.dask import on_cluster

            estimator = on_cluster(estimator, client)
        train(estimator, data, run, resume=resume, holdout=amount, checkpoints=policy, console=console)
    nothing_done = bool(before) and before[-1].step == estimator.history_[-1].step
    print_result(estimator, run, console, as_json, nothing_done)


def print_result(estimator: Any, run: Path, console: Console, as_json: bool, nothing_done: bool = False) -> None:
    """Print what stopped a run, its last evaluation and the location of the model.

    nothing_done: whether the run was complete before.
    """
    last = estimator.history_[-1]
    if as_json:
        facts = {"run": str(run), "model": str(run / "model"), "stopped_by": estimator.stopped_by_}
        typer.echo(json.dumps(facts | {"steps": last.step, "seconds": last.seconds, "objective": last.objective}))
        return
    parts = [f"done: {counted(last.step, 'step')} in {duration(last.seconds)}"]
    if nothing_done:
        parts = ["the run is complete: nothing to do (--epochs or --tol continue it)"]
    if last.objective is not None:
        parts.append(f"{estimator._task().objective_name} {last.objective:.6g}")
    if getattr(estimator, "alpha", None) == "auto":
        parts.append(f"alpha {estimator.alpha_:.4g}")
    if progress := getattr(estimator, "progress_", ""):
        parts.append(progress)
    text = f"{', '.join(parts)}; model in {printable(run / 'model')}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
