"""Rules for the documents that terafactor reads: ``manifest.json``, ``config.toml``, ``metrics.jsonl``.

A document is checked once, where it is read. Fields without a rule are ignored: later versions may add some. msgspec or
pydantic would be a dependency for three documents of ten fields, and their errors do not name the file and the way out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from terafactor.errors import DataError

PLAIN = (bool, int, float, str, list, NoneType)
INTEGER_LIMIT = 2**63
"""Counts are below this, as 64-bit integers are."""


@dataclass(frozen=True)
class Rule:
    """A requirement on the value of a field."""

    needed: str
    """Description for error messages."""

    holds: Callable[[Any], bool]
    """Function that returns whether a value meets the requirement."""

    required: bool = True
    """Whether the field is required."""

    def or_none(self) -> Rule:
        """Return a rule that also allows None."""
        return replace(self, needed=f"{self.needed} or null", holds=lambda value: value is None or self.holds(value))

    def optional(self) -> Rule:
        """Return a rule for a field that may be absent."""
        return replace(self, required=False)


Schema = Mapping[str, "Rule | Schema"]
"""Rules by field. A schema instead of a rule describes a nested document, which is required."""


def check_document(document: Any, schema: Schema, name: str) -> None:
    """Raise a DataError that names the first field that violates its rule."""
    if not TABLE.holds(document):
        raise _invalid(name, TABLE.needed, document)
    for field, rule in schema.items():
        where = f"{field} of {name}"
        if field not in document:
            if not isinstance(rule, Rule) or rule.required:
                raise DataError(f"{name} has no {field}: it was not written by terafactor, or was changed since")
        elif not isinstance(rule, Rule):
            check_document(document[field], rule, where)
        elif not rule.holds(document[field]):
            raise _invalid(where, rule.needed, document[field])


def _invalid(what: str, needed: str, value: Any) -> DataError:
    text = repr(value)
    shown = text if len(text) < 80 else f"{text[:77]}..."
    return DataError(f"{what} must be {needed}, got {shown}: it was not written by terafactor, or was changed since")


def is_text(value: Any) -> bool:
    """Whether a value is a string."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether a value is an integer that counts something."""
    return type(value) is int and 0 <= value < INTEGER_LIMIT


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_source(value: Any) -> bool:
    """Whether a value is a path, several, or several by name."""
    if isinstance(value, dict):
        return all(is_text(name) and not isinstance(part, dict) and _is_source(part) for name, part in value.items())
    return is_text(value) or (isinstance(value, list) and all(map(is_text, value)))


def fits(hint: Any, value: Any) -> bool:
    """Return whether a plain value fits a type hint of plain types; other hints, such as those of arrays, fit all."""
    if type(value) is int and not _is_finite(value):  # no float can hold it
        return False
    if get_origin(hint) in (Union, UnionType):
        return any(fits(each, value) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return is_text(value) and value in get_args(hint)
    if hint is float:
        return type(value) is float or _is_finite(value)
    if hint is int:
        return type(value) is int and abs(value) < INTEGER_LIMIT
    if hint is bool:
        return type(value) is bool or (type(value) is int and value in (0, 1))
    if hint in (str, NoneType):
        return type(value) is hint
    return hint is Any or not isinstance(value, PLAIN)


TEXT = Rule("a string", is_text)
TEXTS = Rule("a list of strings", lambda value: isinstance(value, list) and all(map(is_text, value)))
COUNT = Rule("an integer >= 0 and below 2^63", is_count)
POSITIVE_COUNT = Rule("an integer >= 1 and below 2^63", lambda value: is_count(value) and value >= 1)
COUNTS = Rule("a list of integers >= 0", lambda value: isinstance(value, list) and all(map(is_count, value)))
NUMBER = Rule("a finite number", _is_finite)
SECONDS = Rule("a finite number >= 0", lambda value: _is_finite(value) and value >= 0)
TABLE = Rule("a table of fields", lambda value: isinstance(value, dict) and all(map(is_text, value)))
DIGEST = Rule("64 hexadecimal digits", lambda value: is_text(value) and re.fullmatch("[0-9a-f]{64}", value) is not None)
SHAPE = Rule(
    "a list of two integers >= 0",
    lambda value: isinstance(value, list) and len(value) == 2 and all(map(is_count, value)),
)
SOURCE = Rule("a path, a list of paths, or either by name", _is_source)
