"""The declaration of a format that ``open_source`` can open, and checks that formats share."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.origin import Origin
from terafactor.data.source import MatrixSource
from terafactor.errors import DataError, MissingDependencyError

READER_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, LookupError, MemoryError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Exceptions of other packages while they read a damaged file. OSError is not among them: a disk that fails raises it,
too."""


def _never(data: Any) -> bool:
    return False


def _cannot_open(*data: Any, **options: Any) -> MatrixSource:
    raise NotImplementedError


@dataclass(frozen=True)
class Format:
    """One kind of data that :func:`terafactor.open_source` opens. Its module declares it as ``FORMAT``."""

    name: str
    """Its scheme: ``name://path`` selects it whatever the file is called."""

    description: str
    """What it opens, for error messages that list the formats."""

    is_path: Callable[[Path], bool] = _never
    """Return whether an existing file or folder looks like this format."""

    open_path: Callable[..., MatrixSource] = _cannot_open
    """Open ``(path, inside, **options)``; ``inside`` is the text after ``::``, or None."""

    is_object: Callable[[Any], bool] = _never
    """Return whether an object in memory is of this format, by class name only: it imports nothing."""

    open_object: Callable[..., MatrixSource] = _cannot_open
    """Open ``(data, **options)``."""

    def open(self, path: Path, inside: str | None = None, **options: Any) -> MatrixSource:
        """Open a path and record it as the origin of the source, for other processes."""
        origin = Origin.of(self.name, path, inside, options)  # first: a later change of the file is then noticed
        source = self.open_path(path, inside, **options)
        source.origin = origin
        return source


def ends_with(*suffixes: str) -> Callable[[Path], bool]:
    """Return a test for the end of a file's name, in any case."""
    return lambda path: path.name.lower().endswith(suffixes)


def is_a(data: object, package: str, *classes: str) -> bool:
    """Return whether ``data`` is an instance of one of these classes of a package, without importing the package."""
    return any(base.__module__.split(".")[0] == package and base.__name__ in classes for base in type(data).__mro__)


def require(package: str, *, extra: str, purpose: str) -> Any:
    """Import a module of an optional package; the error for a missing one names the extra that installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependencyError(package.split(".")[0], extra=extra, purpose=purpose) from error


def reading_dtype(stored: Any, name: str) -> np.dtype[np.floating]:
    """Return the type in which stored numbers are read: float32 where that is exact, float64 otherwise."""
    dtype = np.dtype(stored)
    if dtype.kind == "c":
        raise DataError(f"{name} holds {dtype}: complex numbers are not supported")
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise DataError(f"{name} holds {dtype}, which is not a number of at most 64 bits: convert it to float32 first")
    small = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.dtype(np.float32 if small else np.float64)


def check_matrix(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return the shape of a matrix with at least one row and one feature, or raise a DataError."""
    if len(shape) != 2 or any(length <= 0 for length in shape):
        way_out = ": reshape it" if len(shape) != 2 else ""
        raise DataError(f"{name} has shape {tuple(shape)}; it must be (rows, features), at least one of each{way_out}")
    return int(shape[0]), int(shape[1])


def refuse_inside(path: Path, inside: str | None) -> None:
    """Refuse ``path::inside`` for a file that holds a single matrix."""
    if inside is not None:
        raise DataError(f"{path} holds one matrix and nothing named {inside!r}: pass the path alone")
