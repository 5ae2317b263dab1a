"""``terafactor report``: an HTML report of one run, or a comparison of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terafactor._format import data_size, printable

EXAMPLE = "Example: terafactor report run-r1/ run-r4/ run-r12/ --out comparison.html"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.", exists=True, file_okay=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="HTML file; default: report.html in the run, or in the current folder for several runs.",
            dir_okay=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Title of the page; default: names of the runs.")
    ] = None,
    geometry: Annotated[
        str | None, typer.Option(metavar="HxW[x3]", help="Show rows as pictures of this shape, such as 16x16.")
    ] = None,
) -> None:
    """Write the HTML report of a run, or one page that compares several runs."""
    from terafactor import report_runs

    path = report_runs(*runs, path=out, title=title, geometry=parse_geometry(geometry))
    typer.echo(f"Wrote {printable(path)} ({data_size(path.stat().st_size)})")


def parse_geometry(text: str | None) -> tuple[int, ...] | None:
    """Return the shape for "16x16" or "16x16x3", None for None."""
    if text is None:
        return None
    parts = text.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"--geometry must be HEIGHTxWIDTH or HEIGHTxWIDTHx3, such as 16x16, got {text!r}")
    return tuple(map(int, parts))
