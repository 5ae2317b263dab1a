"""The ``terafactor`` command. Commands import heavy modules only when they run."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    try:
        from terafactor.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()
