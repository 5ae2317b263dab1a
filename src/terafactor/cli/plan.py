"""``terafactor plan``."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import typer

from terafactor._format import data_size, duration
from terafactor.cli.options import DICTIONARY, Json, Source, Values, offering, some

if TYPE_CHECKING:
    from terafactor.solver import Plan

EXAMPLE = "Example: terafactor plan store -k 70 --reduction 12 --penalty l2 --constraint l1"


PLANNED = (
    "n_components", "alpha", "penalty", "constraint", "missing", "reduction", "statistics", "batch_size", "n_epochs",
    "n_threads",
)  # fmt: skip
"""Parameters on which the cost of a fit depends."""


@offering(parameters=some(DICTIONARY, *PLANNED))
def plan(source: Source, parameters: Values, as_json: Json = False) -> None:
    """Say how much memory, reading and time a fit would take, or why it does not fit. Times a few steps."""
    from rich.console import Console

    from terafactor import MaskedDictionaryLearning

    estimator = MaskedDictionaryLearning(**parameters, random_state=0)
    with Console(stderr=True).status("timing a few steps"):
        found = estimator.plan(source)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        show(source, found)
        if parameters["reduction"] == "auto":
            typer.echo("With --reduction auto a fit takes this at the most, and trials before it.")
        if parameters["n_epochs"] == "auto":
            typer.echo("With --epochs auto a fit takes this at the most: it ends when it has settled.")


def show(title: str, plan: Plan) -> None:
    """Draw a plan as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"A fit of {escape(title)}", title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, figure, remark in rows(plan):
        table.add_row(name, figure, remark)
    Console().print(table)


def rows(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the lines of the table: what, how much, and what it is made of."""
    memory = plan.memory
    free = "" if plan.available_bytes is None else f"of {data_size(plan.available_bytes)} available"
    return [
        ("matrix", f"{plan.n_samples:,} x {plan.n_features:,}", plan.dtype),
        ("step", f"{plan.batch_size} x {plan.n_observed:,}", f"rows x features, {plan.statistics} statistics"),
        ("memory", data_size(memory.peak), free),
        ("  atoms", data_size(memory.model), f"{plan.n_components} x {plan.n_features:,}"),
        ("  statistics", data_size(memory.statistics), ""),
        ("  start", data_size(memory.start), "rows to start from, freed afterwards"),
        ("  work", data_size(memory.work), "rows read ahead, copies for a step"),
        ("read per epoch", data_size(plan.bytes_per_epoch), reading(plan)),
        ("time per step", duration(plan.seconds_per_step), f"{plan.steps_per_epoch:,} steps per epoch"),
        ("time per epoch", duration(plan.seconds_per_epoch), ""),
        (
            "time of the fit",
            duration(plan.seconds),
            f"{plan.n_epochs:g} epoch{'s' * (plan.n_epochs != 1)} at that speed",
        ),
    ]


def reading(plan: Plan) -> str:
    """Return how the reading of an epoch compares with whole rows, and what would be better."""
    less, possible = plan.full_bytes_per_epoch / max(plan.bytes_per_epoch, 1), math.ceil(plan.reduction)
    if less < 1.05:
        return (
            f"as whole rows; packed, {possible} times less"
            if plan.statistics == "masked" and possible > 1
            else "whole rows"
        )
    return f"whole rows: {data_size(plan.full_bytes_per_epoch)}, {less:.1f} times more"
