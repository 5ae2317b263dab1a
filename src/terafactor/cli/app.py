"""The command-line application and its error handling."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import terafactor
from terafactor._format import ConsoleFormatter, printable
from terafactor.cli import brain as brain_commands
from terafactor.cli import doctor as doctor_command
from terafactor.cli import fit as fit_command
from terafactor.cli import inspect as inspect_command
from terafactor.cli import pack as pack_command
from terafactor.cli import plan as plan_command
from terafactor.cli import ratings as ratings_command
from terafactor.cli import report as report_command
from terafactor.cli import transform as transform_command
from terafactor.cli.messages import Commands
from terafactor.errors import DataError, DataTypeError, RunInterruptedError, StorageError, TerafactorError

app = typer.Typer(
    name="terafactor",
    cls=Commands,
    help="Factorize matrices larger than memory.",
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="Import this Python module first, for example to register a penalty."
        ),
    ] = None,
) -> None:
    """Factorize matrices larger than memory."""
    for module in modules or ():
        sys.path.insert(0, os.getcwd())  # as python -m does
        try:
            import_module(module)
        except Exception as error:
            raise typer.BadParameter(f"cannot import {module}: {error}", param_hint="--import") from error


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the pictures.", file_okay=False)] = Path(
        "demo-output"
    ),
    components: Annotated[int, typer.Option("--components", "-k", min=1, metavar="K", help="Number of atoms.")] = 144,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")] = 0,
) -> None:
    """Learn atoms from patches of photographs, compare with scikit-learn, and plot them."""
    from rich.console import Console

    with Console(stderr=True).status("loading"):
        from terafactor.cli.demo import run

    run(out, n_components=components, seed=seed)


for command, example in (
    (fit_command.fit, fit_command.FIT_EXAMPLE),
    (fit_command.resume, fit_command.RESUME_EXAMPLE),
    (pack_command.pack, pack_command.EXAMPLE),
    (plan_command.plan, plan_command.EXAMPLE),
    (transform_command.transform, transform_command.TRANSFORM_EXAMPLE),
    (transform_command.export, transform_command.EXPORT_EXAMPLE),
    (report_command.report, report_command.EXAMPLE),
    (inspect_command.inspect, inspect_command.EXAMPLE),
    (doctor_command.doctor, doctor_command.EXAMPLE),
):
    app.command(epilog=example)(command)
app.add_typer(brain_commands.app)
app.add_typer(ratings_command.app)


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 success, 1 internal error, 2 invalid usage, 3 invalid data, 4 interrupted with a checkpoint, 130
    interrupted by Ctrl-C without one.
    """
    if logging.lastResort is not None:  # prints warnings that are logged outside a run
        logging.lastResort.setFormatter(ConsoleFormatter())
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _show_warning
            app()
    except Exception as error:
        if debug:
            typer.echo(printable(traceback.format_exc(), lines=True), err=True)
        else:
            typer.secho(printable(_describe(error), lines=True), fg="red", err=True)
        sys.exit(exit_code(error))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of code that issued it, which is not the user's."""
    typer.secho(printable(f"warning: {message}", lines=True), fg="yellow", err=True)


def exit_code(error: Exception) -> int:
    """Return the exit code of the process for an error."""
    if isinstance(error, RunInterruptedError):
        return 4
    if isinstance(error, DataError | DataTypeError | StorageError):
        return 3
    return 2 if isinstance(error, TerafactorError | MemoryError) else 1


def _describe(error: Exception) -> str:
    """Return the message for the user."""
    if isinstance(error, TerafactorError):
        return f"error: {error}"
    if isinstance(error, MemoryError):
        return f"error: not enough memory ({error}): `terafactor plan` with the same options shows how much a fit needs"
    return (
        f"internal error: {type(error).__name__}: {error}; run again with --debug for the traceback, and please report "
        "it together with the output of terafactor doctor"
    )
