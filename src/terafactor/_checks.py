"""Parameters that several estimators take, checked in one way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.errors import ParameterError

__all__ = ["check_callbacks", "check_flag", "check_new"]


def check_callbacks(callbacks: Any) -> None:
    """Refuse what is no sequence of callables, such as a callable alone."""
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ParameterError(
            f"callbacks must be a sequence of callables, got {callbacks!r} (callbacks=[f] calls f, () nothing)"
        )


def check_flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False; a word like "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_new(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace what is there unless asked to."""
    if os.path.lexists(path) and not overwrite:
        raise ParameterError(f"{path} exists: say overwrite=True to replace it")
