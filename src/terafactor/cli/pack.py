"""``terafactor pack``: copy a matrix into a packed store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from terafactor._format import counted, data_size, printable
from terafactor.cli.cluster import connected
from terafactor.cli.options import CLUSTER, Columns, Drop, Source, Threads, Values, offering
from terafactor.cli.parsing import column_selection

if TYPE_CHECKING:
    from terafactor.data.packed.reader import PackedSource

EXAMPLE = "Example: terafactor pack 'subjects/*.npy' --out store --dtype int16 --standardize"


@offering(cluster=CLUSTER)
def pack(
    source: Source,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the store; must not exist.")],
    cluster: Values,
    block_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows per block, read together; choose the batch size of the fit.")
    ] = 40,
    dtype: Annotated[
        Literal["float32", "float64", "int16"] | None,
        typer.Option(metavar="TYPE", help="float32, float64 or int16 (quantized); default: as in the source."),
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Scale each feature of each record to mean 0 and variance 1.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the order of features.")] = 0,
    columns: Columns = None,
    drop: Drop = None,
    threads: Threads = None,
) -> None:
    """Copy a matrix into a packed store, from which batches are read fast.

    After an interruption, run the same command again to continue.
    """
    from terafactor import open_source
    from terafactor import pack as pack_source
    from terafactor.data.packed.reader import PackedSource
    from terafactor.solver.progress import RowsProgress

    opened = open_source(source, **column_selection(columns, drop))
    options: Values = {"block_rows": block_rows, "dtype": dtype, "standardize": standardize, "seed": seed}
    with connected(cluster) as client:
        if client is not None:
            from terafactor import dask

            dask.pack(opened, out.absolute(), client=client, **options)
        else:
            with RowsProgress("packing", opened.shape[0]) as progress:
                pack_source(opened, out, **options, n_threads=threads, progress=progress)
    typer.echo(summary(PackedSource(out)), err=True)


def summary(store: PackedSource) -> str:
    """Return the size of a store and its rounding error."""
    n_rows, n_features = store.shape
    size = data_size(sum(path.stat().st_size for path in store.path.rglob("*") if path.is_file()))
    text = f"packed {counted(n_rows, 'row')} of {counted(n_features, 'feature')} into {printable(store.path)} ({size})"
    if not store.layout.scaled:
        return text
    squares = [found["rms_error"] ** 2 * found["count"] for found in store.statistics]
    variances = [found["std"] ** 2 * found["count"] for found in store.statistics]
    share = math.sqrt(sum(squares) / sum(variances)) if any(variances) else 0.0
    largest = max(found["max_error"] for found in store.statistics)
    return (
        f"{text}\nint16 rounding error: {share:.2g} of the standard deviation (root mean square), "
        f"at most {largest:.2g} in units of the stored values"
    )
