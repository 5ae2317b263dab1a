"""``terafactor pack``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from terafactor._format import data_size
from terafactor.cli.options import Source, Threads

if TYPE_CHECKING:
    from terafactor.data.packed.reader import PackedSource

EXAMPLE = "Example: terafactor pack 'subjects/*.npy' --out store --dtype int16 --standardize"


def pack(
    source: Source,
    out: Annotated[Path, typer.Option(help="Folder of the store; must not exist.")],
    block_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows read together: the batch size of fits.")
    ] = 40,
    dtype: Annotated[
        Literal["float32", "float64", "int16"] | None,
        typer.Option(
            help="What to store, by default as the source; int16 is half of float32, with a scale per feature."
        ),
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Bring each feature of each record to mean 0 and variance 1.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the orders of features.")] = 0,
    threads: Threads = None,
) -> None:
    """Write a matrix as a packed store, of which a masked fit reads only its share. Rerun it to go on after a kill."""
    from terafactor import open_source
    from terafactor import pack as pack_source
    from terafactor.data.packed.reader import PackedSource
    from terafactor.solver.progress import RowsProgress

    opened = open_source(source)
    with RowsProgress("packing", opened.shape[0]) as progress:
        pack_source(
            opened,
            out,
            block_rows=block_rows,
            dtype=dtype,
            standardize=standardize,
            seed=seed,
            n_threads=threads,
            progress=progress,
        )
    typer.echo(summary(PackedSource(out)), err=True)


def summary(store: PackedSource) -> str:
    """Return what was written, and the error of integers."""
    n_rows, n_features = store.shape
    size = data_size(sum(path.stat().st_size for path in store.path.rglob("*") if path.is_file()))
    text = f"packed {n_rows} rows of {n_features} features into {store.path} ({size})"
    if not store.layout.scaled:
        return text
    squares = [found["rms_error"] ** 2 * found["count"] for found in store.statistics]
    variances = [found["std"] ** 2 * found["count"] for found in store.statistics]
    share = math.sqrt(sum(squares) / sum(variances)) if any(variances) else 0.0
    largest = max(found["max_error"] for found in store.statistics)
    return f"{text}\nint16 makes an error of {share:.2g} of the standard deviation on average, at most {largest:.2g}"
