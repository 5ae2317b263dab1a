"""Parameters of estimators as plain values, for files, and back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Set
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from terafactor.errors import DataError
from terafactor.problem.registry import REGISTERED

NOT_STORED = frozenset({"callbacks", "n_threads", "verbose"})
"""Parameters that do not change the model."""


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as values that JSON and TOML can hold."""
    return {name: to_plain(value) for name, value in parameters.items() if name not in NOT_STORED}


def to_plain(value: Any) -> Any:
    """Return one value in plain form: an array becomes its digest, a registered object its name and fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if is_dataclass(value) and type(value).__name__ in REGISTERED:
        return {"type": type(value).__name__, **to_plain(asdict(value))}  # type: ignore[arg-type]
    array = getattr(value, "components_", value)
    if isinstance(array, np.ndarray):
        return {"type": "array", "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
    return {"type": type(value).__name__}


def from_plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters from plain values; those that a file cannot hold, such as arrays, become None."""
    return {name: _object(name, value) for name, value in parameters.items()}


def _object(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping) or "type" not in value:
        return value
    kind, fields = value["type"], {field: _tuples(part) for field, part in value.items() if field != "type"}
    if isinstance(kind, str) and kind in REGISTERED:
        try:
            return REGISTERED[kind](**fields)
        except TypeError as error:  # unknown or missing fields, or fields of another type
            raise DataError(f"{name} of the file is not a {kind}: {error}") from error
    if name in ("penalty", "constraint"):
        raise DataError(f"{name} of the file is {kind!r}, which is not registered: import the module that defines it")
    return None


def _tuples(value: Any) -> Any:
    """Return lists as tuples: fields of frozen objects are hashable, and files have lists only."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def differences(before: Mapping[str, Any], now: Mapping[str, Any], ignored: Set[str] = frozenset()) -> list[str]:
    """Return a description of each difference between two sets of plain values."""
    names = sorted((set(before) | set(now)) - ignored - NOT_STORED)
    return [
        f"{name} was {before.get(name, 'not set')!r}, now {now.get(name, 'not set')!r}"
        for name in names
        if before.get(name) != now.get(name)
    ]
