"""``terafactor transform`` and ``terafactor export``: use a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor._format import counted, printable
from terafactor.cli.cluster import connected
from terafactor.cli.options import CLUSTER, Columns, Drop, Source, Threads, Values, offering
from terafactor.cli.parsing import column_selection

TRANSFORM_EXAMPLE = "Example: terafactor transform run/ X.npy --out codes.npy"
EXPORT_EXAMPLE = "Example: terafactor export run/ --out model.npz"

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A run directory, model or checkpoint.", exists=True, file_okay=False)
]

COMMANDS = {
    "MaskedDictionaryLearning": "terafactor transform",
    "BrainDictionaryLearning": "terafactor brain transform",
    "MatrixCompletion": "terafactor ratings predict, recommend or evaluate",
}
"""Commands that use each kind of model."""


def load_kind(path: Path, kind: str, threads: int | None = None) -> Any:
    """Load a model. If it is of another kind, raise an error that names the right command."""
    from terafactor import load_model
    from terafactor.errors import DataError

    estimator = load_model(path)
    found = estimator._task().kind
    if found != kind:
        raise DataError(f"{path} holds a {found}, but this command needs a {kind}: use {COMMANDS[found]}")
    return estimator.set_params(n_threads=threads)


def check_absent(out: Path) -> None:
    """Raise an error if the output exists."""
    from terafactor.errors import ParameterError

    if out.exists():
        raise ParameterError(f"{out} exists: choose another name, or remove it")


@offering(cluster=CLUSTER)
def transform(
    model: Model,
    source: Source,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the codes, .npy or .zarr; must not exist.")],
    cluster: Values,
    columns: Columns = None,
    drop: Drop = None,
    threads: Threads = None,
) -> None:
    """Compute the codes of the rows of a matrix, and write them to a file.

    By default, a table is read with the columns that the model was fitted on.
    """
    check_absent(out)
    estimator = load_kind(model, "MaskedDictionaryLearning", threads)
    rows = open_rows(estimator, source, column_selection(columns, drop))
    with connected(cluster) as client:
        if client is not None:
            from terafactor.dask import on_cluster

            estimator = on_cluster(estimator, client)
        codes = estimator.set_params(verbose=1).transform(rows, out=out.absolute())
    n_rows, n_atoms = codes.shape
    shape = f"{counted(n_rows, 'row')} x {counted(n_atoms, 'atom')}"
    typer.echo(f"wrote codes ({shape}) to {printable(out)}", err=True)


def open_rows(estimator: Any, source: str, selection: dict[str, list[str]]) -> Any:
    """Open a matrix for a model. selection: columns to read; empty selects the features of the model by name."""
    from terafactor import open_source
    from terafactor.errors import DataError, ParameterError

    names = getattr(estimator, "feature_names_in_", None)
    if selection or names is None:
        return open_source(source, **selection)
    features = list(map(str, names))
    try:
        opened = open_source(source)
    except DataError as error:  # perhaps due to columns that the model does not use
        try:
            return open_source(source, columns=features)
        except ParameterError:  # not a table
            raise error from None
    if opened.feature_names in (None, features):
        return opened
    lacking = [name for name in features if name not in opened.feature_names]
    if lacking:
        raise DataError(f"the model was fitted on column {lacking[0]!r}, which {source} lacks")
    return open_source(source, columns=features)


def export(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, .npz; must not exist.")],
) -> None:
    """Write the arrays of a model to an .npz file, for use without terafactor."""
    from terafactor import load_model

    check_absent(out)
    load_model(model).export(out)
    typer.echo(f"wrote {printable(out)}", err=True)
