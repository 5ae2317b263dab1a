"""Conversion of option texts into values."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import typer


def number_or_auto(option: str, text: str) -> Any:
    """Return a number, or "auto"."""
    return _or_auto(option, text, float, "a number")


def integer_or_auto(option: str, text: str) -> Any:
    """Return an integer, or "auto"."""
    return _or_auto(option, text, int, "an integer")


def masks_or_auto(option: str, text: str) -> Any:
    """Return "auto", a number, or masks: a number and their statistics or projection, as in "8:full:exact"."""
    reduction, *words = text.split(":")
    value = _or_auto(option, reduction, float, "a number")
    if not words:
        return value
    chosen: dict[str, Any] = {"projection" if word == "exact" else "statistics": word for word in words}
    if value == "auto" or len(chosen) < len(words) or not {"masked", "full", "exact"}.issuperset(words):
        raise typer.BadParameter(
            f"--{option} must be a number, followed by :masked or :full, :exact, or both, such as 8:full:exact; "
            f"got {text!r}"
        )
    from terafactor.problem import RandomMasks

    return RandomMasks(value, **chosen)


def _or_auto(option: str, text: str, kind: type, what: str) -> Any:
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option} needs {what} or auto, got {text!r}") from error


def absolute_path(option: str, path: Path) -> str:
    """Return a path that is valid in any working directory."""
    return str(path.absolute())


def column_roles(option: str, texts: list[str] | None) -> dict[str, str] | None:
    """Return column names by role, from texts like ``user=who``; ``time=`` ignores times."""
    if not texts:
        return None
    pairs = [text.partition("=") for text in texts]
    roles = ("user", "item", "rating", "time")
    if any((role not in roles or not name) and (role, equals) != ("time", "=") for role, equals, name in pairs):
        raise typer.BadParameter(
            f"--column needs ROLE=NAME with a role of {', '.join(roles)}, or time= to ignore times, got {texts}"
        )
    return {role: name for role, _, name in pairs}


def parse_names(text: str) -> list[str]:
    """Return the names in ``a,b,c``; a name with a comma is quoted, as in CSV: ``a,"b,c"``."""
    return next(csv.reader([text], skipinitialspace=True), [])


def column_selection(columns: str | None, drop: str | None) -> dict[str, list[str]]:
    """Return the options of :func:`terafactor.open_source` for ``--columns`` and ``--drop``; empty without them."""
    texts = {"columns": columns, "drop": drop}
    return {option: parse_names(text) for option, text in texts.items() if text is not None}


def join_names(names: list[Any]) -> str:
    """Return the text that :func:`parse_names` splits into these names."""
    return ",".join(f'"{str(name).replace(chr(34), chr(34) * 2)}"' for name in names)


def parse_holdout(text: str | None) -> Any:
    """Return the amount for "2000", "0.05", "5%" or "3 records", None for the default."""
    if text is None or text == "":
        return None
    number = text.removesuffix("%").strip()
    for kind in (int, float):
        try:
            amount = float(number) / 100 if text.endswith("%") else kind(number)
        except ValueError:
            continue
        if kind is float or text.endswith("%"):
            _check_share(amount, text)
        return amount
    return text


def _check_share(amount: float, text: str) -> None:
    if not 0 <= amount < 1:
        raise typer.BadParameter(
            f"--holdout needs a number such as 500, or a share below 100% such as 5% or 0.05, got {text!r}"
        )
