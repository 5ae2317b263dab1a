"""``terafactor plan``: estimate the cost of a fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from terafactor._format import counted, data_size, duration, printable
from terafactor.cli.options import DICTIONARY, Columns, Drop, Json, Source, Values, offering, some
from terafactor.cli.parsing import column_selection

if TYPE_CHECKING:
    from terafactor.solver.cluster_plan import ClusterPlan

EXAMPLE = "Example: terafactor plan store -k 70 --penalty l2 --constraint l1"


PLANNED = (
    "n_components", "alpha", "penalty", "constraint", "missing", "reduction", "batch_size", "n_epochs", "n_threads",
    "shards", "round_steps",
)  # fmt: skip
"""Parameters that determine the cost of a fit."""


@offering(parameters=some(DICTIONARY, *PLANNED))
def plan(
    source: Source,
    parameters: Values,
    columns: Columns = None,
    drop: Drop = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also estimate a cluster of N workers, one thread each.")
    ] = None,
    bandwidth: Annotated[
        float, typer.Option(min=0.001, metavar="GBIT", help="Network bandwidth between workers, in Gbit/s.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Estimate memory, bytes read and time of a fit, by timing a few steps. Nothing is saved."""
    from rich.console import Console

    from terafactor import MaskedDictionaryLearning, open_source

    estimator = MaskedDictionaryLearning(**parameters, random_state=0)
    with Console(stderr=True).status("timing a few steps"):
        opened = open_source(source, **column_selection(columns, drop))
        found = estimator.plan(opened, workers=workers, bandwidth=bandwidth * 1e9 / 8)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
        return
    show(f"Estimated cost of a fit of {printable(source)}", found.lines())
    if parameters["n_epochs"] == "auto":
        typer.echo("With --epochs auto, the total time is an upper limit: the fit stops when it converges.")
    if found.cluster is not None:
        show(f"On {counted(found.cluster.workers, 'worker')}", cluster_rows(found.cluster))
        typer.echo(verdict(found.cluster))


def show(title: str, lines: list[tuple[str, str, str]]) -> None:
    """Print lines of name, figure and remark as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, figure, remark in lines:
        table.add_row(name, figure, remark)
    Console().print(table)


def cluster_rows(plan: ClusterPlan) -> list[tuple[str, str, str]]:
    """Return the lines of the table of a cluster."""
    batches = plan.shards * plan.round_steps
    return [
        ("round", f"{plan.shards} x {plan.round_steps}", "shards x steps"),
        ("time per round", duration(plan.round_seconds), f"one machine: {duration(batches * plan.local_step_seconds)}"),
        ("  computing", duration(plan.computing_seconds), f"{duration(plan.step_seconds)} per step on one thread"),
        ("  sending", duration(plan.sending_seconds), f"{data_size(plan.state_bytes)} of atoms and statistics"),
        ("  merging", duration(plan.merging_seconds), ""),
        ("memory per worker", data_size(plan.worker_bytes), ""),
    ]


def verdict(plan: ClusterPlan) -> str:
    """Return whether the cluster pays, in words."""
    if plan.speedup >= 1.2:
        return f"The cluster learns from the same rows {plan.speedup:.1f} times as fast as this machine."
    return (
        f"The cluster does not pay: it would be {plan.speedup:.2g} times as fast as this machine. More workers, more "
        "--round-steps or a faster network would help."
    )
