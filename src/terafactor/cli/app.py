"""The commands and their options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import terafactor
from terafactor.errors import DataError, DataTypeError, TerafactorError

app = typer.Typer(
    name="terafactor",
    help="Factorize matrices too large to read in full.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"terafactor {terafactor.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Factorize matrices too large to read in full."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", file_okay=False)] = Path("demo-output"),
    components: Annotated[int, typer.Option("--components", "-k", min=1, help="Atoms to learn.")] = 144,
    seed: Annotated[int, typer.Option(min=0, help="Seed of masks and row order.")] = 0,
) -> None:
    """Learn atoms from patches of photographs, with and without masks, and draw them."""
    from rich.console import Console

    with Console(stderr=True).status("loading"):
        from terafactor.cli.demo import run

    run(out, n_components=components, seed=seed)


def main() -> None:
    """Run the command line: 0 done, 1 internal error, 2 wrong use, 3 bad data."""
    try:
        app()
    except TerafactorError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(3 if isinstance(error, DataError | DataTypeError) else 2)
