"""``terafactor transform`` and ``terafactor export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor.cli.options import Source, Threads

TRANSFORM_EXAMPLE = "Example: terafactor transform run/ X.npy --out codes.npy"
EXPORT_EXAMPLE = "Example: terafactor export run/ --out model.npz"

Model = Annotated[Path, typer.Argument(help="A run directory, a model or a checkpoint.", exists=True, file_okay=False)]

COMMANDS = {
    "MaskedDictionaryLearning": "terafactor transform",
    "BrainDictionaryLearning": "terafactor brain transform",
    "MatrixCompletion": "terafactor ratings predict, recommend or evaluate",
}
"""What to do with a model of each kind."""


def load_kind(path: Path, kind: str, threads: int | None = None) -> Any:
    """Load a model, refusing one of another kind with the command that takes it."""
    from terafactor import load_model
    from terafactor.errors import DataError

    estimator = load_model(path)
    found = estimator._task().kind
    if found != kind:
        raise DataError(f"{path} holds a {found}, and this command needs a {kind}: use {COMMANDS[found]}")
    return estimator.set_params(n_threads=threads)


def check_absent(out: Path) -> None:
    """Refuse to write over what is there."""
    from terafactor.errors import ParameterError

    if out.exists():
        raise ParameterError(f"{out} exists: choose another name, or remove it")


def transform(
    model: Model,
    source: Source,
    out: Annotated[Path, typer.Option(help="File of the codes, .npy or .zarr; must not exist.")],
    threads: Threads = None,
) -> None:
    """Write the codes of the rows of a matrix, a bounded number of rows at a time."""
    check_absent(out)
    estimator = load_kind(model, "MaskedDictionaryLearning", threads)
    codes = estimator.set_params(verbose=1).transform(source, out=out)
    typer.echo(f"wrote the codes of {codes.shape[0]:,} rows on {codes.shape[1]} atoms to {out}", err=True)


def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="The .npz file; must not exist.")],
) -> None:
    """Write what a model learned as plain arrays, for programs that do not know terafactor."""
    from terafactor import load_model

    check_absent(out)
    load_model(model).export(out)
    typer.echo(f"wrote {out}", err=True)
