"""``terafactor fit`` and ``terafactor resume``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terafactor.cli.config import Config
from terafactor.cli.options import CHECKPOINTS, DICTIONARY, Holdout, Json, RunFolder, Source, Values, offering, some
from terafactor.cli.reading import parse_holdout

if TYPE_CHECKING:
    from rich.console import Console

FIT_EXAMPLE = "Example: terafactor fit X.npy -k 70 --penalty l2 --constraint l1 --out run/"
RESUME_EXAMPLE = "Example: terafactor resume run/ --epochs 4"


@offering(parameters=DICTIONARY, checkpoints=CHECKPOINTS)
def fit(
    source: Source,
    out: RunFolder,
    parameters: Values,
    checkpoints: Values,
    holdout: Holdout = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Learn a dictionary from a matrix, in a run directory that can be watched, stopped and resumed."""
    from terafactor import MaskedDictionaryLearning

    train_and_tell(MaskedDictionaryLearning(**parameters), source, out, checkpoints, as_json, holdout=holdout)


@offering(changes=some(DICTIONARY, "n_epochs", "tol", "max_time", "n_threads", default=None), checkpoints=CHECKPOINTS)
def resume(
    run: Annotated[Path, typer.Argument(help="Run directory of an earlier fit.", exists=True, file_okay=False)],
    changes: Values,
    checkpoints: Values,
    source: Annotated[str | None, typer.Option(help="Where the data is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Go on with a run from its newest checkpoint, to the same bits as if it had not been interrupted.

    --epochs and --max-time count from the beginning of the run.
    """
    estimator, stored = stored_estimator(run)
    estimator.set_params(**{name: value for name, value in changes.items() if value is not None})
    data = source or stored
    if data is None:
        raise typer.BadParameter(f"{run} learned from an array in memory: say --source, or use terafactor.train")
    train_and_tell(estimator, data, run, checkpoints, as_json, resume=True)


def stored_estimator(run: Path) -> tuple[Any, Any]:
    """Return the estimator that the configuration of a run describes, and the name of its data."""
    from terafactor.runs import RunDirectory
    from terafactor.training.model_file import make_estimator

    config = RunDirectory(run).config()
    return make_estimator(config.get("kind"), config["parameters"]), config["data"].get("source")


def train_and_tell(
    estimator: Any,
    data: Any,
    run: Path,
    checkpoints: Values,
    as_json: bool,
    *,
    resume: bool = False,
    holdout: str | None = None,
) -> None:
    """Train in a run directory, shown on standard error, and say how it ended."""
    from rich.console import Console

    from terafactor import CheckpointPolicy, train

    console, policy, amount = Console(stderr=True), CheckpointPolicy(**checkpoints), parse_holdout(holdout)
    train(estimator, data, run, resume=resume, holdout=amount, checkpoints=policy, console=console)
    tell_end(estimator, run, console, as_json)


def tell_end(estimator: Any, run: Path, console: Console, as_json: bool) -> None:
    """Say how a run ended and where the model is."""
    from terafactor._format import duration

    last = estimator.history_[-1]
    if as_json:
        facts = {"run": str(run), "model": str(run / "model"), "stopped_by": estimator.stopped_by_}
        typer.echo(json.dumps(facts | {"steps": last.step, "seconds": last.seconds, "objective": last.objective}))
        return
    objective = "" if last.objective is None else f", held-out objective {last.objective:.6g}"
    alpha = f", alpha {estimator.alpha_:.4g}" if getattr(estimator, "alpha", None) == "auto" else ""
    progress = getattr(estimator, "progress_", "")
    steps = "1 step" if last.step == 1 else f"{last.step:,} steps"
    text = f"done: {steps} in {duration(last.seconds)}{objective}{alpha}{progress and f', {progress}'}"
    text += f"; model in {run / 'model'}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
