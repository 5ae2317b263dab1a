"""The ``terafactor`` command. Commands import heavy modules only when they run."""

from terafactor.cli.app import main

__all__ = ["main"]
