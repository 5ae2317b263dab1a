"""``terafactor inspect``: a summary of a source, packed store, run, checkpoint or model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor._format import data_size, duration, printable
from terafactor.cli.options import Columns, Drop, Json
from terafactor.cli.parsing import column_selection

EXAMPLE = "Example: terafactor inspect run/"

LABELS = {
    "bytes": "size in memory",
    "bytes on disk": "size on disk",
    "row_bytes": "size of a row",
    "seconds": "training time",
    "atoms re-seeded": "atoms re-initialized",
    "kernels kept": "kernels in the cache",
}
"""Labels on the screen of names in the JSON output."""

OBJECTIVES = {"MatrixCompletion": "RMSE on held-out ratings"}
"""Names of what runs evaluate, by kind, if it is not the objective."""

SIZES = ("bytes", "bytes on disk", "bytes read", "peak memory", "row_bytes")
"""Names of values in bytes."""


INTERNAL = ("multipliers", "sizes", "idle_rows")
"""Arrays of a model that are in the JSON output only."""


def inspect(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A data file, packed store, run directory, checkpoint or model.")
    ],
    columns: Columns = None,
    drop: Drop = None,
    as_json: Json = False,
) -> None:
    """Summarize a data file, packed store, run directory, checkpoint or model."""
    facts = describe(path, **column_selection(columns, drop))
    if as_json:
        typer.echo(json.dumps(facts, default=str))
    else:
        show(path, facts)


def describe(path: str, **selection: list[str]) -> dict[str, dict[str, Any]]:
    """Return sections of names and values. selection: columns of a table, as ``open_source`` takes them."""
    from terafactor.runs import RunDirectory
    from terafactor.runs.artifact import MANIFEST

    run = RunDirectory(path)
    if run.is_run:
        return _describe_run(run)
    if (Path(path) / MANIFEST).is_file():
        return _describe_artifact(Path(path))
    return _describe_source(path, selection)


def _describe_run(run: Any) -> dict[str, dict[str, Any]]:
    from terafactor.runs.artifact import read_manifest
    from terafactor.runs.checkpoint import checkpoints
    from terafactor.runs.metrics import read_metrics

    config, history = run.config(), read_metrics(run.metrics_file)
    kept = [path.name for path in checkpoints(run.checkpoints)]
    progress: dict[str, Any] = {"state": _state(run), "checkpoints": ", ".join(kept) or "none"}
    if history:
        last = history[-1]
        objectives = [line.objective for line in history if line.objective is not None]
        progress |= {"steps": last.step, "rows seen": last.n_samples, "seconds": last.seconds}
        name = OBJECTIVES.get(config["kind"], "held-out objective")
        progress |= {"bytes read": last.bytes_read, name: objectives[-1] if objectives else None}
        progress |= {"peak memory": last.memory, "atoms re-seeded": last.n_reseeded}
    path, _ = run.latest()
    if path is not None and config["parameters"].get("alpha") == "auto":
        progress["alpha"] = read_manifest(path)["numbers"].get("alpha")
    return {
        "run": {"kind": config["kind"], "seed": config["seed"], **progress},
        "data": _flat(config["data"]),
        "held out": config.get("holdout", {}),
        "parameters": config["parameters"],
    }


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    """Return the description of data with the selected columns of a table as separate entries."""
    source = data.get("source")
    return data | source if isinstance(source, dict) and "source" in source else data


def _state(run: Any) -> str:
    if run.in_use:
        return "running"
    _, done = run.latest()
    return "done" if done else f"unfinished: continue with terafactor resume {run.path}"


def _describe_artifact(path: Path) -> dict[str, dict[str, Any]]:
    from terafactor.runs import read_artifact

    artifact = read_artifact(path)
    arrays = {name: f"{array.dtype} {array.shape}" for name, array in artifact.state_dict.arrays.items()}
    return {
        "model" if path.name == "model" else "model or checkpoint": {
            "kind": artifact.kind,
            "data fingerprint": artifact.fingerprint,
            "files": "intact: sizes and SHA-256 checksums match",
        },
        "parameters": dict(artifact.parameters),
        "numbers": {name: value for name, value in artifact.state_dict.numbers.items() if not isinstance(value, list)},
        "arrays": arrays,
        "made with": dict(artifact.versions),
    }


def _describe_source(path: str, selection: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    from terafactor import open_source

    source = open_source(path, **selection)
    n_rows, n_features = source.shape
    n_bytes = n_rows * n_features * source.dtype.itemsize
    lengths = [len(record) for record in source.records]
    tiles = source.tiles(0)
    blocks = source.row_blocks(0)
    return {
        "source": {
            "format": None if source.origin is None else source.origin.format,
            "rows": n_rows,
            "features": n_features,
            "dtype": source.dtype.name,
            "bytes": n_bytes,
            "records": len(lengths),
            "rows per record": " to ".join(f"{length:,}" for length in sorted({min(lengths), max(lengths)}))
            if lengths
            else "none",
            "features read together": tiles.width if tiles.width > 1 else None,
            "rows read together": None if blocks is None else max(map(len, blocks), default=0),
            "picture shape": source.geometry,
            **_describe_store(source),
        }
    }


def _describe_store(source: Any) -> dict[str, Any]:
    from terafactor.data.packed.layout import read_store_document
    from terafactor.data.packed.reader import PackedSource

    if not isinstance(source, PackedSource):
        return {}
    files = [path for path in source.path.rglob("*") if path.is_file()]
    return {
        "stored as": source.layout.dtype,
        "standardized": read_store_document(source.path)["standardize"],
        "bytes on disk": sum(path.stat().st_size for path in files),
    }


def show(title: str, facts: dict[str, dict[str, Any]]) -> None:
    """Print sections of names and values as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(printable(title)), title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for section, values in facts.items():
        table.add_row(f"[bold]{escape(section)}[/bold]", "")
        for name, value in values.items():
            if value is not None and name not in INTERNAL:
                label = LABELS.get(name, name)
                table.add_row(f"  {escape(printable(label))}", escape(printable(_text(name, value))))
    Console().print(table)


def _text(name: str, value: Any) -> str:
    if name in SIZES and isinstance(value, int):
        return data_size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name not in ("seed", "random_state"):
        return f"{value:,}"
    if isinstance(value, float):
        return duration(value) if name == "seconds" else f"{value:.6g}"
    if isinstance(value, list):
        return (" x " if name == "shape" else ", ").join(map(str, value))
    if isinstance(value, dict):
        if value.get("norm") in ("l1", "l2"):  # the ball has no mixed norm
            value = {key: each for key, each in value.items() if key != "l1_ratio"}
        return ", ".join(f"{key} {_text(key, each)}" for key, each in value.items())
    return str(value)
