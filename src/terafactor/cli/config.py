"""``--config``: options from a TOML file or from the configuration of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor._format import printable
from terafactor.cli.options import OPTION_OF, RUN
from terafactor.cli.parsing import join_names
from terafactor.errors import TerafactorError


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the values in a TOML file as defaults of the options of a command.

    The file contains names of options or parameters (``components = 70`` or ``n_components = 70``), or is the
    config.toml of a run.
    """
    if path is None:
        return None
    try:
        values = _read(path)
    except TerafactorError as error:
        raise typer.BadParameter(printable(str(error))) from error
    known = {parameter.name for parameter in context.command.params}
    if "parameters" in values:
        values = _run_options(values, known)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    values = {name if name in known else OPTION_OF.get(name, name): value for name, value in values.items()}
    for name in {"columns", "drop"} & values.keys():
        if isinstance(values[name], list):
            values[name] = join_names(values[name])
    unknown = sorted(set(values) - known)
    if unknown:
        raise typer.BadParameter(printable(f"{path} has settings that are not options: {', '.join(unknown)}"))
    context.default_map = dict(context.default_map or {}) | values
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML file with options, or config.toml of a run.",
        callback=read_config,
        is_eager=True,
        exists=True,
        dir_okay=False,
        rich_help_panel=RUN,
    ),
]


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file, whose tables are checked if it is the configuration of a run."""
    from terafactor.runs.directory import CONFIG, read_toml
    from terafactor.runs.schema import check_document

    config = read_toml(path)
    if "parameters" in config:
        tables = {name: CONFIG[name] for name in ("data", "holdout", "parameters")}
        check_document({"data": {}} | config, tables, str(path))
    return config


def _run_options(config: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Return the options for the stored configuration of a run."""
    values = {OPTION_OF.get(name, name): _as_text(value) for name, value in config["parameters"].items()}
    if "seed" in config:
        values["seed"] = config["seed"]
    if isinstance(values.get("column"), dict):
        values["column"] = [f"{role}={name}" for role, name in values["column"].items()]
    if values.get("store") is False:
        values["no_pack"] = not values.pop("store")
    if "cleaning" in known:  # masker options are passed as --set
        others = [name for name in values if name not in known]
        values["cleaning"] = [f"{name}={json.dumps(values.pop(name))}" for name in others]
    values["holdout"] = str(config.get("holdout", {}).get("amount", ""))
    source = config.get("data", {}).get("source")
    if isinstance(source, dict):
        return values | source
    return values if source is None else values | {"source": source}


def _as_text(value: Any) -> Any:
    """Return a stored penalty or constraint as the text that its option takes; other values unchanged."""
    if not (isinstance(value, dict) and isinstance(value.get("type"), str)):
        return value
    from terafactor.problem.registry import option_name

    fields = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items() if name != "type"}
    return f"{option_name(value['type'])}:{','.join(f'{name}={part!r}' for name, part in fields.items())}"
