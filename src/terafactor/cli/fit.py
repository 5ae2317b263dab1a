"""``terafactor fit`` and ``terafactor resume``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terafactor.cli.options import (
    PROBLEM,
    Alpha,
    BatchSize,
    CheckpointSeconds,
    CheckpointSteps,
    Components,
    Config,
    Constraint,
    Epochs,
    Forgetting,
    Holdout,
    Json,
    KeepEvery,
    MaxTime,
    Missing,
    Penalty,
    Projection,
    Reduction,
    RunFolder,
    Seed,
    Source,
    Statistics,
    Threads,
    Tol,
    parse_auto,
    parse_constraint,
    parse_holdout,
    parse_penalty,
)

if TYPE_CHECKING:
    from rich.console import Console

FIT_EXAMPLE = "Example: terafactor fit X.npy -k 70 --penalty l2 --constraint l1 --out run/"
RESUME_EXAMPLE = "Example: terafactor resume run/ --epochs 4"


def fit(
    source: Source,
    out: RunFolder,
    components: Components = 20,
    alpha: Alpha = "auto",
    penalty: Penalty = "l1",
    constraint: Constraint = "l2",
    positive_code: Annotated[
        bool, typer.Option("--positive-code", rich_help_panel=PROBLEM, help="Codes >= 0.")
    ] = False,
    positive_dict: Annotated[
        bool, typer.Option("--positive-dict", rich_help_panel=PROBLEM, help="Atoms >= 0.")
    ] = False,
    missing: Missing = None,
    reduction: Reduction = "1",
    statistics: Statistics = "auto",
    projection: Projection = "masked",
    batch_size: BatchSize = "auto",
    epochs: Epochs = "auto",
    forgetting: Forgetting = "auto",
    tol: Tol = "auto",
    max_time: MaxTime = None,
    seed: Seed = None,
    holdout: Holdout = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    checkpoint_steps: CheckpointSteps = None,
    keep_every: KeepEvery = None,
    threads: Threads = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Learn a dictionary from a matrix, in a run directory that can be watched, stopped and resumed."""
    from terafactor import CheckpointPolicy, MaskedDictionaryLearning

    estimator = MaskedDictionaryLearning(
        components,
        alpha=parse_auto("alpha", alpha),
        penalty=parse_penalty(penalty),
        constraint=parse_constraint(constraint),
        positive_code=positive_code,
        positive_dict=positive_dict,
        missing=missing,
        reduction=parse_auto("reduction", reduction),
        statistics=statistics,
        projection=projection,
        batch_size=parse_auto("batch-size", batch_size, int),
        n_epochs=parse_auto("epochs", epochs),
        forgetting=parse_auto("forgetting", forgetting),
        tol=parse_auto("tol", tol),
        max_time=max_time,
        random_state=seed,
        n_threads=threads,
    )
    policy = CheckpointPolicy(checkpoint_seconds, checkpoint_steps, keep_every=keep_every)
    train_and_tell(estimator, source, out, as_json, holdout=parse_holdout(holdout), checkpoints=policy)


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory of an earlier fit.", exists=True, file_okay=False)],
    epochs: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Go on to so many passes in all; auto: until settled.")
    ] = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds in all.")] = None,
    tol: Annotated[
        str | None, typer.Option(metavar="T|auto", help="Stop when doubling the rows gains less; 0 never.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where the data is now, if it moved.")] = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    checkpoint_steps: CheckpointSteps = None,
    keep_every: KeepEvery = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Go on with a run from its newest checkpoint, to the same bits as if it had not been interrupted."""
    from terafactor import CheckpointPolicy

    estimator, stored = stored_estimator(run)
    changes = {
        "n_epochs": None if epochs is None else parse_auto("epochs", epochs),
        "tol": None if tol is None else parse_auto("tol", tol),
        "max_time": max_time,
        "n_threads": threads,
    }
    estimator.set_params(**{name: value for name, value in changes.items() if value is not None})
    data = source or stored
    if data is None:
        raise typer.BadParameter(f"{run} learned from an array in memory: say --source, or use terafactor.train")
    policy = CheckpointPolicy(checkpoint_seconds, checkpoint_steps, keep_every=keep_every)
    train_and_tell(estimator, data, run, as_json, resume=True, checkpoints=policy)


def stored_estimator(run: Path) -> tuple[Any, Any]:
    """Return the estimator that the configuration of a run describes, and the name of its data."""
    from terafactor.runs import RunDirectory
    from terafactor.training.model_file import unfitted

    config = RunDirectory(run).config()
    return unfitted(config.get("kind"), config["parameters"]), config["data"].get("source")


def train_and_tell(estimator: Any, data: Any, run: Path, as_json: bool, **how: Any) -> None:
    """Train in a run directory, shown on standard error, and say how it ended; ``how`` goes to ``train``."""
    from rich.console import Console

    from terafactor import train

    console = Console(stderr=True)
    train(estimator, data, run, console=console, **how)
    tell_end(estimator, run, console, as_json)


def tell_end(estimator: Any, run: Path, console: Console, as_json: bool) -> None:
    """Say how a run ended and where the model is."""
    last = estimator.history_[-1]
    if as_json:
        facts = {"run": str(run), "model": str(run / "model"), "stopped_by": estimator.stopped_by_}
        typer.echo(json.dumps(facts | {"steps": last.step, "seconds": last.seconds, "objective": last.objective}))
        return
    objective = "" if last.objective is None else f", held-out objective {last.objective:.6g}"
    alpha = f", alpha {estimator.alpha_:.4g}" if getattr(estimator, "alpha", None) == "auto" else ""
    progress = getattr(estimator, "progress_", "")
    text = f"done: {last.step:,} steps in {last.seconds:.1f} s{objective}{alpha}{progress and f', {progress}'}"
    text += f"; model in {run / 'model'}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
