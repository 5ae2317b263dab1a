"""How an implementation says what it can open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.source import MatrixSource
from terafactor.errors import DataError, MissingDependencyError


def _nothing(thing: Any) -> bool:
    return False


def _cannot_open(*thing: Any, **options: Any) -> MatrixSource:
    raise NotImplementedError


@dataclass(frozen=True)
class Format:
    """One kind of thing that :func:`terafactor.open_source` opens. A file of this folder declares it as ``FORMAT``."""

    name: str
    """Its scheme: ``name://path`` asks for it whatever the path looks like."""

    understands: str
    """What it opens, for the error that lists what is understood."""

    is_path: Callable[[Path], bool] = _nothing
    """Whether a file or folder that exists looks like one of these."""

    open_path: Callable[..., MatrixSource] = _cannot_open
    """Opens ``(path, inside, **options)``; ``inside`` is what follows ``::``, or None."""

    is_object: Callable[[Any], bool] = _nothing
    """Whether an object in memory is one of these; looks at names only, imports nothing."""

    open_object: Callable[..., MatrixSource] = _cannot_open
    """Opens ``(thing, **options)``."""


def ends_with(*suffixes: str) -> Callable[[Path], bool]:
    """Return a test for the end of a file's name."""
    return lambda path: path.name.lower().endswith(suffixes)


def is_a(thing: object, package: str, *classes: str) -> bool:
    """Whether ``thing`` is of one of these classes of a package, which need not be imported for that."""
    return any(base.__module__.split(".")[0] == package and base.__name__ in classes for base in type(thing).__mro__)


def require(package: str, *, extra: str, purpose: str) -> Any:
    """Return a module of an optional package; where it is missing, the error names the extra that brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependencyError(package.split(".")[0], extra=extra, purpose=purpose) from error


def reading_dtype(stored: Any, name: str) -> np.dtype[np.floating]:
    """Return the type that stored numbers are read as: float32 where that is exact, else float64."""
    dtype = np.dtype(stored)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise DataError(f"{name} holds {dtype}, which is not a number of at most 64 bits: convert it to float32 first")
    small = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.dtype(np.float32 if small else np.float64)


def check_matrix(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return the shape of a matrix that has rows and features, or say what is wrong with it."""
    if len(shape) != 2 or 0 in shape:
        raise DataError(f"{name} has shape {tuple(shape)}; it must be (rows, features), at least one of each")
    return int(shape[0]), int(shape[1])


def refuse_inside(path: Path, inside: str | None) -> None:
    """Refuse ``path::inside`` where files hold one matrix only."""
    if inside is not None:
        raise DataError(f"{path} holds one matrix, there is nothing called {inside!r} inside: give the path alone")
