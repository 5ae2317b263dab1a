"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="A file, a quoted glob, a store, file.h5::/dataset, ...", show_default=False),
]
PROBLEM, SOLVER, RUN = "Problem", "Solver", "Run"
"""Panels of the help of commands that fit."""

RunFolder = Annotated[Path, typer.Option(help="Run directory; must be new.", rich_help_panel=RUN)]
Components = Annotated[int, typer.Option("--components", "-k", min=1, help="Atoms.", rich_help_panel=PROBLEM)]
Alpha = Annotated[
    str, typer.Option(metavar="A|auto", help="Strength of the penalty; auto fits the scale.", rich_help_panel=PROBLEM)
]
Penalty = Annotated[str, typer.Option(help="l1, l2 or elastic-net:RATIO.", rich_help_panel=PROBLEM)]
Constraint = Annotated[str, typer.Option(help="l1, l2 or elastic-net:RATIO.", rich_help_panel=PROBLEM)]
Missing = Annotated[
    Literal["nan", "absent"] | None, typer.Option(help="What stands for missing values.", rich_help_panel=PROBLEM)
]
Reduction = Annotated[
    str, typer.Option(metavar="R|auto", help="Features per step: one part in.", rich_help_panel=SOLVER)
]
Statistics = Annotated[
    Literal["auto", "full", "masked"], typer.Option(help="What steps learn from.", rich_help_panel=SOLVER)
]
Projection = Annotated[
    Literal["masked", "exact"], typer.Option(help="What of atoms is projected.", rich_help_panel=SOLVER)
]
BatchSize = Annotated[str, typer.Option(metavar="B|auto", help="Rows per step.", rich_help_panel=SOLVER)]
Epochs = Annotated[
    str, typer.Option(metavar="N|auto", help="Passes over the rows; auto: until settled.", rich_help_panel=SOLVER)
]
Forgetting = Annotated[
    str, typer.Option(metavar="W|auto", help="Step t weighs t^-W; auto: a growing window.", rich_help_panel=SOLVER)
]
Tol = Annotated[
    str, typer.Option(metavar="T|auto", help="Stop when doubling the rows gains less.", rich_help_panel=SOLVER)
]
MaxTime = Annotated[float | None, typer.Option(help="Stop after seconds.", rich_help_panel=SOLVER)]
Seed = Annotated[int | None, typer.Option(min=0, help="Same seed, same bits.", rich_help_panel=SOLVER)]
Holdout = Annotated[
    str | None,
    typer.Option(metavar="AMOUNT", help="Kept for evaluation: 500, 5%, '2 records'.", rich_help_panel=RUN),
]
CheckpointSeconds = Annotated[
    float, typer.Option(min=0.01, metavar="S", help="Seconds between checkpoints.", rich_help_panel=RUN)
]
CheckpointSteps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Steps between checkpoints, too.", rich_help_panel=RUN)
]
KeepEvery = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Keep every N-th by steps for good.", rich_help_panel=RUN)
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, metavar="N", help="By default one per core.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a TOML file give the values of options that the command line does not give.

    It has the names of the options (``components = 70``, ``batch_size = 40``), or is the config.toml of a run.
    """
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} cannot be read as TOML: {error}") from error
    known = {parameter.name for parameter in context.command.params}
    values = _of_run(values, known) if "parameters" in values else {k.replace("-", "_"): v for k, v in values.items()}
    unknown = sorted(set(values) - known)
    if unknown:
        raise typer.BadParameter(f"{path} has settings that are no options: {', '.join(unknown)}")
    context.default_map = dict(context.default_map or {}) | values
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML file with these options, or a run's config.toml.",
        callback=read_config,
        is_eager=True,
        exists=True,
        dir_okay=False,
        rich_help_panel=RUN,
    ),
]


def _of_run(config: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Return the options that the stored configuration of a run stands for."""
    renamed = {"n_components": "components", "n_epochs": "epochs", "random_state": "seed"}
    values = {renamed.get(name, name): ball_text(name, value) for name, value in config["parameters"].items()}
    if "seed" in config:
        values["seed"] = config["seed"]
    if isinstance(values.get("columns"), dict):
        values["column"] = [f"{role}={name}" for role, name in values.pop("columns").items()]
    if values.get("store") is False:
        values["no_pack"] = not values.pop("store")
    if "cleaning" in known:  # what images are read with has no options of its own
        others = [name for name in values if name not in known]
        values["cleaning"] = [f"{name}={json.dumps(values.pop(name))}" for name in others]
    values["holdout"] = str(config.get("holdout", {}).get("amount", ""))
    source = config.get("data", {}).get("source")
    if isinstance(source, dict):
        return values | source
    return values if source is None else values | {"source": source}


def parse_penalty(text: str) -> Any:
    """Return the penalty that "l1", "l2" or "elastic-net:0.5" names."""
    from terafactor import ElasticNet

    ratio = _ratio(text)
    return text if ratio is None else ElasticNet(ratio)


def parse_constraint(text: str) -> Any:
    """Return the ball that "l1", "l2" or "elastic-net:0.5" names."""
    from terafactor import NormBall

    ratio = _ratio(text)
    return text if ratio is None else NormBall("elastic-net", l1_ratio=ratio)


def ball_text(name: str, value: Any) -> Any:
    """Return the option that stands for a penalty or ball stored in a configuration; another value as it is."""
    if not (isinstance(value, dict) and "l1_ratio" in value):
        return value
    norm = value.get("norm", "elastic-net")
    text = norm if norm != "elastic-net" else f"elastic-net:{value['l1_ratio']}"
    if value.get("radius", 1) != 1 or value["positive"]:
        raise typer.BadParameter(
            f"the {name} of that run has more to it than --{name} {text} can say, {value}: "
            "change it in a copy of the file, or use terafactor.train"
        )
    return text


def _ratio(text: str) -> float | None:
    name, _, ratio = text.partition(":")
    if name != "elastic-net":
        return None
    try:
        return float(ratio or 0.5)
    except ValueError as error:
        raise typer.BadParameter(f"elastic-net:RATIO needs a number between 0 and 1, got {text!r}") from error


def parse_auto(name: str, text: str, kind: type = float) -> Any:
    """Return the number, or "auto", that is given for the option ``name``."""
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError as error:
        what = "an integer" if kind is int else "a number"
        raise typer.BadParameter(f"--{name} needs {what} or auto, got {text!r}") from error


def parse_holdout(text: str | None) -> Any:
    """Return the amount that "2000", "0.05", "5%" or "3 records" names, None for the default."""
    if text is None or text == "":
        return None
    number = text.removesuffix("%").strip()
    for kind in (int, float):
        try:
            return float(number) / 100 if text.endswith("%") else kind(number)
        except ValueError:
            continue
    return text
