"""``--config``: options from a TOML file, or from the configuration of a run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor.cli.options import OPTIONS, RUN


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
    values = {OPTIONS.get(name, name): ball_text(name, value) for name, value in config["parameters"].items()}
    if "seed" in config:
        values["seed"] = config["seed"]
    if isinstance(values.get("column"), dict):
        values["column"] = [f"{role}={name}" for role, name in values["column"].items()]
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
