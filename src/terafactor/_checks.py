"""Checks of parameters and paths that several modules share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.errors import DataError, ParameterError

__all__ = ["check_callbacks", "check_flag", "check_new", "check_regular"]


def check_callbacks(callbacks: Any) -> None:
    """Refuse anything but a sequence of callables."""
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ParameterError(
            f"callbacks must be a sequence of callables, got {callbacks!r} (pass callbacks=[f] to call f)"
        )


def check_flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False; a string such as "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_new(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that exists, unless it may be overwritten."""
    if os.path.lexists(path) and not overwrite:
        raise ParameterError(f"{path} exists: pass overwrite=True to replace it")


def check_regular(path: Path | str) -> None:
    """Refuse a pipe, a socket or a device, which may have no end or never send anything."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(
            f"{path} is not a regular file, but a pipe, socket or device: write its content to a file first"
        )
