"""Messages about invalid usage and interruptions, in place of those of Typer."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""

SEVERAL_FILES = "pass several files as one quoted glob, such as 'parts/*.npy', which the shell must not expand"


class Commands(TyperGroup):
    """A group of commands whose errors name the value received, and that ends Ctrl-C with one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            again = ": the same command continues" if ctx.invoked_subcommand == "pack" else ""
            typer.secho(f"interrupted{again}", fg="red", err=True)
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            _explain(error)
            raise


def _explain(error: Any) -> None:
    """Complete the message of an error about the arguments of a command."""
    invalid = getattr(error.__cause__, "errors", None) if isinstance(error, typer.BadParameter) else None
    if invalid is not None:  # pydantic names what is needed only
        needed = error.message.replace("Input should be", "must be").removeprefix("Value error, ")
        received = repr(invalid()[0]["input"])
        error.message = needed if received in needed else f"{needed.partition(', unable to')[0]}, got {received}"
    elif "unexpected extra argument" in getattr(error, "message", ""):
        arguments = error.ctx.command.params if error.ctx else ()
        if any(each.name == "source" for each in arguments):
            error.message = f"{error.message}: {SEVERAL_FILES}"
