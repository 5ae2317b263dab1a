"""``terafactor report``: the page of a run, or of several on the same axes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: terafactor report run-r1/ run-r4/ run-r12/ --out comparison.html"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", exists=True, file_okay=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file; by default report.html of the run, here for several.", dir_okay=False),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
    geometry: Annotated[
        str | None, typer.Option(metavar="HxW[x3]", help="Shape of a row as a picture, as in 16x16 or 16x16x3.")
    ] = None,
) -> None:
    """Write the report of a run anew, or draw several runs on the same axes. Opens in any browser, offline."""
    from terafactor import report_runs

    path = report_runs(*runs, path=out, title=title, geometry=parse_geometry(geometry))
    typer.echo(f"Wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def parse_geometry(text: str | None) -> tuple[int, ...] | None:
    """Return the shape that "16x16" or "16x16x3" names, None for none."""
    if text is None:
        return None
    parts = text.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"--geometry is HEIGHTxWIDTH or HEIGHTxWIDTHx3, as in 16x16, got {text!r}")
    return tuple(map(int, parts))
