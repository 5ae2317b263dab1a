"""How texts on the command line become values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def penalty_named(option: str, text: str) -> Any:
    """Return the penalty that "l1", "l2" or "elastic-net:0.5" names."""
    from terafactor import ElasticNet

    ratio = _ratio(text)
    return text if ratio is None else ElasticNet(ratio)


def constraint_named(option: str, text: str) -> Any:
    """Return the ball that "l1", "l2" or "elastic-net:0.5" names."""
    from terafactor import NormBall

    ratio = _ratio(text)
    return text if ratio is None else NormBall("elastic-net", l1_ratio=ratio)


def _ratio(text: str) -> float | None:
    name, _, ratio = text.partition(":")
    if name != "elastic-net":
        return None
    try:
        return float(ratio or 0.5)
    except ValueError as error:
        raise typer.BadParameter(f"elastic-net:RATIO needs a number between 0 and 1, got {text!r}") from error


def number_or_auto(option: str, text: str) -> Any:
    """Return a number, or "auto"."""
    return _or_auto(option, text, float, "a number")


def integer_or_auto(option: str, text: str) -> Any:
    """Return an integer, or "auto"."""
    return _or_auto(option, text, int, "an integer")


def _or_auto(option: str, text: str, kind: type, what: str) -> Any:
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option} needs {what} or auto, got {text!r}") from error


def absolute_path(option: str, path: Path) -> str:
    """Return a path that is the same from any folder."""
    return str(path.absolute())


def column_roles(option: str, texts: list[str] | None) -> dict[str, str] | None:
    """Return which column holds what, from texts like ``user=who``; ``time=`` leaves times out."""
    if not texts:
        return None
    pairs = [text.partition("=") for text in texts]
    roles = ("user", "item", "rating", "time")
    if any((role not in roles or not name) and (role, equals) != ("time", "=") for role, equals, name in pairs):
        raise typer.BadParameter(
            f"--column needs ROLE=NAME with a role out of {', '.join(roles)}, or time= to leave times out, got {texts}"
        )
    return {role: name for role, _, name in pairs}


def parse_holdout(text: str | None) -> Any:
    """Return the amount that "2000", "0.05", "5%" or "3 records" names, None for the default."""
    if text is None or text == "":
        return None
    number = text.removesuffix("%").strip()
    for kind in (int, float):
        try:
            return float(number) / 100 if text.endswith("%") else kind(number)
        except ValueError:
            continue
    return text
