"""The ``terafactor`` command. Nothing heavy is imported before a command runs."""

from terafactor.cli.app import main

__all__ = ["main"]
