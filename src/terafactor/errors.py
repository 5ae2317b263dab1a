"""Errors raised by terafactor.

Every error names the thing, the value received, the value needed and the way out::

    TerafactorError
    ├── ParameterError (ValueError)        a parameter has a value that cannot work
    ├── DataError (ValueError)             the numbers, or their shape, cannot be used
    ├── DataTypeError (TypeError)          the object is not something terafactor reads
    ├── StorageError (OSError)             a file could not be read or written
    ├── RunInterruptedError                     a run was asked to stop, and wrote a checkpoint
    └── MissingDependencyError (ImportError)   an optional package is not installed

A fit that works but is likely not what was wanted gives a ``FitWarning`` (UserWarning).
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "DataError",
    "DataTypeError",
    "FitWarning",
    "MissingDependencyError",
    "ParameterError",
    "RunInterruptedError",
    "StorageError",
    "TerafactorError",
]


class TerafactorError(Exception):
    """Base of all errors that terafactor raises on purpose."""


class FitWarning(UserWarning):
    """The fit worked, but its result is likely not what was wanted."""


class ParameterError(TerafactorError, ValueError):
    """A parameter has a value that cannot work."""


class DataError(TerafactorError, ValueError):
    """The numbers, or their shape, cannot be used."""


class DataTypeError(TerafactorError, TypeError):
    """The object is not something terafactor reads."""


class StorageError(TerafactorError, OSError):
    """A file could not be read or written: no space, no permission, a failing disk.

    Parameters
    ----------
    error : OSError
        What the system said.
    path : path or str
        The file.
    action : str
        What was tried.
    """

    def __init__(self, error: OSError, path: Path | str, action: str = "write") -> None:
        super().__init__(error.errno, f"cannot {action} {path}: {error.strerror or error}")

    def __str__(self) -> str:
        return str(self.strerror)


class RunInterruptedError(TerafactorError):
    """A run was asked to stop before its end, and wrote a checkpoint to go on from."""


class MissingDependencyError(TerafactorError, ImportError):
    """An optional package is needed and not installed.

    Parameters
    ----------
    package : str
        The package that could not be imported.
    extra : str
        The extra of terafactor that brings it.
    purpose : str
        What it is needed for.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'terafactor[{extra}]'")
